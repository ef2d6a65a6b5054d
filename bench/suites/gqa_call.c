/* gqa_call.c - allocates and fills the tensors of a case with grouped-query attention, and calls the ops dynmask_keys,
 * dynmask_attention and attention on them. */
#include "bench/suites/gqa_call.h"

#include <math.h>
#include <stdlib.h>

#include "bench/suites/attention_call.h"
#include "kernels/attention/attention.h"
#include "kernels/dynmask_attention/dynmask_attention.h"
#include "kernels/dynmask_keys/dynmask_keys.h"
#include "kernels/uniform/uniform.h"

typedef union arguments {
    pb_dynmask_attention_fwd_args dynmask_fwd;
    pb_dynmask_attention_bwd_args dynmask_bwd;
    pb_attention_fwd_args dense_fwd;
    pb_attention_bwd_args dense_bwd;
} arguments;

#define FORWARD(c)                                                                                                     \
    .q = (c)->q, .k = (c)->k, .v = (c)->v, .o = (c)->o, .lse = (c)->lse, .B = 1, .S = (c)->a.S, .H = (c)->a.H,         \
    .K = (c)->K, .D = (c)->a.D, .scale = 1 / sqrtf((float)(c)->a.D), .dtype = (c)->a.dtype,                            \
    .ldq = (size_t)(c)->a.H * (size_t)(c)->a.D, .ldk = (size_t)(c)->K * (size_t)(c)->a.D,                              \
    .ldv = (size_t)(c)->K * (size_t)(c)->a.D, .ldo = (size_t)(c)->a.H * (size_t)(c)->a.D
#define BACKWARD(c)                                                                                                    \
    FORWARD(c), .dO = (c)->dO, .dq = (c)->dq, .dk = (c)->dk, .dv = (c)->dv,                                            \
                .lddo = (size_t)(c)->a.H * (size_t)(c)->a.D, .lddq = (size_t)(c)->a.H * (size_t)(c)->a.D,              \
                .lddk = (size_t)(c)->K * (size_t)(c)->a.D, .lddv = (size_t)(c)->K * (size_t)(c)->a.D
#define LISTS(c)                                                                                                       \
    .bias = (c)->bias, .list = (c)->list, .until = (c)->until, .S_kv = (c)->a.S, .L = (c)->L, .keep = (c)->a.W

static const pb_op *op_of(const pb_attn *a, bool backward)
{
    if (a->variant == PB_VARIANT_DENSE_GQA) return backward ? &pb_op_attention_bwd : &pb_op_attention_fwd;
    return backward ? &pb_op_dynmask_attention_bwd : &pb_op_dynmask_attention_fwd;
}

const pb_op *pb_gqa_op(const pb_attn *a) { return op_of(a, a->backward); }

static const pb_op *op_and_arguments(const pb_gqa_call *c, bool backward, arguments *out)
{
    const bool dense = c->a.variant == PB_VARIANT_DENSE_GQA;
    if (dense && backward) out->dense_bwd = (pb_attention_bwd_args){BACKWARD(c), .causal = true};
    else if (dense) out->dense_fwd = (pb_attention_fwd_args){FORWARD(c), .causal = true};
    else if (backward) out->dynmask_bwd = (pb_dynmask_attention_bwd_args){BACKWARD(c), LISTS(c), .dbias = c->dbias};
    else out->dynmask_fwd = (pb_dynmask_attention_fwd_args){FORWARD(c), LISTS(c)};
    return op_of(&c->a, backward);
}

/* --impl and --prefer name implementations of attention: they do not apply to the selection. */
pb_status pb_gqa_select(pb_ctx *ctx, void *call)
{
    const pb_gqa_call *c = call;
    const char *impl = ctx->impl, *prefer = ctx->prefer;
    ctx->impl = ctx->prefer = NULL;
    const pb_status s = pb_dynmask_keys_build(ctx, &(pb_dynmask_keys_build_args){.bias = c->bias,
                                                                                 .list = c->list,
                                                                                 .until = c->until,
                                                                                 .B = 1,
                                                                                 .S = c->a.S,
                                                                                 .K = c->K,
                                                                                 .L = c->L,
                                                                                 .keep = c->a.W,
                                                                                 .exact = c->a.list == PB_LIST_EXACT});
    ctx->impl = impl, ctx->prefer = prefer;
    return s;
}

