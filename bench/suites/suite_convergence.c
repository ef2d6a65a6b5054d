/* suite_convergence.c - trains for some steps and emits losses: after the first step, after step 50 and after the last.
 *
 * Nothing is timed. The losses are exact counters (metrics.def): one run is compared with stored values, and a loss
 * that is higher by more than rounding explains fails a comparison on any machine. The run is that of `train` with the
 * same options: learning rate by default, a linear warm-up of 3 % and a cosine, conversations in batches one after the
 * other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/suites/own_input.h"
#include "bench/suites/suite.h"
#include "bench/suites/train_case.h"
#include "os/interrupt.h"
#include "trainer/step/schedule.h"

enum { MIDDLE = 50, WINDOW = 10, LEAST_STEPS = 2 * WINDOW };

/* The losses of the first steps, of step MIDDLE and of the last ones. */
typedef struct course {
    int done;
    double first, middle, last; /* NaN: there was no such step */
    double begin, end;          /* means of the first and of the last WINDOW losses */
} course;

static pb_status steps_of(const pb_case *c, int *out)
{
    long steps;
    PB_TRY(pb_case_int(c, "steps", &steps));
    if (steps < LEAST_STEPS || steps > 1000000)
        return pb_fail(PB_EINVAL, "axis steps=%ld: need %d to 1000000", steps, LEAST_STEPS);
    *out = (int)steps;
    return PB_OK;
}

/* The configuration of `train`: adapters begin with B = 0, and rows of own data are as long as axis seq says. */
static pb_status config(const pb_case *c, pb_train_config *cfg)
{
    PB_TRY(pb_train_case_config(c, cfg));
    cfg->model.random_b = false;
    return PB_OK;
}

static pb_schedule schedule_of(const pb_train_config *cfg, int steps)
{
    return (pb_schedule){.kind = PB_SCHEDULE_COSINE,
                         .lr = pb_default_lr(cfg->model.tuning, cfg->model.rank),
                         .min = 1e-6,
                         .warmup = (long)(0.03 * steps),
                         .steps = steps};
}

static void note_loss(course *x, int step, int steps, double loss)
{
    if (step == 0) x->first = loss;
    if (step + 1 == MIDDLE) x->middle = loss;
    if (step + 1 == steps) x->last = loss;
    if (step < WINDOW) x->begin += loss / WINDOW;
    if (step >= steps - WINDOW) x->end += loss / WINDOW;
    x->done = step + 1;
}

/* Trains; ends early after an interrupt. The step is recorded as a graph with axis mode=graph, after the first one. */
static pb_status train(pb_ctx *ctx, pb_case_text *text, pb_trainer *t, bool graphed, int steps, const pb_suite_env *env,
                       course *x)
{
    const pb_schedule schedule = schedule_of(pb_trainer_config(t), steps);
    pb_graph *graph = NULL;
    pb_status s = PB_OK;
    double loss;
    *x = (course){.first = (double)NAN, .middle = (double)NAN, .last = (double)NAN};
    for (int step = 0; s == PB_OK && step < steps && !pb_interrupted(); step++) {
        s = pb_case_text_batch(text, t, (size_t)step);
        if (s == PB_OK) s = pb_trainer_set_lr(t, (float)pb_schedule_lr(&schedule, step));
        if (s == PB_OK && step == 1 && graphed) s = pb_record(ctx, pb_train_step, t, &graph);
        if (s == PB_OK) s = graph ? pb_replay(ctx, graph) : pb_train_step(ctx, t);
        if (s == PB_OK) s = pb_trainer_loss(t, &loss);
        if (s == PB_OK) note_loss(x, step, steps, loss);
        pb_heartbeat_send_if_due(env->heartbeat);
    }
    if (graph) pb_graph_free(ctx, graph);
    return s;
}

/* Judges the run: no step was skipped, and the loss fell. Sets the note of the first loss if a pretrained model knows
 * less about the text than nothing. */
