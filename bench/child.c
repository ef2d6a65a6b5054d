/* child.c - the child's side of a launch: measures the cases of the plan in the launch's order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/commands.h"
#include "bench/launch.h"
#include "bench/progress.h"
#include "bench/read.h"
#include "bench/results.h"
#include "cli/interrupt.h"
#include "kernels/core/clock.h"

/* What was not given stays 0 or -1: the suite decides. */
static pb_measure_opts measure_opts(const pb_options *o)
{
    return (pb_measure_opts){.warmup = (int)o->warmup,
                             .min_samples = o->samples < PB_MAX_SAMPLES ? (int)o->samples : PB_MAX_SAMPLES,
                             .min_time = o->min_time,
                             .slowdown = o->child_slowdown};
}

/* What a failure `s` is that is more than a case's own: ENOMEM, or EDEVICE for a device that takes no more work.
 * PB_OK: the case's own, and others may fare better. */
static pb_status machine_failed(pb_ctx *ctx, pb_status s)
{
    if (s == PB_EDEVICE) return pb_device_check(ctx);
    return s == PB_ENOMEM ? s : PB_OK;
}

static pb_exit exit_of(pb_status s) { return s == PB_ENOMEM ? PB_EXIT_NO_MEMORY : PB_EXIT_HARNESS; }

/* The row of a case that failed with `s`. */
static pb_status fail_case(pb_ctx *ctx, const pb_case *c, pb_status s, pb_sink *sink)
{
    char why[400];
    const pb_status machine = machine_failed(ctx, s);
    snprintf(why, sizeof why, "%s", pb_error());
    if (pb_emit_outcome(sink, c, s == PB_EUNSUPPORTED ? "unsupported" : "failed", why) != PB_OK) return PB_EIO;
    return machine == PB_OK ? PB_OK : pb_fail(machine, "%s: %s", c->key, why);
}

/* One case: its rows, or the one row that says why there are none. EIO: rows cannot be written. EDEVICE: the device is
 * lost. ENOMEM: the case lacked memory. */
static pb_status measure(pb_ctx *ctx, const pb_case *c, pb_sink *sink)
{
    const pb_suite *suite = pb_suite_find(c->suite);
    const char *impl = pb_case_get(c, "impl"), *prefer = pb_case_get(c, "prefer");
    sink->truncated = false;
    ctx->impl = impl;
    ctx->prefer = prefer;
    pb_status s = suite->run(ctx, c, sink);
    ctx->impl = ctx->prefer = NULL;
    if (sink->write_failed) return PB_EIO;
    if (s != PB_OK) return fail_case(ctx, c, s, sink);
    if (pb_interrupted() && !sink->truncated) return pb_emit_outcome(sink, c, "truncated", "interrupted");
    return PB_OK;
}

/* Says that a case begins, or that there is no time for it; a parent that is gone does not matter here. */
static void tell(const pb_options *o, char what)
{
    if (o->child_pipe >= 0 && write((int)o->child_pipe, &what, 1) != 1) return;
}

/* Whether a case can be expected to end before the deadline, at the pace of this process so far; the first one is
 * begun in any case, or a budget that is too small for it would never get on. */
typedef struct pace {
    double began, expected; /* expected: of the cases that were measured */
} pace;

static bool has_time(const pb_options *o, const pb_plan *plan, const pb_case *c, pace *p)
{
    const double now = pb_clock_seconds(), expect = pb_plan_expect(plan, c);
    const double slower = p->expected > 0 ? (now - p->began) / p->expected : 1;
    const bool first = !(p->expected > 0);
    p->expected += expect;
    return first || !(o->child_deadline > 0) || now + expect * (slower > 1 ? slower : 1) < o->child_deadline;
}

