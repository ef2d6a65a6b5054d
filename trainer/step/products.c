/* products.c - computes the matrix products of a layer, with biases and adapters, and their gradients. */
#include "trainer/step/products.h"

#include "kernels/linear/linear.h"
#include "kernels/lora/lora.h"
#include "kernels/nf4_linear/nf4_linear.h"
#include "trainer/step/gradients.h"

const pb_product pb_product_qkv = {PB_P_qkv, PB_P_qkv_bias, PB_TARGET_Q, 3};
const pb_product pb_product_o = {PB_P_o, PB_P_o_bias, PB_TARGET_O, 1};
const pb_product pb_product_gate_up = {PB_P_gate_up, -1, PB_TARGET_GATE, 2};
const pb_product pb_product_down = {PB_P_down, -1, PB_TARGET_DOWN, 1};

static bool has_adapters(const pb_trainer *t, int layer, const pb_product *pr)
{
    bool any = false;
    for (int i = 0; i < pr->targets; i++) any |= pb_has_adapter(t, layer, (pb_target)((int)pr->first + i));
    return any;
}

const char *pb_product_ops(const pb_trainer *t, int layer, const pb_product *pr)
{
    static const char *const names[2][2] = {{"linear_fwd", "linear_fwd+lora_fwd"},
                                            {"nf4_linear_fwd", "nf4_linear_fwd+lora_fwd"}};
    return names[pb_layer_param(&t->model, layer, pr->param)->q != NULL][has_adapters(t, layer, pr)];
}

const char *pb_product_back_ops(const pb_trainer *t, int layer, const pb_product *pr)
{
    static const char *const names[2][2] = {{"linear_dx", "linear_dx+lora_bwd"},
                                            {"nf4_linear_dx", "nf4_linear_dx+lora_bwd"}};
    return names[pb_layer_param(&t->model, layer, pr->param)->q != NULL][has_adapters(t, layer, pr)];
}

/* x A^T of an adapter at the first of the rows. */
static void *xa_at(const pb_trainer *t, int layer, int target, pb_rows r)
{
    const size_t row = (size_t)t->model.cfg.rank * pb_dtype_size(t->model.cfg.dtype);
    return (unsigned char *)t->layers[layer].xa[target] + (size_t)r.first * row;
}

pb_status pb_product_adapters(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r,
                              const void *x, void *y)
{
    const pb_model *m = &t->model;
    const size_t ldy = pb_layer_param(m, layer, pr->param)->rows;
    pb_lora_fwd_args a = {
        .x = x, .T = r.n, .R = m->cfg.rank, .scale = m->cfg.alpha / (float)m->cfg.rank, .dtype = m->cfg.dtype};
    for (int i = (int)pr->first; i < (int)pr->first + pr->targets; i++) {
        const pb_param *la = m->lora_a[layer * PB_NTARGETS + i], *lb = m->lora_b[layer * PB_NTARGETS + i];
        int offset;
        if (!la) continue;
        pb_lora_target *g = &a.target[a.n++];
        pb_target_shape(&m->g, (pb_target)i, &a.K, &g->N, &offset);
        g->a = la->w;
        g->b = lb->w;
        g->xa = xa_at(t, layer, i, r);
        g->y = pb_column(t, y, offset);
        g->ldy = ldy;
    }
    return a.n ? pb_lora_fwd(ctx, &a) : PB_OK;
}

pb_status pb_product_fwd(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r, const void *x,
                         void *y)
{
    const pb_param *w = pb_layer_param(&t->model, layer, pr->param);
    const pb_param *b = pr->bias < 0 ? NULL : pb_layer_param(&t->model, layer, pr->bias);
    const float *bias = b ? b->w : NULL;
    const int N = (int)w->rows, K = (int)w->cols;
    if (w->q)
        PB_TRY(pb_nf4_linear_fwd(ctx, &(pb_nf4_linear_fwd_args){.x = x,
                                                                .q = w->q,
                                                                .scales = w->scales,
                                                                .bias = bias,
                                                                .y = y,
                                                                .T = r.n,
                                                                .N = N,
                                                                .K = K,
                                                                .dtype = w->dtype}));
    else
        PB_TRY(pb_linear_fwd(
            ctx, &(pb_linear_fwd_args){
                     .x = x, .w = w->w, .bias = bias, .y = y, .T = r.n, .N = N, .K = K, .dtype = w->dtype}));
    return pb_product_adapters(ctx, t, layer, pr, r, x, y);
}

