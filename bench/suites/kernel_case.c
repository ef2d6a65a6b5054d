/* kernel_case.c - enumerates the cases of suite kernels, parses them, and estimates their time. */
#include "bench/suites/kernel_case.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

/* ---- parsing the axes of a case ------------------------------------------------------------------------ */

static bool float_dtype(const char *name, pb_dtype *out)
{
    for (int t = 0; t < PB_NFLOAT; t++)
        if (strcmp(pb_dtype_name((pb_dtype)t), name) == 0) {
            *out = (pb_dtype)t;
            return true;
        }
    return false;
}

/* Parses a shape such as "B1.S256.D576" into the op's dims. */
static pb_status parse_shape(const pb_op *op, const char *text, int *dim)
{
    const char *at = text;
    for (int i = 0; op->axes[i]; i++) {
        char *end;
        if (*at == '.') at++;
        if (*at++ != op->axes[i] || !isdigit((unsigned char)*at))
            return pb_fail(PB_EINVAL, "%s: shape %s does not fit its axes %s", op->name, text, op->axes);
        dim[i] = (int)strtol(at, &end, 10);
        at = end;
    }
    for (size_t i = 0; op->rare && op->rare[i]; i++) {
        char *end;
        if (at[0] != '.' || at[1] != op->rare[i] || !isdigit((unsigned char)at[2])) continue;
        dim[strlen(op->axes) + i] = (int)strtol(at + 2, &end, 10);
        at = end;
    }
    return *at ? pb_fail(PB_EINVAL, "%s: shape %s has more fields than its axes %s", op->name, text, op->axes) : PB_OK;
}

pb_status pb_kernel_case_of(const pb_case *c, pb_kernel_case *out)
{
    const char *dtype = pb_case_get(c, "dtype"), *shape = pb_case_get(c, "shape");
    *out = (pb_kernel_case){.op = pb_op_find(c->name)};
    if (!out->op) return pb_fail(PB_EINVAL, "there is no op '%s'", c->name);
    if (!dtype || !float_dtype(dtype, &out->dtype)) return pb_fail(PB_EINVAL, "dtype %s", dtype ? dtype : "is missing");
    return parse_shape(out->op, shape ? shape : "", out->dim);
}

/* ---- calls without memory ------------------------------------------------------------------------------ */

/* A call whose tensors have addresses and no memory: filling them would take seconds in every process. */
typedef struct planned {
    void *args;
    pb_binder b;
} planned;

static void planned_close(planned *c)
{
    pb_unbind(&c->b);
    free(c->args);
}

/* plan: the plan backend. On failure *out owns nothing. */
static pb_status planned_open(pb_ctx *plan, const pb_op *op, pb_dtype t, const int *dim, planned *out)
{
    *out = (planned){calloc(1, op->args_size), {.ctx = plan, .dtype = t, .seed = 7}};
    const pb_status s = out->args ? op->bind(&out->b, dim, out->args) : pb_fail(PB_ENOMEM, "no memory for a call");
    if (s != PB_OK) planned_close(out);
    return s;
}

/* ---- estimating the time of a case --------------------------------------------------------------------- */

pb_status pb_kernel_case_work(const pb_case *c, pb_cost *work)
{
    pb_kernel_case of;
    planned call;
    pb_ctx plan;
    *work = (pb_cost){0};
    PB_TRY(pb_kernel_case_of(c, &of));
    PB_TRY(pb_ctx_open_plan(&plan, PB_CPU));
    const pb_status s = planned_open(&plan, of.op, of.dtype, of.dim, &call);
    if (s == PB_OK) {
        if (of.op->cost) *work = of.op->cost(call.args);
        planned_close(&call);
    }
    pb_ctx_close(&plan);
    return s;
}

double pb_kernel_case_seconds(const pb_case *c, bool device)
{
    pb_cost w;
    if (pb_kernel_case_work(c, &w) != PB_OK) return 0;
    if (device) return 0.1 + w.bytes / 1e9 + fmax(0.1, 22 * fmax(w.bytes / 2e12, w.flops / 1e14));
    return 0.01 + w.bytes / 2e9 + fmax(0.2, 6 * fmax(w.bytes / 1e10, w.flops / 1.5e11));
}

/* ---- enumerating the cases ----------------------------------------------------------------------------- */

static bool runs_here(const pb_impl *i) { return !i->available || i->available(); }

