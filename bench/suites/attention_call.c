/* attention_call.c - allocates and fills the tensors of an attention case on the device, and calls the ops sparse_mla
 * and dense_mla on them. */
#include "bench/suites/attention_call.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/dense_mla/dense_mla.h"
#include "kernels/sparse_mla/sparse_mla.h"
#include "kernels/uniform/uniform.h"

/* ---- arguments of the ops for each pass ---------------------------------------------------------------- */

typedef union arguments {
    pb_sparse_mla_fwd_args sparse_fwd;
    pb_sparse_mla_bwd_args sparse_bwd;
    pb_dense_mla_fwd_args dense_fwd;
    pb_dense_mla_bwd_args dense_bwd;
} arguments;

#define SIZES(c)                                                                                                       \
    .B = 1, .S = (c)->a.S, .S_kv = (c)->a.S_kv, .H = (c)->a.H, .D = (c)->a.D, .V = (c)->a.V,                           \
    .scale = 1 / sqrtf((float)(c)->a.D), .dtype = (c)->a.dtype
#define FORWARD(c)  .q = (c)->q, .kv = (c)->kv, .sink = (c)->sink, .o = (c)->o, .lse = (c)->lse, SIZES(c)
#define BACKWARD(c) FORWARD(c), .dO = (c)->dO, .dq = (c)->dq, .dkv = (c)->dkv, .dsink = (c)->dsink, .wide = (c)->wide

static const pb_op *op_of(const pb_attn *a, bool backward)
{
    if (a->variant == PB_VARIANT_DENSE) return backward ? &pb_op_dense_mla_bwd : &pb_op_dense_mla_fwd;
    return backward ? &pb_op_sparse_mla_bwd : &pb_op_sparse_mla_fwd;
}

const pb_op *pb_attn_op(const pb_attn *a) { return op_of(a, a->backward); }

static const pb_op *op_and_arguments(const pb_attn_call *c, bool backward, arguments *out)
{
    if (c->a.variant == PB_VARIANT_DENSE && backward)
        out->dense_bwd = (pb_dense_mla_bwd_args){BACKWARD(c), .causal = true, .window = c->a.W};
    else if (c->a.variant == PB_VARIANT_DENSE)
        out->dense_fwd = (pb_dense_mla_fwd_args){FORWARD(c), .causal = true, .window = c->a.W};
    else if (backward) out->sparse_bwd = (pb_sparse_mla_bwd_args){BACKWARD(c), .idx = c->idx, .W = c->a.W};
    else out->sparse_fwd = (pb_sparse_mla_fwd_args){FORWARD(c), .idx = c->idx, .W = c->a.W};
    return op_of(&c->a, backward);
}

pb_status pb_attn_run(pb_ctx *ctx, void *call)
{
    const pb_attn_call *c = call;
    arguments args;
    const pb_op *op = op_and_arguments(c, c->a.backward, &args);
    const bool before = ctx->deterministic;
    ctx->deterministic = before || c->a.variant == PB_VARIANT_DETERMINISTIC;
    pb_status s = pb_op_run(ctx, op, &args);
    ctx->deterministic = before;
    return s;
}

pb_status pb_attn_impl(pb_ctx *ctx, const pb_attn_call *c, const char **name)
{
    arguments args;
    const pb_op *op = op_and_arguments(c, c->a.backward, &args);
    const bool before = ctx->deterministic;
    ctx->deterministic = before || c->a.variant == PB_VARIANT_DETERMINISTIC;
    const pb_impl *impl = pb_op_pick(ctx, op, &args);
    ctx->deterministic = before;
    if (!impl)
        return pb_fail(PB_EUNSUPPORTED, "%s: no %s implementation%s%s takes this case", op->name, ctx->be->name,
                       ctx->impl ? " named " : "", ctx->impl ? ctx->impl : "");
    *name = impl->name;
    return PB_OK;
}

double pb_attn_bytes(const pb_attn_call *c)
{
    arguments args;
    return op_and_arguments(c, c->a.backward, &args)->cost(&args).bytes;
}

/* ---- allocating and filling the tensors ---------------------------------------------------------------- */

static void carve(pb_attn_call *c)
{
    const pb_attn *a = &c->a;
    const size_t e = pb_dtype_size(a->dtype), heads = (size_t)a->S * a->H, kv = (size_t)a->S_kv * a->D * e;
    c->q = pb_carve(&c->memory, heads * a->D * e);
    c->kv = pb_carve(&c->memory, kv);
    c->sink = pb_carve(&c->memory, (size_t)a->H * sizeof *c->sink);
    c->lse = pb_carve(&c->memory, heads * sizeof *c->lse);
    c->o = pb_carve(&c->memory, heads * a->V * e);
    if (a->variant != PB_VARIANT_DENSE) c->idx = pb_carve(&c->memory, (size_t)a->S * a->W * sizeof *c->idx);
    if (!a->backward) return;
    c->dO = pb_carve(&c->memory, heads * a->V * e);
    c->dq = pb_carve(&c->memory, heads * a->D * e);
    c->dkv = pb_carve(&c->memory, kv);
    c->dsink = pb_carve(&c->memory, (size_t)a->H * sizeof *c->dsink);
}

