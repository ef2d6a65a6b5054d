/* worker.c - the measuring process: measures the cases of the plan in the order of this process. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/measure/measure.h"
#include "bench/rows/rows.h"
#include "bench/run/process.h"
#include "bench/run/process_state.h"
#include "bench/run/profiled.h"
#include "bench/run/progress.h"
#include "bench/run/rank.h"
#include "bench/run/run_json.h"
#include "bench/suites/suites.h"
#include "kernels/engine/clock.h"
#include "kernels/engine/op.h"
#include "os/interrupt.h"
#include "profiles/ranges.h"

/* Returns the measurement options that the command line gives; 0 or -1: not given. */
static pb_measure_asked measure_asked(const pb_options *o)
{
    return (pb_measure_asked){.warmup = (int)o->warmup,
                              .samples = o->samples < PB_MAX_SAMPLES ? (int)o->samples : PB_MAX_SAMPLES,
                              .min_time = o->min_time};
}

/* Returns ENOMEM if memory ran out, EDEVICE if the device accepts no more work. PB_OK: the failure concerns this case
 * only, and other cases may succeed. */
static pb_status machine_failed(pb_ctx *ctx, pb_status s)
{
    if (s == PB_EDEVICE) return pb_device_check(ctx);
    return s == PB_ENOMEM ? s : PB_OK;
}

/* Prints the last failure, on one rank only: what fails on one rank fails on all. Returns `code`. */
static pb_exit complain(const pb_suite_env *env, pb_exit code)
{
    return pb_lockstep_leads(env->lockstep) ? pb_complain(code) : code;
}

/* Marks what is to be measured next. */
static pb_status mark(const pb_suite_env *env, const pb_options *o, pb_place next)
{
    return pb_lockstep_leads(env->lockstep) ? pb_progress_mark(o->child_dir, next) : PB_OK;
}

static pb_exit exit_of(pb_status s) { return s == PB_ENOMEM ? PB_EXIT_NO_MEMORY : PB_EXIT_HARNESS; }

/* Writes the row of a case that failed with status `s`. */
static pb_status fail_case(pb_ctx *ctx, const pb_case *c, pb_status s, pb_emitter *emitter)
{
    char why[400];
    const pb_status machine = machine_failed(ctx, s);
    snprintf(why, sizeof why, "%s", pb_error());
    if (pb_emit_outcome(emitter, c, s == PB_EUNSUPPORTED ? PB_ROW_UNSUPPORTED : PB_ROW_FAILED, why) != PB_OK)
        return PB_EIO;
    return machine == PB_OK ? PB_OK : pb_fail(machine, "%s: %s", c->key, why);
}

/* Measures one case and writes its rows, or one row with the reason of a failure. EIO: rows cannot be written, or a
 * rank is gone. EDEVICE:
 * the device is lost. ENOMEM: the case ran out of memory. */
static pb_status measure(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    const pb_suite *suite = pb_suite_find(c->suite);
    const char *impl = pb_case_get(c, "impl"), *prefer = pb_case_get(c, "prefer");
    env->emitter->truncated = false;
    env->emitter->control = pb_key_is_control(c->key);
    ctx->impl = impl;
    ctx->prefer = prefer;
    /* keys are kept for listeners, which need names that stay valid; without a listener none is kept */
    const char *key = pb_ranges_on ? pb_range_name(c->key) : NULL;
    pb_range_push(PB_RANGE_suite, suite->name, PB_RANGE_NO_VALUE);
    pb_range_push(PB_RANGE_case, key ? key : c->name, PB_RANGE_NO_VALUE);
    pb_status s = pb_lockstep_end(env->lockstep, suite->run(ctx, c, env));
    pb_range_pop();
    pb_range_pop();
    ctx->impl = ctx->prefer = NULL;
    env->emitter->control = false;
    if (env->emitter->write_failed || (env->lockstep && env->lockstep->broken)) return PB_EIO;
    if (s != PB_OK) return fail_case(ctx, c, s, env->emitter);
    if (pb_interrupted() && !env->emitter->truncated)
        return pb_emit_outcome(env->emitter, c, PB_ROW_TRUNCATED, "interrupted");
    return PB_OK;
}

/* The pace of this process: elapsed time divided by expected time. has_time() uses it to decide whether a case would
 * end before the deadline. The first case always runs; otherwise a small budget would never make progress. */
typedef struct pace {
    double began, expected; /* began: start time; expected: expected seconds of the cases measured so far */
} pace;

static bool has_time(const pb_options *o, const pb_plan *plan, const pb_case *c, pace *p)
{
    const double now = pb_clock_seconds(), expect = pb_plan_expect(plan, c);
    const double slower = p->expected > 0 ? (now - p->began) / p->expected : 1;
    const bool first = !(p->expected > 0);
    p->expected += expect;
    return first || !(o->child_deadline > 0) || now + expect * (slower > 1 ? slower : 1) < o->child_deadline;
}

