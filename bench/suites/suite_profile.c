/* suite_profile.c - what recording costs: one range, and one training step, at each level of recording
 * (profile_level.h), on one rank or several (profile_ranks.h). Every case is measured in a process of its own, so that
 * no process has been of two levels; the ratios to level off are of processes that have one process number, and so ran
 * within a minute of each other. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/suites/profile_level.h"
#include "bench/suites/profile_ranks.h"
#include "bench/suites/range_cost.h"
#include "bench/suites/suite.h"
#include "bench/suites/train_case.h"
#include "kernels/engine/op.h"

static bool is_range(const pb_case *c) { return strcmp(c->name, "range") == 0; }

static bool no_tsc(const pb_case *c)
{
    const char *clock = pb_case_get(c, "clock");
    return clock && strcmp(clock, "gettime") == 0;
}

/* ---- which cases there are ------------------------------------------------------------------------------ */

static pb_status check_range(const pb_case *c, pb_level level)
{
    const char *clock = pb_case_get(c, "clock");
    if (pb_case_get(c, "ranks")) return pb_fail(PB_EINVAL, "case range has one rank: leave out --ranks, or name step");
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->axes[i].name, "level") != 0 && strcmp(c->axes[i].name, "clock") != 0 &&
            strcmp(c->axes[i].name, PB_CONTROL_AXIS) != 0)
            return pb_fail(PB_EINVAL, "case range has no axis %s", c->axes[i].name);
    if (level > PB_LEVEL_ring || level == PB_LEVEL_attached)
        return pb_fail(PB_EINVAL, "case range: level=off, nvtx or ring; CUPTI records no ranges");
    if ((level == PB_LEVEL_ring) != (clock != NULL))
        return pb_fail(PB_EINVAL, "case range: level=ring needs clock=tsc or gettime, other levels read no clock");
    if (clock && strcmp(clock, "tsc") != 0 && strcmp(clock, "gettime") != 0)
        return pb_fail(PB_EINVAL, "clock=%.40s: need tsc or gettime", clock);
    return PB_OK;
}

static pb_status check(const pb_case *c)
{
    pb_level level;
    PB_TRY(pb_level_find(pb_case_get(c, "level"), &level));
    if (is_range(c)) return check_range(c, level);
    if (strcmp(c->name, "step") != 0) return pb_fail(PB_EINVAL, "suite profile has no case '%s'", c->name);
    if (pb_case_get(c, "clock")) return pb_fail(PB_EINVAL, "case step has no axis clock");
    PB_TRY(pb_train_case_check(c));
    if (level == PB_LEVEL_activity && pb_train_case_graph(c))
        return pb_fail(PB_EINVAL, "level=activity is that of an eager step; of a graph, its nodes are recorded");
    if (level > PB_LEVEL_activity && !pb_train_case_graph(c))
        return pb_fail(PB_EINVAL, "level=%s: only mode=graph has graphs", pb_case_get(c, "level"));
    return pb_profile_ranks_check(c, level);
}

/* ---- one range ------------------------------------------------------------------------------------------ */

/* Emits the requirement of a range's cost. */
static pb_status judge_range(const pb_case *c, pb_emitter *e, const pb_levelled *l, double seconds)
{
    if (l->level == PB_LEVEL_off)
        return pb_requirement_emit(e, "NVTX-RANGE", NULL, 0, seconds, true, "one range, nothing listens");
    if (l->level != PB_LEVEL_ring) return PB_OK;
    if (no_tsc(c)) return pb_requirement_emit(e, "RANGE-RING-CLOCK", NULL, 0, seconds, true, "one range in the ring");
    return pb_requirement_emit(e, "RANGE-RING-TSC", NULL, 0, seconds, l->tsc, "one range in the ring");
}

