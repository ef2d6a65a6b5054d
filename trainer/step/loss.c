/* loss.c - the loss phase: computes the cross-entropy and its gradient, of all logits at once or chunk by chunk. */
#include "trainer/step/loss.h"

#include "kernels/gradient/gradient.h"
#include "kernels/linear/linear.h"
#include "kernels/xent/xent.h"
#include "trainer/step/forward.h"
#include "trainer/step/gradients.h"

static const pb_param *head_of(const pb_trainer *t) { return t->model.outer[t->model.g.tied ? PB_P_embed : PB_P_head]; }

/* Pointer to row `row` of a tensor [T,D] of the model's dtype. */
static void *row_of(const pb_trainer *t, void *p, int row)
{
    return (unsigned char *)p + (size_t)row * (size_t)t->model.g.D * pb_dtype_size(t->model.cfg.dtype);
}

pb_status pb_head_forward(pb_ctx *ctx, const pb_trainer *t, int first, int n)
{
    return pb_linear_fwd(ctx, &(pb_linear_fwd_args){.x = row_of(t, t->nf, first),
                                                    .w = head_of(t)->w,
                                                    .y = t->logits,
                                                    .T = n,
                                                    .N = t->model.g.V,
                                                    .K = t->model.g.D,
                                                    .dtype = t->model.cfg.dtype});
}

pb_status pb_head_backward(pb_ctx *ctx, const pb_trainer *t, int first, int n)
{
    const pb_param *head = head_of(t);
    const pb_dtype dtype = t->model.cfg.dtype;
    const int V = t->model.g.V, D = t->model.g.D;
    PB_TRY(pb_linear_dx(
        ctx,
        &(pb_linear_dx_args){
            .dy = t->logits, .w = head->w, .dx = row_of(t, t->dn, first), .T = n, .N = V, .K = D, .dtype = dtype}));
    if (!head->trained) return PB_OK;
    pb_dtype dw_dtype;
    void *dw = pb_gradient_written(t, head, &dw_dtype);
    return pb_linear_dw(ctx, &(pb_linear_dw_args){.dy = t->logits,
                                                  .x = row_of(t, t->nf, first),
                                                  .dw = dw,
                                                  .T = n,
                                                  .N = V,
                                                  .K = D,
                                                  .accumulate = first > 0 || pb_adds(t),
                                                  .dtype = dtype,
                                                  .dw_dtype = dw_dtype});
}

/* Computes the loss of the tokens first .. first+n-1 and the gradient of their logits. */
static pb_status cross_entropy(pb_ctx *ctx, const pb_trainer *t, int first, int n, pb_xent_bwd_args a)
{
    a.logits = t->logits;
    a.target = t->targets + first;
    a.mask = t->mask + first;
    a.inv_count = t->inv_count;
    a.dlogits = t->logits;
    a.nll = t->nll + first;
    a.loss_scale = t->loss_scale;
    a.T = n;
    a.V = t->model.g.V;
    a.dtype = t->model.cfg.dtype;
    return pb_xent_bwd(ctx, &a);
}

static pb_status chunk(pb_ctx *ctx, const pb_trainer *t, int first, int n)
{
    PB_TRY(pb_head_forward(ctx, t, first, n));
    PB_TRY(cross_entropy(ctx, t, first, n,
                         (pb_xent_bwd_args){.loss = t->chunk_loss, .total = &t->report->loss, .add = first > 0}));
    return t->cfg.model.frozen || t->evaluates ? PB_OK : pb_head_backward(ctx, t, first, n);
}

pb_status pb_phase_loss(pb_ctx *ctx, void *self)
{
    const pb_trainer *t = self;
    const int size = t->cfg.loss_chunk;
    if (!size)
        return cross_entropy(ctx, t, 0, t->T,
                             (pb_xent_bwd_args){.loss = &t->report->loss, .total = t->step_loss, .add = t->accumulate});
    if (pb_shares_nf(t) && !t->model.cfg.frozen) /* a backward pass may have overwritten it */
        PB_TRY(pb_norm(ctx, t, t->hf, t->model.outer[PB_P_norm], t->nf, t->rstdf));
    for (int first = 0; first < t->T; first += size)
        PB_TRY(chunk(ctx, t, first, t->T - first < size ? t->T - first : size));
    return pb_gradient_add(
        ctx, &(pb_gradient_add_args){.x = &t->report->loss, .y = t->step_loss, .n = 1, .add = t->accumulate});
}