/* What an earlier process measured of this launch. */
static pb_status restore(const pb_options *o, pb_sink *sink)
{
    pb_table t;
    if (o->child_first <= 0) return PB_OK;
    PB_TRY(pb_table_read(o->child_dir, &t));
    pb_status s = PB_OK;
    for (size_t i = 0; i < t.n && s == PB_OK; i++)
        if (t.rows[i].launch == sink->launch && strcmp(t.rows[i].run_id, sink->run_id) == 0)
            s = pb_sink_restore(sink, &t.rows[i]);
    pb_table_free(&t);
    return s;
}

static pb_exit conclude(pb_ctx *ctx, const pb_plan *plan, pb_sink *sink, const pb_options *o)
{
    pb_status s = plan->suite->conclude ? plan->suite->conclude(ctx, sink) : PB_OK;
    if (pb_interrupted()) return PB_EXIT_HARNESS;
    if (s == PB_OK)
        return pb_progress_mark(o->child_dir, (pb_place){sink->launch + 1, 0}) == PB_OK ? PB_EXIT_OK
                                                                                        : pb_complain(PB_EXIT_HARNESS);
    if (sink->write_failed) return pb_complain(PB_EXIT_HARNESS);
    s = machine_failed(ctx, s);
    return pb_complain(s == PB_OK ? PB_EXIT_INCOMPARABLE : exit_of(s));
}

static pb_exit measure_all(pb_ctx *ctx, const pb_options *o, const pb_plan *plan, pb_sink *sink)
{
    pace p = {pb_clock_seconds(), 0};
    bool stop = false;
    pb_exit code = PB_EXIT_OK;
    pb_status s = restore(o, sink);
    int *order = malloc((size_t)plan->n * sizeof *order);
    if (!order) s = pb_fail(PB_ENOMEM, "no memory for %d cases", plan->n);
    else pb_plan_order(plan, (uint64_t)o->child_seed, sink->launch, order);
    for (int i = (int)o->child_first; s == PB_OK && i < plan->n; i++) {
        const pb_case *c = &plan->cases[order[i]];
        stop = !has_time(o, plan, c, &p);
        if (stop) tell(o, PB_OUT_OF_TIME);
        if (stop || pb_interrupted()) break;
        tell(o, 'c');
        s = measure(ctx, c, sink);
        if (s == PB_ENOMEM) { /* its row says so, and others may fit */
            code = pb_complain(PB_EXIT_NO_MEMORY);
            s = PB_OK;
        }
        if (s == PB_OK && !pb_interrupted()) s = pb_progress_mark(o->child_dir, (pb_place){sink->launch, i + 1});
    }
    free(order);
    if (s != PB_OK) return pb_complain(PB_EXIT_HARNESS);
    if (stop || pb_interrupted()) return PB_EXIT_HARNESS;
    return pb_worse_exit(code, conclude(ctx, plan, sink, o));
}

static pb_exit with_plan(pb_ctx *ctx, const pb_options *o, pb_sink *sink)
{
    const pb_suite *suite = pb_suite_find(o->suite);
    pb_plan plan;
    if (!suite || pb_plan_make(ctx, suite, o, &plan) != PB_OK) return pb_complain(PB_EXIT_USAGE);
    pb_exit code = measure_all(ctx, o, &plan, sink);
    pb_plan_free(&plan);
    return code;
}

pb_exit pb_launch_child(const pb_options *o)
{
    pb_backend_id device;
    pb_ctx ctx;
    pb_sink sink;
    pb_interrupt_watch();
    if (pb_backend_find(o->device, &device) != PB_OK) return pb_complain(PB_EXIT_USAGE);
    if (pb_sink_open(o->child_dir, &sink) != PB_OK) return pb_complain(PB_EXIT_HARNESS);
    sink.run_id = o->child_run, sink.machine_id = o->child_machine, sink.launch = (int)o->child_launch;
    sink.measure = measure_opts(o);
    pb_exit code = PB_EXIT_HARNESS;
    if (pb_ctx_open(&ctx, device, 0) != PB_OK) pb_complain(code);
    else {
        code = with_plan(&ctx, o, &sink);
        pb_ctx_close(&ctx);
    }
    pb_sink_close(&sink);
    return code;
}