/* A case that hung in HANGS processes of a run is skipped in all later ones. */
enum { HANGS = 2 };

/* Counts in hung[i] the earlier processes in which case i hung or was skipped; both have status timeout. */
static void count_hang(const pb_plan *plan, const pb_row *r, int process, int *hung)
{
    if (r->process >= process || r->status != PB_ROW_TIMEOUT) return;
    for (int i = 0; i < plan->n; i++) hung[i] += strcmp(plan->cases[i].key, r->key) == 0;
}

/* If row `i` says that an earlier process took long to check a case, remembers what it found. */
static pb_status take_check(const pb_table *t, size_t i, pb_emitter *emitter)
{
    const pb_row *r = &t->rows[i];
    if (r->process >= emitter->process || strcmp(r->metric, "gradient_check_time") != 0 || r->status != PB_ROW_OK)
        return PB_OK;
    for (size_t k = 0; k < t->n; k++) {
        const pb_row *error = &t->rows[k];
        if (error->process == r->process && error->status == PB_ROW_OK && strcmp(error->key, r->key) == 0 &&
            strcmp(error->metric, "gradient_error") == 0)
            return pb_emitter_checked(emitter, r->key, error->value, (int)r->process, r->value);
    }
    return PB_OK;
}

/* Reads what earlier processes of this run left: the values of this process number, needed by the conclusions, the
 * number of hangs per case, and checks that took long. */
static pb_status restore(const pb_options *o, const pb_plan *plan, pb_emitter *emitter, int *hung)
{
    pb_table t;
    if (o->child_first <= 0 && emitter->process == 0) return PB_OK;
    PB_TRY(pb_table_read(o->child_dir, &t));
    pb_status s = PB_OK;
    for (size_t i = 0; i < t.n && s == PB_OK; i++) {
        count_hang(plan, &t.rows[i], emitter->process, hung);
        if (strcmp(t.rows[i].run_id, emitter->run_id) == 0) s = take_check(&t, i, emitter);
        if (s == PB_OK && t.rows[i].process == emitter->process && strcmp(t.rows[i].run_id, emitter->run_id) == 0)
            s = pb_emitter_restore(emitter, &t.rows[i]);
    }
    pb_table_free(&t);
    return s;
}

static pb_status skip(const pb_case *c, pb_emitter *emitter)
{
    return pb_emit_outcome(emitter, c, PB_ROW_TIMEOUT, "not tried again: it hung in two earlier processes");
}

static pb_exit conclude(pb_ctx *ctx, const pb_plan *plan, const pb_suite_env *env, const pb_options *o)
{
    pb_emitter *emitter = env->emitter;
    const bool timed = !o->counters;                                              /* conclusions follow from times */
    pb_status s = timed ? pb_ratios_conclude(emitter, plan->suite->name) : PB_OK; /* requirements may judge a ratio */
    if (s == PB_OK && timed && plan->suite->conclude) s = plan->suite->conclude(ctx, emitter);
    if (pb_interrupted()) return PB_EXIT_HARNESS;
    if (s == PB_OK)
        return mark(env, o, (pb_place){emitter->process + 1, 0}) == PB_OK ? PB_EXIT_OK : complain(env, PB_EXIT_HARNESS);
    if (emitter->write_failed) return complain(env, PB_EXIT_HARNESS);
    s = machine_failed(ctx, s);
    return complain(env, s == PB_OK ? PB_EXIT_INCOMPARABLE : exit_of(s));
}

/* The cases of `order` that this process measures are [child_first, end). A process of a suite whose cases are measured
 * alone measures one; the process after the last case only concludes. */
static int end_of(const pb_options *o, const pb_plan *plan)
{
    return plan->suite->alone && o->child_first < plan->n ? (int)o->child_first + 1 : plan->n;
}

/* Measures a case, in a window of its own if the process records a trace. */
static pb_status measure_recorded(pb_ctx *ctx, const pb_case *c, int number, const pb_suite_env *env)
{
    pb_profiled_begin_case(env->profiled, number, c->key);
    const pb_status s = measure(ctx, c, env);
    pb_profiled_end_case(env->profiled, ctx);
    return s;
}

