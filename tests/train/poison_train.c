/* poison_train.c - makes an optimizer step fail. The program train_poisoned is `train` linked with this wrapper: in
 * step number PB_POISON (an environment variable) element 5 of the momentum of layers.1.o is NaN. The next step begins
 * with the value of before, so the fault is transient. PB_POISON_RANK: only on this rank [all]. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/step.h"

/* The linker's --wrap option prescribes these reserved names. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
pb_status __real_pb_job_step(pb_job *j, pb_graphs *g, double lr, pb_step_result *out);
pb_status __wrap_pb_job_step(pb_job *j, pb_graphs *g, double lr, pb_step_result *out);

pb_status __wrap_pb_job_step(pb_job *j, pb_graphs *g, double lr, pb_step_result *out)
{
    static int step;
    static float was;
    const float nan = NAN;
    const char *at = getenv("PB_POISON");
    const char *only = getenv("PB_POISON_RANK");
    const int poisoned = at && (!only || atoi(only) == j->rank) ? atoi(at) : 0;
    const pb_model *m = pb_trainer_model(j->trainer);
    float *where = NULL;
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->params[i].name, "layers.1.o") == 0) where = (float *)m->params[i].m + 5;
    if (!where || !poisoned) return __real_pb_job_step(j, g, lr, out);
    step++;
    if (step == poisoned) {
        PB_TRY(pb_download(&j->ctx, &was, where, sizeof was));
        PB_TRY(pb_upload(&j->ctx, where, &nan, sizeof nan));
    } else if (step == poisoned + 1) PB_TRY(pb_upload(&j->ctx, where, &was, sizeof was));
    return __real_pb_job_step(j, g, lr, out);
}
/* NOLINTEND(bugprone-reserved-identifier) */