pb_status pb_attn_fill(pb_ctx *ctx, void *w, size_t n, pb_dtype t, uint64_t stream, double centre, double half)
{
    return pb_uniform_fill(
        ctx, &(pb_uniform_fill_args){.w = w, .n = n, .stream = stream, .centre = centre, .half = half, .dtype = t});
}

static pb_status draw_inputs(pb_ctx *ctx, const pb_attn_call *c)
{
    const pb_attn *a = &c->a;
    const size_t heads = (size_t)a->S * a->H;
    const double unit = sqrt(3); /* a uniform value in +-sqrt(3) has variance 1 */
    PB_TRY(pb_attn_fill(ctx, c->q, heads * a->D, a->dtype, 1, 0, unit));
    PB_TRY(pb_attn_fill(ctx, c->kv, (size_t)a->S_kv * a->D, a->dtype, 2, 0, unit));
    PB_TRY(pb_attn_fill(ctx, c->sink, a->H, PB_F32, 3, 0, 1));
    if (a->backward) PB_TRY(pb_attn_fill(ctx, c->dO, heads * a->V, a->dtype, 4, 0, 1));
    return c->idx ? pb_upload(ctx, c->idx, c->lists, (size_t)a->S * a->W * sizeof *c->idx) : PB_OK;
}

/* Fills the outputs of the case's pass with PB_UNWRITTEN. */
static pb_status unwrite(pb_ctx *ctx, const pb_attn_call *c)
{
    const pb_attn *a = &c->a;
    const size_t heads = (size_t)a->S * a->H;
    if (!a->backward) {
        PB_TRY(pb_attn_fill(ctx, c->o, heads * a->V, a->dtype, 0, PB_UNWRITTEN, 0));
        return pb_attn_fill(ctx, c->lse, heads, PB_F32, 0, PB_UNWRITTEN, 0);
    }
    PB_TRY(pb_attn_fill(ctx, c->dq, heads * a->D, a->dtype, 0, PB_UNWRITTEN, 0));
    PB_TRY(pb_attn_fill(ctx, c->dkv, (size_t)a->S_kv * a->D, a->dtype, 0, PB_UNWRITTEN, 0));
    return pb_attn_fill(ctx, c->dsink, a->H, PB_F32, 0, PB_UNWRITTEN, 0);
}

/* Fills the inputs. A backward case needs o and lse, so its forward pass runs here with the default implementation:
 * --impl and --prefer apply to the backward pass only. */
static pb_status prepare(pb_ctx *ctx, const pb_attn_call *c)
{
    const char *impl = ctx->impl, *prefer = ctx->prefer;
    arguments args;
    ctx->impl = ctx->prefer = NULL;
    pb_status s = draw_inputs(ctx, c);
    if (s == PB_OK) s = unwrite(ctx, c);
    if (s == PB_OK && c->a.backward) s = pb_op_run(ctx, op_and_arguments(c, false, &args), &args);
    if (s == PB_OK) s = pb_sync(ctx);
    ctx->impl = impl, ctx->prefer = prefer;
    return s;
}

static pb_status make_lists(pb_attn_call *c)
{
    const pb_attn *a = &c->a;
    if (a->variant != PB_VARIANT_DENSE) {
        c->lists = malloc((size_t)a->S * a->W * sizeof *c->lists);
        if (!c->lists) return pb_fail(PB_ENOMEM, "attention: no memory for %d lists of %d", a->S, a->W);
        PB_TRY(pb_attn_lists(a, c->lists));
    }
    c->valid = pb_attn_pairs(a, c->lists);
    c->listed = pb_attn_listed(a, c->lists);
    return PB_OK;
}

pb_status pb_attn_open(pb_ctx *ctx, const pb_attn *a, pb_attn_call *out)
{
    pb_attn_call c = {.a = *a};
    pb_arena_begin(&c.memory, ctx);
    pb_status s = make_lists(&c);
    if (s == PB_OK) {
        carve(&c);
        s = pb_arena_commit(&c.memory);
    }
    if (s == PB_OK) {
        carve(&c);
        s = prepare(ctx, &c);
    }
    if (s != PB_OK) pb_attn_close(&c);
    else *out = c;
    return s;
}

void pb_attn_close(pb_attn_call *c)
{
    pb_arena_free(&c->memory);
    free(c->lists);
    c->lists = NULL;
}