pb_status pb_gqa_run(pb_ctx *ctx, void *call)
{
    const pb_gqa_call *c = call;
    arguments args;
    if (c->L && !c->a.backward) PB_TRY(pb_gqa_select(ctx, call));
    return pb_op_run(ctx, op_and_arguments(c, c->a.backward, &args), &args);
}

pb_status pb_gqa_impl(pb_ctx *ctx, const pb_gqa_call *c, const char **name)
{
    arguments args;
    const pb_op *op = op_and_arguments(c, c->a.backward, &args);
    const pb_impl *impl = pb_op_pick(ctx, op, &args);
    if (!impl) return pb_fail(PB_EUNSUPPORTED, "%s: no %s implementation takes this case", op->name, ctx->be->name);
    *name = impl->name;
    return PB_OK;
}

double pb_gqa_bytes(const pb_gqa_call *c)
{
    arguments args;
    return op_and_arguments(c, c->a.backward, &args)->cost(&args).bytes;
}

/* ---- allocating and filling the tensors ---------------------------------------------------------------- */

static void carve(pb_gqa_call *c)
{
    const pb_attn *a = &c->a;
    const size_t e = pb_dtype_size(a->dtype), heads = (size_t)a->S * (size_t)a->H, keys = (size_t)a->S * (size_t)c->K;
    const size_t queries = heads * (size_t)a->D * e, kv = keys * (size_t)a->D * e, slots = (size_t)c->K * (size_t)c->L;
    c->q = pb_carve(&c->memory, queries), c->o = pb_carve(&c->memory, queries);
    c->k = pb_carve(&c->memory, kv), c->v = pb_carve(&c->memory, kv);
    c->lse = pb_carve(&c->memory, heads * sizeof *c->lse);
    if (c->L) {
        c->bias = pb_carve(&c->memory, keys * sizeof *c->bias);
        c->list = pb_carve(&c->memory, slots * sizeof *c->list);
        c->until = pb_carve(&c->memory, slots * sizeof *c->until);
    }
    if (!a->backward) return;
    c->dO = pb_carve(&c->memory, queries), c->dq = pb_carve(&c->memory, queries);
    c->dk = pb_carve(&c->memory, kv), c->dv = pb_carve(&c->memory, kv);
    if (c->L) c->dbias = pb_carve(&c->memory, keys * sizeof *c->dbias);
}

static pb_status draw_biases(pb_ctx *ctx, const pb_gqa_call *c, size_t keys)
{
    if (c->a.bias == PB_BIAS_RANDOM) return pb_attn_fill(ctx, c->bias, keys, PB_F32, 4, 0, 2);
    float *bias = malloc(keys * sizeof *bias);
    if (!bias) return pb_fail(PB_ENOMEM, "attention: no memory for %zu biases", keys);
    pb_attn_biases(&c->a, c->K, bias);
    const pb_status s = pb_upload(ctx, c->bias, bias, keys * sizeof *bias);
    free(bias);
    return s;
}