/* Backward of the adapters of a product with input x: adds their contribution to dx and computes
 * the gradients of A and B. */
static pb_status adapters_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r,
                               const void *x, const void *dy, void *dx, int lddy)
{
    const pb_model *m = &t->model;
    pb_lora_bwd_args a = {.x = x,
                          .dx = dx,
                          .T = r.n,
                          .R = m->cfg.rank,
                          .scale = m->cfg.alpha / (float)m->cfg.rank,
                          .accumulate = r.first > 0 || pb_adds(t),
                          .dtype = m->cfg.dtype};
    for (int i = (int)pr->first; i < (int)pr->first + pr->targets; i++) {
        const pb_param *la = m->lora_a[layer * PB_NTARGETS + i], *lb = m->lora_b[layer * PB_NTARGETS + i];
        int offset;
        if (!la) continue;
        pb_lora_grad *g = &a.target[a.n++];
        pb_target_shape(&m->g, (pb_target)i, &a.K, &g->N, &offset);
        g->a = la->w;
        g->b = lb->w;
        g->xa = xa_at(t, layer, i, r);
        g->dy = pb_column(t, (void *)dy, offset);
        g->da = la->grad;
        g->db = lb->grad;
        g->lddy = (size_t)lddy;
    }
    return a.n ? pb_lora_bwd(ctx, &a) : PB_OK;
}

bool pb_has_adapter(const pb_trainer *t, int layer, pb_target target)
{
    return t->model.lora_a[layer * PB_NTARGETS + (int)target];
}

bool pb_product_reads_input(const pb_trainer *t, int layer, const pb_product *pr)
{
    return pb_layer_param(&t->model, layer, pr->param)->trained || has_adapters(t, layer, pr);
}

pb_status pb_product_dx(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r, const void *dy,
                        const void *x, void *dx)
{
    const pb_param *w = pb_layer_param(&t->model, layer, pr->param);
    const int N = (int)w->rows, K = (int)w->cols;
    if (w->q)
        PB_TRY(pb_nf4_linear_dx(
            ctx, &(pb_nf4_linear_dx_args){
                     .dy = dy, .q = w->q, .scales = w->scales, .dx = dx, .T = r.n, .N = N, .K = K, .dtype = w->dtype}));
    else
        PB_TRY(pb_linear_dx(
            ctx, &(pb_linear_dx_args){.dy = dy, .w = w->w, .dx = dx, .T = r.n, .N = N, .K = K, .dtype = w->dtype}));
    return adapters_back(ctx, t, layer, pr, r, x, dy, dx, N);
}

pb_status pb_product_dw(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r, const void *dy,
                        const void *x)
{
    const pb_param *w = pb_layer_param(&t->model, layer, pr->param);
    const pb_param *b = pr->bias < 0 ? NULL : pb_layer_param(&t->model, layer, pr->bias);
    pb_dtype dw_dtype;
    void *dw = pb_gradient_written(t, w, &dw_dtype);
    if (!w->trained) return PB_OK;
    return pb_linear_dw(ctx, &(pb_linear_dw_args){.dy = dy,
                                                  .x = x,
                                                  .dw = dw,
                                                  .dbias = pb_grad_of(b),
                                                  .T = r.n,
                                                  .N = (int)w->rows,
                                                  .K = (int)w->cols,
                                                  .accumulate = r.first > 0 || pb_adds(t),
                                                  .dtype = w->dtype,
                                                  .dw_dtype = dw_dtype});
}