static pb_status measure_range(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, pb_levelled *l)
{
    const pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    char note[96] = "";
    pb_timing *t = malloc(sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_status s = pb_range_cost(ctx, &o, t);
    const pb_status ended = pb_level_end(ctx, l);
    if (s == PB_OK) s = ended;
    if (s == PB_OK && l->level == PB_LEVEL_ring) {
        if (!no_tsc(c) && !l->tsc) s = pb_fail(PB_EUNSUPPORTED, "clock=tsc: this processor's counter is not invariant");
        snprintf(note, sizeof note, "%zu ranges were written", l->ranges);
    }
    if (s == PB_OK) s = pb_emit_timing(env->emitter, c, "range_time", t, note);
    if (s == PB_OK && t->n) s = judge_range(c, env->emitter, l, t->median);
    if (s == PB_OK && l->level == PB_LEVEL_ring) {
        s = pb_clock_cost(ctx, &o, l->tsc, t);
        if (s == PB_OK) s = pb_emit_timing(env->emitter, c, "clock_time", t, "the two readings of the clock in it");
    }
    free(t);
    return s;
}

/* ---- one training step ---------------------------------------------------------------------------------- */

static pb_status emit_step(const pb_case *c, pb_trainer *t, pb_emitter *e, const pb_timing *timing,
                           const pb_levelled *l)
{
    char note[160] = "";
    double loss;
    if (l->ranges) snprintf(note, sizeof note, "%zu ranges, %zu records of the GPU", l->ranges, l->records);
    if (l->samples) snprintf(note + strlen(note), sizeof note - strlen(note), ", %zu samples", l->samples);
    if (l->dropped) {
        snprintf(note, sizeof note, "%zu records or samples of the GPU were lost: a complete recording costs more",
                 l->dropped);
        return pb_emit(e, c, "step_time", (double)NAN, 0, PB_ROW_FAILED, note);
    }
    PB_TRY(pb_emit_timing(e, c, "step_time", timing, note));
    PB_TRY(pb_trainer_loss(t, &loss));
    return pb_emit(e, c, "loss", loss, 0, isfinite(loss) ? PB_ROW_OK : PB_ROW_WRONG,
                   isfinite(loss) ? "" : "not finite");
}

static pb_status measure_step(pb_ctx *ctx, const pb_case *c, pb_trainer *t, const pb_suite_env *env, pb_levelled *l)
{
    pb_measure_opts o =
        pb_env_measure_opts(env, (pb_measure_opts){.warmup = 3, .min_samples = 10, .max_samples = 400, .min_time = 1});
    pb_timing *timing = malloc(sizeof *timing);
    if (!timing) return pb_fail(PB_ENOMEM, "no memory for samples");
    o.graph = pb_train_case_graph(c);
    pb_status s = pb_measure(ctx, pb_train_step, t, &o, timing);
    const pb_status ended = pb_level_end(ctx, l);
    if (s == PB_OK) s = ended;
    if (s == PB_OK && timing->n) s = emit_step(c, t, env->emitter, timing, l);
    free(timing);
    return s;
}

static pb_status run_step(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, pb_levelled *l)
{
    pb_trainer *t;
    pb_status s = pb_train_case_open(ctx, c, &t);
    if (s != PB_OK) return (void)pb_level_end(ctx, l), s;
    s = measure_step(ctx, c, t, env, l);
    pb_trainer_close(t);
    return s;
}

/* The level begins before the trainer is opened: CUPTI names the op of a graph's node only if it saw the capture. */
static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_level level;
    pb_levelled l;
    PB_TRY(pb_level_find(pb_case_get(c, "level"), &level));
    if (env->lockstep) return pb_profile_ranks_run(ctx, c, env, level);
    PB_TRY(pb_level_begin(ctx, level, no_tsc(c), &l));
    return is_range(c) ? measure_range(ctx, c, env, &l) : run_step(ctx, c, env, &l);
}

/* ---- the suite: grids, estimates ------------------------------------------------------------------------ */

static double expect(const pb_case *c) { return is_range(c) ? 0.5 : 1.3 + 20 * pb_train_case_seconds(c); }

static double device_expect(const pb_case *c) { return is_range(c) ? 1 : 2.5 + pb_train_case_device_seconds(c); }

#define RANGES "range level=off,nvtx", "range level=ring clock=tsc,gettime"
/* A graph that a GPU replays has one range, so level nvtx would show nothing there. */
#define EAGER(axes)        "step level=off,nvtx,attached,ring,activity mode=eager " axes
#define ON_CPUS(axes)      EAGER(axes), "step level=off,nvtx,attached,ring,nodes mode=graph " axes
#define ON_GPUS(axes)      EAGER(axes), "step level=off,attached,ring,graphs,nodes,sampled mode=graph " axes
#define COMMON             " clip=multi layers=0 rank=16 targets=q+v tuning=qlora"
#define SMALL              "batch=1 dtype=f32 model=tiny seq=128" COMMON
#define SMALL_FULL         "batch=1,4 dtype=f32,bf16 model=tiny seq=32,128" COMMON
#define LARGE              "batch=4 dtype=bf16 model=qwen2.5-1.5b seq=512" COMMON
#define LARGE_FULL         "batch=1,4 dtype=bf16 model=qwen2.5-0.5b,qwen2.5-1.5b seq=128,512" COMMON
#define BOTH_RANKS(levels) "step recorders=first,all level=" levels
static const char *const grid[] = {RANGES, ON_CPUS(SMALL), NULL};
static const char *const full_grid[] = {RANGES, ON_CPUS(SMALL_FULL), NULL};
static const char *const device_grid[] = {RANGES, ON_GPUS(LARGE), NULL};
static const char *const device_full_grid[] = {RANGES, ON_GPUS(LARGE_FULL), NULL};

static const char *const ranks_grid[] = {"step level=off mode=eager,graph " SMALL,
                                         BOTH_RANKS("ring mode=eager,graph ") SMALL, NULL};
static const char *const device_ranks_grid[] = {
    "step level=off mode=eager,graph " LARGE, BOTH_RANKS("attached,ring,activity mode=eager ") LARGE,
    BOTH_RANKS("attached,ring,graphs,nodes,sampled mode=graph ") LARGE, NULL};

const pb_suite pb_suite_profile = {
    .name = "profile",
    .what = "what recording costs: a profiler range, and a training step at each level of recording",
    .ranks = true,
    .alone = true,
    /* The axes of a training step have no defaults, because case range has none of them. */
    .axes =
        "level=off clock= recorders= attention= batch= clip= dtype= layers= mode= model= rank= seq= targets= tuning=",
    .grid = grid,
    .full_grid = full_grid,
    .device_grid = device_grid,
    .device_full_grid = device_full_grid,
    .ranks_grid = ranks_grid,
    .device_ranks_grid = device_ranks_grid,
    .check = check,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
};
