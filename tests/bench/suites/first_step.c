/* first_step.c - runs the first step of the program train. */
#include "tests/bench/suites/first_step.h"

#include <stdlib.h>
#include <string.h>

#include "train/step.h"
#include "trainer/step/trainer_impl.h"

static pb_status step(pb_job *j, first_step *out)
{
    pb_step_result r;
    PB_TRY(pb_job_step(j, NULL, 0, &r));
    const pb_trainer *t = j->trainer;
    const void *const from[] = {t->ids, t->targets, t->mask, t->start, t->pos};
    *out = (first_step){.S = r.S, .T = t->T, .loss = r.loss};
    for (int i = 0; i < 5; i++) {
        if (!from[i]) continue;
        out->array[i] = malloc((size_t)t->T * 4);
        if (!out->array[i]) return pb_fail(PB_ENOMEM, "no memory for a batch");
        memcpy(out->array[i], from[i], (size_t)t->T * 4); /* the CPU's device memory is host memory */
    }
    return PB_OK;
}

pb_status first_step_of_train(int argc, char **argv, first_step *out)
{
    pb_job j = {0};
    pb_train_options o = {.command = PB_COMMAND_run};
    *out = (first_step){0};
    PB_TRY(pb_cli_parse(&pb_train_cli, o.command, argc, argv, &o, &o.args));
    pb_status s = pb_job_configure(&o, &j);
    if (s == PB_OK) s = pb_job_open(&j, false);
    if (s == PB_OK) s = step(&j, out);
    pb_job_close(&j);
    return s;
}

void first_step_free(first_step *s)
{
    for (int i = 0; i < 5; i++) free(s->array[i]);
}