/* Fills the inputs, and the outputs with PB_UNWRITTEN. */
static pb_status draw_tensors(pb_ctx *ctx, const pb_gqa_call *c)
{
    const pb_attn *a = &c->a;
    const size_t keys = (size_t)a->S * (size_t)c->K, heads = (size_t)a->S * (size_t)a->H;
    const size_t queries = heads * (size_t)a->D, kv = keys * (size_t)a->D;
    const double unit = sqrt(3); /* a uniform value in +-sqrt(3) has variance 1 */
    PB_TRY(pb_attn_fill(ctx, c->q, queries, a->dtype, 1, 0, unit));
    PB_TRY(pb_attn_fill(ctx, c->k, kv, a->dtype, 2, 0, unit));
    PB_TRY(pb_attn_fill(ctx, c->v, kv, a->dtype, 3, 0, unit));
    if (c->L) PB_TRY(draw_biases(ctx, c, keys));
    PB_TRY(pb_attn_fill(ctx, c->o, queries, a->dtype, 0, PB_UNWRITTEN, 0));
    PB_TRY(pb_attn_fill(ctx, c->lse, heads, PB_F32, 0, PB_UNWRITTEN, 0));
    if (!a->backward) return PB_OK;
    PB_TRY(pb_attn_fill(ctx, c->dO, queries, a->dtype, 5, 0, 1));
    PB_TRY(pb_attn_fill(ctx, c->dq, queries, a->dtype, 0, PB_UNWRITTEN, 0));
    PB_TRY(pb_attn_fill(ctx, c->dk, kv, a->dtype, 0, PB_UNWRITTEN, 0));
    PB_TRY(pb_attn_fill(ctx, c->dv, kv, a->dtype, 0, PB_UNWRITTEN, 0));
    return c->L ? pb_attn_fill(ctx, c->dbias, keys, PB_F32, 0, PB_UNWRITTEN, 0) : PB_OK;
}

/* Selects the keys, and runs the forward pass of a backward case. --impl and --prefer apply to the backward pass
 * only. */
static pb_status prepare(pb_ctx *ctx, pb_gqa_call *c)
{
    const char *impl = ctx->impl, *prefer = ctx->prefer;
    arguments args;
    ctx->impl = ctx->prefer = NULL;
    pb_status s = draw_tensors(ctx, c);
    if (s == PB_OK && c->L) s = pb_gqa_select(ctx, c);
    if (s == PB_OK && c->a.backward) s = pb_op_run(ctx, op_and_arguments(c, false, &args), &args);
    if (s == PB_OK) s = pb_sync(ctx);
    ctx->impl = impl, ctx->prefer = prefer;
    return s;
}

/* Counts the pairs that the lists on the device describe. */
static pb_status count_pairs(pb_ctx *ctx, pb_gqa_call *c)
{
    const size_t slots = (size_t)c->K * (size_t)c->L, bytes = slots * sizeof(int32_t);
    if (!c->L) {
        c->valid = c->listed = pb_attn_pairs(&c->a, NULL);
        return PB_OK;
    }
    int32_t *list = malloc(2 * bytes), *until = list + slots;
    pb_status s = list ? PB_OK : pb_fail(PB_ENOMEM, "attention: no memory for %zu slots", slots);
    if (s == PB_OK) s = pb_download(ctx, list, c->list, bytes);
    if (s == PB_OK) s = pb_download(ctx, until, c->until, bytes);
    double valid = 0, used = 0;
    for (size_t l = 0; s == PB_OK && l < slots; l++)
        if (list[l] >= 0) valid += until[l] - list[l], used++;
    free(list);
    c->valid = valid / c->K, c->listed = used / c->K * c->a.S;
    return s;
}

pb_status pb_gqa_open(pb_ctx *ctx, const pb_attn *a, pb_gqa_call *out)
{
    pb_gqa_call c = {.a = *a, .K = a->H / PB_GQA_GROUP};
    const bool whole = a->list == PB_LIST_EXACT || a->W > a->S;
    if (a->variant == PB_VARIANT_DYNMASK) c.L = whole ? a->S : a->W;
    pb_arena_begin(&c.memory, ctx);
    carve(&c);
    pb_status s = pb_arena_commit(&c.memory);
    if (s == PB_OK) {
        carve(&c);
        s = prepare(ctx, &c);
    }
    if (s == PB_OK) s = count_pairs(ctx, &c);
    if (s != PB_OK) pb_gqa_close(&c);
    else *out = c;
    return s;
}

void pb_gqa_close(pb_gqa_call *c) { pb_arena_free(&c->memory); }