static void judge(const pb_case *c, const pb_trainer *t, const course *x, double skipped, pb_check *run,
                  pb_check *first)
{
    const double uniform = log((double)pb_trainer_config(t)->model.geometry->V);
    const bool pretrained = c->own && c->own->in.path;
    *run = *first = (pb_check){.status = PB_ROW_OK};
    if (skipped > 0) *run = (pb_check){.status = PB_ROW_WRONG};
    if (skipped > 0) snprintf(run->note, sizeof run->note, "%.0f steps were skipped", skipped);
    else if (!(x->end < x->begin)) {
        run->status = PB_ROW_WRONG;
        snprintf(run->note, sizeof run->note, "the mean loss of the last %d steps is %.4f, of the first %.4f", WINDOW,
                 x->end, x->begin);
    }
    if (pretrained && !(x->first <= uniform)) {
        first->status = PB_ROW_WRONG;
        snprintf(
            first->note, sizeof first->note,
            "above ln V = %.3f, the loss of equal probabilities: another tokenizer or template, or damaged weights",
            uniform);
    }
}

static pb_status emit(const pb_case *c, pb_trainer *t, const course *x, pb_emitter *e)
{
    pb_adamw_state state;
    pb_check run, first;
    PB_TRY(pb_trainer_state(t, &state));
    judge(c, t, x, state.skipped, &run, &first);
    PB_TRY(pb_emit(e, c, "first_loss", x->first, 0, first.status, first.note));
    if (!isnan(x->middle)) PB_TRY(pb_emit(e, c, "loss_at_50", x->middle, 0, run.status, run.note));
    PB_TRY(pb_emit(e, c, "last_loss", x->last, 0, run.status, run.note));
    return pb_emit(e, c, "skipped_steps", state.skipped, 0, run.status, run.note);
}

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_train_config cfg;
    pb_trainer *t;
    course x = {0};
    int steps = 0;
    PB_TRY(steps_of(c, &steps));
    PB_TRY(config(c, &cfg));
    PB_TRY(pb_train_case_trainer(ctx, c, &cfg, &t));
    pb_case_text *text = NULL;
    pb_status s = pb_case_text_open(c, pb_trainer_config(t), &text);
    if (s == PB_OK) s = train(ctx, text, t, pb_train_case_graph(c), steps, env, &x);
    if (s == PB_OK && x.done == steps) s = emit(c, t, &x, env->emitter);
    else if (s == PB_OK)
        s = pb_emit(env->emitter, c, "last_loss", (double)NAN, 0, PB_ROW_TRUNCATED, "interrupted before the last step");
    pb_case_text_close(text);
    pb_trainer_close(t);
    return s;
}

static pb_status check(const pb_case *c)
{
    int steps;
    PB_TRY(steps_of(c, &steps));
    return pb_train_case_check(c);
}

static double expect(const pb_case *c)
{
    int steps = 0;
    return steps_of(c, &steps) == PB_OK ? 1 + 4 * steps * pb_train_case_seconds(c) : 0;
}
static double device_expect(const pb_case *c)
{
    int steps = 0;
    return steps_of(c, &steps) == PB_OK ? pb_train_case_device_seconds(c) + steps * pb_train_case_device_step(c) : 0;
}

static const char *const grid[] = {"tuning=full,lora,qlora", "tuning=full moments=bf16,8bit",
                                   "tuning=qlora nf4-scales=8bit", NULL};
static const char *const device_grid[] = {"tuning=full,lora,qlora",
                                          "tuning=full moments=bf16,8bit",
                                          "tuning=qlora nf4-scales=8bit",
                                          "tuning=lora,qlora model=qwen2.5-0.5b dtype=bf16 seq=512",
                                          "tuning=qlora model=qwen2.5-0.5b dtype=bf16 seq=512 nf4-scales=8bit",
                                          "tuning=full model=qwen2.5-0.5b dtype=bf16 seq=512 moments=f32,bf16,8bit",
                                          NULL};

const pb_suite pb_suite_convergence = {
    .name = "convergence",
    .what = "losses of a training run of 200 steps, compared with stored ones; nothing is timed",
    .own_input = true,
    .untimed = true,
    .axes = "attention= dtype=f32 layers=0 loss-chunk= model=tiny nf4-scales= pack= rank=16 recompute= targets=q+v "
            "batch=4 clip=multi guard= iteration= mode=eager moments= optimizer= seq=64 steps=200 tuning=lora",
    .omitted = PB_TRAIN_AXES_OMITTED " moments=f32 optimizer=adamw",
    .grid = grid,
    .device_grid = device_grid,
    .check = check,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
};