static bool instruction_set(const char *name)
{
#define X(isa, has, ...)                                                                                               \
    if (strcmp(name, #isa) == 0) return true;
    PB_ISA_MAP(X, )
#undef X
    return false;
}

/* Sets *taken to whether an implementation takes this shape: plan->impl, if that is set. */
static pb_status takes_shape(pb_ctx *plan, const pb_op *op, pb_dtype t, const int *dim, bool *taken)
{
    planned c;
    PB_TRY(planned_open(plan, op, t, dim, &c));
    *taken = pb_op_pick(plan, op, c.args) != NULL;
    planned_close(&c);
    return PB_OK;
}

pb_status pb_kernel_edge(pb_ctx *plan, const pb_op *op, pb_dtype t, const pb_dims *from, const pb_dims **out)
{
    const pb_dims *dim = from;
    for (bool taken = false; (*dim)[0] && !taken; dim += !taken) PB_TRY(takes_shape(plan, op, t, *dim, &taken));
    *out = (*dim)[0] ? dim : NULL;
    return PB_OK;
}

typedef struct adder {
    pb_status (*add)(void *user, const pb_case *c);
    void *user;
    bool full, device;
    bool edges; /* adds shapes of op->edge in place of op->grid */
} adder;

enum { COUNTED_SHAPES = 3 };

static pb_status add_shape(const pb_op *op, const pb_impl *impl, pb_dtype t, const pb_dims *dim, const adder *to)
{
    char shape[PB_AXIS_TEXT];
    pb_case c = {.suite = "kernels"};
    pb_dims_text(op, *dim, shape, sizeof shape);
    snprintf(c.name, sizeof c.name, "%s", op->name);
    PB_TRY(pb_case_set(&c, "shape", shape));
    PB_TRY(pb_case_set(&c, "dtype", pb_dtype_name(t)));
    PB_TRY(pb_case_set(&c, "impl", impl->name));
    pb_case_finish(&c);
    return to->add(to->user, &c);
}

/* Adds the shapes of a grid that the implementation takes; all = false: the first of them alone. */
static pb_status add_grid(pb_ctx *plan, const pb_op *op, const pb_impl *impl, pb_dtype t, const pb_dims *grid, bool all,
                          const adder *to)
{
    bool taken = false;
    for (const pb_dims *dim = grid; (*dim)[0] && (all || !taken); dim++) {
        PB_TRY(takes_shape(plan, op, t, *dim, &taken));
        if (taken) PB_TRY(add_shape(op, impl, t, dim, to));
    }
    return PB_OK;
}

/* Adds the edge shapes from `dim`, the first that the implementation accepts, on. */
static pb_status add_edges(pb_ctx *plan, const pb_op *op, const pb_impl *impl, pb_dtype t, const pb_dims *dim,
                           const adder *to)
{
    for (int n = 0; dim && (to->full || n < COUNTED_SHAPES); n++) {
        PB_TRY(add_shape(op, impl, t, dim, to));
        PB_TRY(pb_kernel_edge(plan, op, t, dim + 1, &dim));
    }
    return PB_OK;
}

/* Adds cases for the shapes that the implementation takes: the first of the op's grid (--grid full: all of them) and,
 * on a GPU, all of its device grid. */
static pb_status add_shapes(pb_ctx *plan, const pb_op *op, const pb_impl *impl, pb_dtype t, const adder *to)
{
    PB_TRY(add_grid(plan, op, impl, t, op->grid, to->full, to));
    return to->device && op->device_grid ? add_grid(plan, op, impl, t, op->device_grid, true, to) : PB_OK;
}

static pb_status add_impl(pb_ctx *plan, const pb_op *op, const pb_impl *impl, const adder *to)
{
    plan->impl = impl->name;
    for (int t = 0; t < (op->f32_only ? 1 : PB_NFLOAT); t++) {
        const pb_dims *edge;
        PB_TRY(pb_kernel_edge(plan, op, (pb_dtype)t, op->edge, &edge));
        if (edge && to->edges) PB_TRY(add_edges(plan, op, impl, (pb_dtype)t, edge, to));
        else if (edge) PB_TRY(add_shapes(plan, op, impl, (pb_dtype)t, to));
    }
    return PB_OK;
}

/* True for an implementation that accepts every call and serves those that no faster one accepts. */
static bool fallback(const char *name) { return strcmp(name, "ref") == 0 || strcmp(name, "simt") == 0; }

/* True if the op has an implementation that runs here and is no fallback. */
static bool has_faster(const pb_op *op, pb_backend_id id)
{
    for (const pb_impl *i = op->impls[id]; i->name; i++)
        if (runs_here(i) && !fallback(i->name)) return true;
    return false;
}

/* Adds the op's implementations. Without --grid full it omits fallbacks of ops that have a faster implementation, and
 * of the implementations that differ in the instruction set it adds only the best that runs here. */
static pb_status add_op(pb_ctx *plan, const pb_op *op, const adder *to)
{
    const bool faster = has_faster(op, plan->id);
    bool vectorised = false;
    for (const pb_impl *i = op->impls[plan->id]; i->name; i++) {
        bool isa = instruction_set(i->name), worse = isa && vectorised;
        if (!runs_here(i)) continue;
        vectorised |= isa;
        if (to->full || (!worse && !(faster && fallback(i->name)))) PB_TRY(add_impl(plan, op, i, to));
    }
    return PB_OK;
}

static pb_status add_ops(pb_ctx *ctx, const adder *to)
{
    pb_ctx plan;
    pb_status s = pb_ctx_open_plan(&plan, ctx->id);
    if (s != PB_OK) return s;
    for (const pb_op *const *op = pb_ops; *op && s == PB_OK; op++) s = add_op(&plan, *op, to);
    pb_ctx_close(&plan);
    return s;
}

pb_status pb_kernel_cases(pb_ctx *ctx, bool full, pb_status (*add)(void *user, const pb_case *c), void *user)
{
    return add_ops(ctx, &(adder){add, user, full, ctx->id != PB_CPU, false});
}

pb_status pb_kernel_edges(pb_ctx *ctx, bool full, pb_status (*add)(void *user, const pb_case *c), void *user)
{
    return add_ops(ctx, &(adder){add, user, full, false, true});
}
