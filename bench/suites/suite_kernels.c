/* suite_kernels.c - every op: its time, its rate, its roofline fraction with the ceilings of this process, and its
 * error against the reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/measure/measure.h"
#include "bench/suites/kernel_case.h"
#include "bench/suites/suite.h"
#include "kernels/engine/op.h"
#include "os/interrupt.h"

/* Ops with at least this many FLOPs per byte are reported in FLOP/s, all others in B/s. */
static const double flops_per_byte = 16;

/* ---- binding one call to its tensors --------------------------------------------------------------------- */

typedef struct call {
    const pb_op *op;
    void *args;
    pb_binder b;
    void *saved[PB_MAX_BOUND]; /* copies, in device memory, of the tensors that the op reads and writes */
} call;

static size_t bytes_of(const pb_bound *t)
{
    return t->rows ? ((t->rows - 1) * t->ld + t->cols) * pb_dtype_size(t->dtype) : 0;
}

static void call_close(call *c)
{
    for (int i = 0; i < c->b.n; i++) pb_release(c->b.ctx, c->saved[i]);
    pb_unbind(&c->b);
    free(c->args);
}

static pb_status save(call *c)
{
    for (int i = 0; i < c->b.n; i++) {
        const pb_bound *t = &c->b.t[i];
        if (t->role != PB_ROLE_INOUT) continue;
        PB_TRY(pb_alloc(c->b.ctx, bytes_of(t), &c->saved[i]));
        PB_TRY(pb_copy(c->b.ctx, c->saved[i], t->p, bytes_of(t)));
    }
    return PB_OK;
}

/* Restores the tensors that the op reads and writes. Otherwise a thousand calls would drive the values to zero or
 * infinity. */
static pb_status restore(pb_ctx *ctx, void *self)
{
    call *c = self;
    for (int i = 0; i < c->b.n; i++)
        if (c->saved[i]) PB_TRY(pb_copy(ctx, c->b.t[i].p, c->saved[i], bytes_of(&c->b.t[i])));
    return PB_OK;
}

/* Allocates and fills the tensors of a call. Inputs that another op must produce are computed on the CPU and copied. On
 * failure *out owns nothing. */
static pb_status call_open(pb_ctx *ctx, pb_ctx *cpu, const pb_op *op, const int *dim, pb_dtype t, call *out)
{
    *out = (call){op, calloc(1, op->args_size), {.ctx = ctx, .dtype = t, .seed = 7}, {0}};
    pb_status s = out->args ? op->bind(&out->b, dim, out->args) : pb_fail(PB_ENOMEM, "no memory for a call");
    if (s == PB_OK && op->prepare && ctx->id == PB_CPU) s = op->prepare(cpu, out->args);
    if (s == PB_OK && op->prepare && ctx->id != PB_CPU) {
        call twin;
        s = call_open(cpu, cpu, op, dim, t, &twin);
        if (s == PB_OK) {
            s = pb_copy_inputs(&out->b, &twin.b);
            call_close(&twin);
        }
    }
    /* Copying the inputs onto themselves updates their checksums, because prepare() wrote them. */
    if (s == PB_OK && op->prepare && ctx->id == PB_CPU) s = pb_copy_inputs(&out->b, &out->b);
    if (s != PB_OK) call_close(out);
    return s;
}

static pb_status run_call(pb_ctx *ctx, void *self) { return pb_op_run(ctx, ((call *)self)->op, ((call *)self)->args); }

/* ---- comparing with the reference -------------------------------------------------------------------------- */

static pb_status compare_calls(pb_ctx *ctx, pb_ctx *cpu, call *want, call *got, pb_diff *d)
{
    PB_TRY(pb_copy_inputs(&got->b, &want->b));
    cpu->impl = "ref";
    pb_status s = run_call(cpu, want);
    cpu->impl = NULL;
    PB_TRY(s);
    PB_TRY(run_call(ctx, got));
    PB_TRY(pb_sync(ctx));
    PB_TRY(pb_check_guards(&got->b));
    return pb_compare(&want->b, &got->b, d);
}