/* Measures this process's cases of `order`. */
static pb_exit measure_each(pb_ctx *ctx, const pb_options *o, const pb_plan *plan, const int *order, const int *hung,
                            const pb_suite_env *env)
{
    pace p = {pb_clock_seconds(), 0};
    pb_exit code = PB_EXIT_OK;
    for (int i = (int)o->child_first; i < end_of(o, plan); i++) {
        const pb_case *c = &plan->cases[order[i]];
        bool go = has_time(o, plan, c, &p);
        if (pb_lockstep_begin(env->lockstep, &go) != PB_OK) return complain(env, PB_EXIT_HARNESS);
        if (!go) {
            pb_heartbeat_send(env->heartbeat, PB_SAYS_OUT_OF_TIME);
            return PB_EXIT_HARNESS;
        }
        pb_time_slice_case(env->time_slice, i);
        if (pb_interrupted()) return PB_EXIT_HARNESS;
        pb_heartbeat_send(env->heartbeat, PB_SAYS_BEGIN);
        const pb_status s = hung[order[i]] < HANGS ? measure_recorded(ctx, c, i + 1, env) : skip(c, env->emitter);
        if (s == PB_ENOMEM) { /* the case's row has the reason; smaller cases may still fit into memory */
            code = complain(env, PB_EXIT_NO_MEMORY);
            pb_heartbeat_send(env->heartbeat, PB_SAYS_NO_MEMORY);
        }
        if (s != PB_OK && s != PB_ENOMEM) return complain(env, PB_EXIT_HARNESS);
        if (pb_interrupted()) return PB_EXIT_HARNESS;
        if (mark(env, o, (pb_place){env->emitter->process, i + 1}) != PB_OK) return complain(env, PB_EXIT_HARNESS);
    }
    return code;
}

static pb_exit measure_all(pb_ctx *ctx, const pb_options *o, const pb_plan *plan, const pb_suite_env *env)
{
    pb_exit code = PB_EXIT_HARNESS;
    int *order = malloc((size_t)plan->n * sizeof *order), *hung = calloc((size_t)plan->n, sizeof *hung);
    if (!order || !hung) pb_fail(PB_ENOMEM, "no memory for %d cases", plan->n), complain(env, code);
    else if (restore(o, plan, env->emitter, hung) != PB_OK) complain(env, code);
    else {
        pb_plan_order(plan, (uint64_t)o->child_seed, env->emitter->process, order);
        code = measure_each(ctx, o, plan, order, hung, env);
    }
    free(order);
    free(hung);
    if (code == PB_EXIT_HARNESS || (plan->suite->alone && o->child_first < plan->n)) return code;
    pb_heartbeat_send(env->heartbeat, PB_SAYS_BEGIN);
    return pb_worse_exit(code, conclude(ctx, plan, env, o));
}

static pb_exit with_plan(pb_ctx *ctx, const pb_options *o, const pb_suite_env *env)
{
    const pb_suite *suite = pb_suite_find(o->suite);
    const pb_plan_request request = pb_options_plan(o);
    pb_plan plan;
    const pb_status s = suite ? pb_plan_make(ctx, suite, &request, &plan) : PB_EINVAL;
    if (s != PB_OK) return pb_lockstep_leads(env->lockstep) ? pb_complain_of(s) : (pb_exit)pb_status_exit(s);
    pb_exit code = measure_all(ctx, o, &plan, env);
    pb_plan_free(&plan);
    return code;
}

/* Opens the counters of --counters, which need the device's context. */
static pb_exit with_group(pb_ctx *ctx, const pb_options *o, const pb_suite_env *env)
{
    if (!o->counters) return with_plan(ctx, o, env);
    pb_group_counter *group = calloc(1, sizeof *group);
    pb_suite_env counted = *env;
    const pb_status s =
        group ? pb_group_counter_open(o->counters, ctx, group) : pb_fail(PB_ENOMEM, "no memory for counts");
    pb_exit code = s == PB_OK ? PB_EXIT_OK : pb_complain_of(s);
    if (s == PB_OK) {
        counted.group = group;
        code = with_plan(ctx, o, &counted);
        pb_group_counter_close(group);
    }
    free(group);
    return code;
}

/* Opens the device, and between ranks the communicator; measures; closes both. */
static pb_exit with_open_device(const pb_options *o, pb_backend_id device, pb_rank *rank, const pb_suite_env *env)
{
    pb_ctx ctx;
    const pb_status s = rank ? pb_rank_open_device(rank, device, &ctx) : pb_ctx_open(&ctx, device, 0);
    if (s != PB_OK) return complain(env, rank ? (pb_exit)pb_status_exit(s) : PB_EXIT_HARNESS);
    const pb_exit code = with_group(&ctx, o, env);
    if (rank) pb_rank_close_device(rank, &ctx);
    else pb_ctx_close(&ctx);
    return code;
}

/* Begins the trace, if one is recorded, before the device is opened, because CUPTI must be attached by then. A trace
 * that cannot be written does not change what was measured: the failure is reported at the end. */
