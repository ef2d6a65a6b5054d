/* op.c - lists all ops, selects the implementation for a call, and runs it. */
#include "kernels/engine/op.h"

#include <stdio.h>
#include <string.h>

#include "kernels/engine/recording.h"
#include "profiles/ranges.h"

#define OP(f, p) extern const pb_op pb_op_##f##_##p;
#include "kernels/ops.def"
#undef OP

const pb_op *const pb_ops[] = {
#define OP(f, p) &pb_op_##f##_##p,
#include "kernels/ops.def"
#undef OP
    NULL,
};

const pb_op *pb_op_find(const char *name)
{
    for (const pb_op *const *op = pb_ops; *op; op++)
        if (strcmp((*op)->name, name) == 0) return *op;
    return NULL;
}

bool pb_impl_exists(pb_backend_id backend, const char *name)
{
    for (const pb_op *const *op = pb_ops; *op; op++)
        for (const pb_impl *i = (*op)->impls[backend]; i->name; i++)
            if (strcmp(i->name, name) == 0) return true;
    return false;
}

void pb_dims_text(const pb_op *op, const int *dim, char *out, size_t n)
{
    const int common = (int)strlen(op->axes), all = common + (op->rare ? (int)strlen(op->rare) : 0);
    size_t len = 0;
    if (n) *out = 0;
    for (int i = 0; i < all && len < n; i++) {
        if (i >= common && !dim[i]) continue;
        int w = snprintf(out + len, n - len, "%s%c%d", i ? "." : "", i < common ? op->axes[i] : op->rare[i - common],
                         dim[i]);
        if (w < 0) return;
        len += (size_t)w;
    }
}

static bool usable(const pb_ctx *ctx, const pb_impl *i, const void *args)
{
    return !(ctx->deterministic && i->varies) && (!i->available || i->available()) && (!i->accepts || i->accepts(args));
}

const pb_impl *pb_op_pick(const pb_ctx *ctx, const pb_op *op, const void *args)
{
    const pb_impl *first = NULL;
    for (const pb_impl *i = op->impls[ctx->id]; i->name; i++) {
        if (ctx->impl && strcmp(ctx->impl, i->name) != 0) continue;
        if (!usable(ctx, i, args)) continue;
        if (!first) first = i;
        if (!ctx->prefer || strcmp(ctx->prefer, i->name) == 0) return i;
    }
    return first;
}

pb_status pb_impl_run(pb_ctx *ctx, const pb_op *op, const pb_impl *impl, const void *args)
{
    if (ctx->debug & PB_DEBUG_TRACE) fprintf(stderr, "%s.%s.%s\n", op->name, ctx->be->name, impl->name);
    if (__builtin_expect(pb_ranges_on, 0)) pb_range_begin(PB_RANGE_op, op->name, pb_range_layer());
    if (__builtin_expect(pb_ranges_on & PB_LISTENS_WORK, 0) && op->cost) {
        const pb_cost c = op->cost(args);
        pb_range_work((int64_t)c.flops, (int64_t)c.bytes);
    }
    const pb_status s = impl->run(ctx, args);
    if (ctx->recording && ctx->be->noted) ctx->be->noted(ctx);
    pb_range_pop();
    PB_TRY(s);
    if (ctx->debug & PB_DEBUG_SYNC && !ctx->recording) return ctx->be->sync(ctx);
    return PB_OK;
}

pb_status pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args)
{
    if (op->check) PB_TRY(op->check(args));
    const pb_impl *impl = pb_op_pick(ctx, op, args);
    if (!impl)
        return pb_fail(PB_EUNSUPPORTED, "%s: no %s implementation%s%s takes these arguments", op->name, ctx->be->name,
                       ctx->impl ? " named " : "", ctx->impl ? ctx->impl : "");
    if (impl->workspace) PB_TRY(pb_ctx_reserve(ctx, impl->workspace(args)));
    if (impl->reserve) PB_TRY(impl->reserve(ctx, args));
    if (ctx->planning) return PB_OK;
    if (ctx->id == PB_CPU) pb_tally_add(ctx->tally, op->name, impl->name); /* on a GPU each kernel is counted */
    if (ctx->recording && ctx->id == PB_CPU) return pb_recording_add(ctx, op, impl, args);
    ctx->counts.kernel_launches += ctx->id == PB_CPU; /* CUDA launchers count each kernel themselves */
    return pb_impl_run(ctx, op, impl, args);
}