/* Computes the error of the implementation on one small shape. EUNSUPPORTED: the implementation does not accept the
 * shape. */
static pb_status error_on(pb_ctx *ctx, pb_ctx *cpu, const pb_op *op, const int *dim, pb_dtype t, pb_diff *d)
{
    call want, got;
    PB_TRY(call_open(cpu, cpu, op, dim, t, &want));
    pb_status s = call_open(ctx, cpu, op, dim, t, &got);
    if (s == PB_OK) {
        s = compare_calls(ctx, cpu, &want, &got, d);
        call_close(&got);
    }
    call_close(&want);
    return s;
}

static pb_status error_on_edge(pb_ctx *ctx, pb_ctx *cpu, pb_ctx *plan, const pb_op *op, pb_dtype t, pb_diff *d)
{
    for (const pb_dims *dim = op->edge;; dim++) {
        PB_TRY(pb_kernel_edge(plan, op, t, dim, &dim));
        if (!dim) return pb_fail(PB_EUNSUPPORTED, "%s.%s takes no edge shape", op->name, ctx->impl);
        const pb_status s = error_on(ctx, cpu, op, *dim, t, d);
        if (s != PB_EUNSUPPORTED) return s;
    }
}

/* Measures the error on the first edge shape that the implementation accepts. */
static pb_status measure_error(pb_ctx *ctx, pb_ctx *cpu, const pb_op *op, pb_dtype t, pb_diff *d)
{
    pb_ctx plan;
    PB_TRY(pb_ctx_open_plan(&plan, ctx->id));
    plan.impl = ctx->impl;
    const pb_status s = error_on_edge(ctx, cpu, &plan, op, t, d);
    pb_ctx_close(&plan);
    return s;
}

/* Measurement options on a GPU. The cache is evicted before each sample, because cached data would make the kernel seem
 * faster. Samples are queued, because most kernels take less time than their launch. */
#define DEVICE_USUAL                                                                                                   \
    .warmup = 2, .min_samples = 20, .max_samples = PB_MAX_SAMPLES, .min_time = 0.05, .flush = true, .queued = true

/* ---- measuring and emitting rows ----------------------------------------------------------------------------- */

/* Emits the rate and the roofline fraction. In f32 the ceiling of FLOP/s is matmul_f32_rate where it was measured. */
static pb_status emit_rates(const pb_case *c, pb_cost cost, const pb_timing *t, const pb_suite_env *env)
{
    const char *dtype = pb_case_get(c, "dtype");
    const bool own = dtype && strcmp(dtype, "f32") == 0 && pb_env_ceiling(env, "matmul_f32_rate") > 0;
    const double copy = pb_env_ceiling(env, "copy_rate"),
                 matmul = pb_env_ceiling(env, own ? "matmul_f32_rate" : "matmul_rate");
    const bool arithmetic = cost.flops >= flops_per_byte * cost.bytes;
    const double work = arithmetic ? cost.flops : cost.bytes, by_bytes = cost.bytes / copy,
                 by_flops = cost.flops / matmul;
    if (!(work > 0) || pb_interrupted()) return PB_OK;
    PB_TRY(pb_emit(env->emitter, c, arithmetic ? "kernel_flops" : "kernel_rate", work / t->median, 0, PB_ROW_OK, NULL));
    if (!(copy > 0) || !(matmul > 0))
        return pb_emit(env->emitter, c, "roofline_fraction", (double)NAN, 0, PB_ROW_UNSUPPORTED,
                       "this process has no ceilings");
    return pb_emit(env->emitter, c, "roofline_fraction", (by_bytes > by_flops ? by_bytes : by_flops) / t->median, 0,
                   PB_ROW_OK, NULL);
}