static pb_exit with_device(const pb_options *o, pb_backend_id device, pb_rank *rank, const pb_suite_env *env)
{
    pb_profiled profiled;
    pb_suite_env recorded = *env;
    const pb_status s = pb_profiled_open(o, device, &profiled);
    if (s != PB_OK) return pb_complain_of(s);
    recorded.profiled = &profiled;
    const pb_exit code = with_open_device(o, device, rank, &recorded);
    return pb_profiled_close(&profiled) == PB_OK ? code : pb_worse_exit(code, pb_complain(PB_EXIT_HARNESS));
}

/* Judges the samples if other work on the CPUs counts (contention.h). */
static pb_exit with_contention(const pb_options *o, pb_backend_id device, pb_rank *rank, const pb_suite_env *env)
{
    pb_contention contention;
    pb_suite_env judged = *env;
    if (!rank && pb_samples_are_judged(o, device, &contention)) judged.contention = &contention;
    return with_device(o, device, rank, &judged);
}

/* Opens the device only in this process's time slice, so that it does not disturb the other process. counter NULL:
 * times are measured. */
static pb_exit with_time_slices(const pb_options *o, pb_backend_id device, pb_heartbeat *heartbeat, pb_rank *rank,
                                pb_emitter *emitter, pb_instruction_counter *counter)
{
    pb_time_slices slices;
    const pb_status s = pb_time_slice_open(o->child_time_slice, (int)o->child_first, o->threads, heartbeat, &slices);
    if (s != PB_OK) return pb_complain_of(s);
    pb_slowdown slowdown = {.share = o->child_slowdown};
    const pb_suite_env env = {.emitter = emitter,
                              .asked = measure_asked(o),
                              .heartbeat = heartbeat,
                              .time_slice = &slices,
                              .counter = counter,
                              .lockstep = rank ? &rank->lockstep : NULL,
                              .slowdown = &slowdown};
    const pb_exit code = with_contention(o, device, rank, &env);
    pb_time_slice_close(&slices);
    return code;
}

static pb_exit with_counter(const pb_options *o, pb_backend_id device, pb_heartbeat *heartbeat, pb_rank *rank,
                            pb_emitter *emitter)
{
    pb_instruction_counter counter;
    if (!o->instructions) return with_time_slices(o, device, heartbeat, rank, emitter, NULL);
    const pb_status s = pb_instructions_open(o->instructions, o->child_dir, &counter);
    if (s != PB_OK) return pb_complain_of(s);
    const pb_exit code = with_time_slices(o, device, heartbeat, rank, emitter, &counter);
    pb_instructions_close(&counter);
    return code;
}

static pb_exit with_emitter(const pb_options *o, pb_heartbeat *heartbeat, pb_rank *rank)
{
    pb_backend_id device;
    pb_emitter emitter;
    const bool leads = !rank || pb_lockstep_leads(&rank->lockstep);
    if (pb_options_backend(o, &device) != PB_OK) return pb_complain(PB_EXIT_USAGE);
    if ((leads ? pb_emitter_open(o->child_dir, &emitter) : pb_emitter_open_silent(&emitter)) != PB_OK)
        return pb_complain(PB_EXIT_HARNESS);
    emitter.run_id = o->child_run, emitter.machine_id = o->child_machine, emitter.host = o->child_host;
    emitter.commit = pb_run_commit();
    emitter.process = (int)o->child_process;
    emitter.profiled = o->profile_out != NULL;
    const pb_exit code = with_counter(o, device, heartbeat, rank, &emitter);
    pb_emitter_close(&emitter);
    return code;
}

/* Measures as one of several ranks. Only rank 0 sends heartbeats to the supervisor. */
static pb_exit measure_as_rank(const pb_options *o, pb_heartbeat *heartbeat)
{
    pb_rank rank = {.joined = false};
    const pb_status s = pb_rank_join(o, &rank);
    pb_exit code = s == PB_OK ? PB_EXIT_OK : (pb_exit)pb_status_exit(s);
    if (s != PB_OK && pb_world_speaks(rank.lockstep.world)) pb_complain(code);
    if (s == PB_OK && pb_lockstep_leads(&rank.lockstep))
        heartbeat->fd = open(o->child_ranks_pipe, O_WRONLY | O_CLOEXEC);
    if (s == PB_OK) code = with_emitter(o, heartbeat, &rank);
    return (pb_exit)pb_rank_leave(&rank, (int)code);
}

pb_exit pb_process_child(const pb_options *o)
{
    /* Several heartbeats fit into the shortest silence that the parent tolerates. */
    pb_heartbeat heartbeat = {.fd = (int)o->child_pipe, .every = pb_least_silence(o) / 8, .last = pb_clock_seconds()};
    pb_interrupt_watch();
    if (heartbeat.fd >= 0)
        fcntl(heartbeat.fd, F_SETFD, FD_CLOEXEC); /* a child of this process must not keep the pipe open */
    return o->child_ranks_pipe ? measure_as_rank(o, &heartbeat) : with_emitter(o, &heartbeat, NULL);
}