static pb_status time_call(pb_ctx *ctx, const pb_case *c, call *k, const pb_suite_env *env)
{
    pb_timing t;
    const pb_measure_opts on_cpu = {PB_MEASURE_USUAL}, on_device = {DEVICE_USUAL};
    pb_measure_opts o = pb_env_measure_opts(env, ctx->id == PB_CPU ? on_cpu : on_device);
    PB_TRY(save(k));
    o.before = restore;
    o.before_self = k;
    PB_TRY(pb_measure(ctx, run_call, k, &o, &t));
    const pb_cost cost = k->op->cost ? k->op->cost(k->args) : (pb_cost){0};
    if (t.group) return pb_emit_group(env->emitter, c, t.group, cost.bytes);
    if (!t.counted) PB_TRY(pb_emit_timing(env->emitter, c, "kernel_time", &t, NULL));
    PB_TRY(pb_emit_counters(env->emitter, c, ctx, &t, cost.flops));
    PB_TRY(pb_emit_resources(env->emitter, c, ctx, run_call, k));
    return t.counted ? PB_OK : emit_rates(c, cost, &t, env);
}

static pb_status time_shape(pb_ctx *ctx, pb_ctx *cpu, const pb_case *c, const pb_kernel_case *of,
                            const pb_suite_env *env)
{
    call k;
    PB_TRY(pb_sync(ctx));
    pb_ctx_release_scratch(ctx); /* what earlier cases needed is not counted in held_peak */
    pb_held_reset(ctx);
    PB_TRY(call_open(ctx, cpu, of->op, of->dim, of->dtype, &k));
    pb_status s = pb_op_pick(ctx, of->op, k.args)
                      ? time_call(ctx, c, &k, env)
                      : pb_fail(PB_EUNSUPPORTED, "%s.%s does not take this shape and type", of->op->name, ctx->impl);
    call_close(&k);
    return s;
}

/* Measures a case. If its result is wrong, it emits only a row with the error and the reason, and no time. */
static pb_status measure(pb_ctx *ctx, pb_ctx *cpu, const pb_case *c, const pb_kernel_case *of, const pb_suite_env *env)
{
    char note[192];
    pb_diff d = {.tensor = ""};
    const double tolerance = of->op->tol[of->dtype];
    pb_status s = measure_error(ctx, cpu, of->op, of->dtype, &d);
    if (s == PB_EWRONG) return pb_emit(env->emitter, c, "error", (double)NAN, 0, PB_ROW_WRONG, pb_error());
    PB_TRY(s);
    if (!pb_diff_ok(&d, tolerance)) {
        snprintf(note, sizeof note, "%s differs from ref: rel %.3g, largest %.3g, tolerance %.3g", d.tensor, d.rel,
                 d.max, tolerance);
        return pb_emit(env->emitter, c, "error", d.rel, 0, PB_ROW_WRONG, note);
    }
    PB_TRY(pb_emit(env->emitter, c, "error", d.rel, 0, PB_ROW_OK, NULL));
    return time_shape(ctx, cpu, c, of, env);
}

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_kernel_case of;
    pb_ctx cpu;
    PB_TRY(pb_kernel_case_of(c, &of));
    PB_TRY(pb_ctx_open(&cpu, PB_CPU, 0));
    pb_status s = measure(ctx, &cpu, c, &of, env);
    pb_ctx_close(&cpu);
    return s;
}

static double expect(const pb_case *c) { return pb_kernel_case_seconds(c, false); }
static double device_expect(const pb_case *c) { return pb_kernel_case_seconds(c, true); }

static pb_status conclude(pb_ctx *ctx, pb_emitter *emitter)
{
    return ctx->id == PB_CPU ? PB_OK : pb_requirements_conclude(emitter, "kernels", NULL);
}

#define AXES "dtype=* impl=!ref shape=*"
static const pb_suite counting = {.name = "kernels", .axes = AXES, .enumerate = pb_kernel_edges, .run = run};

const pb_suite pb_suite_kernels = {
    .name = "kernels",
    .what = "every op, with its share of the roofline",
    .counted = true,
    .axes = AXES,
    .enumerate = pb_kernel_cases,
    .counting = &counting,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
    .conclude = conclude,
};
