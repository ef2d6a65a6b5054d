/* tensors.c - lists the tensors of a trainer, and computes their statistics. */
#include "trainer/step/tensors.h"

#include <stdio.h>

#include "trainer/step/gradients.h"
#include "trainer/step/observe.h"
#include "trainer/step/products.h"

/* The receiver of the list, and its first failure. */
typedef struct receiver {
    pb_tensor_fn each;
    void *self;
    pb_status status;
} receiver;

static void give(receiver *r, const char *owner, const char *part, pb_tensor x)
{
    if (!x.p || r->status != PB_OK) return;
    snprintf(x.name, sizeof x.name, "%s%s%s", owner, *owner ? "." : "", part);
    r->status = r->each(r->self, &x);
}

static pb_tensor with_ops(pb_tensor x, const char *ops)
{
    snprintf(x.ops, sizeof x.ops, "%s", ops);
    return x;
}

static void give_matrix(receiver *r, const pb_param *p, const char *part, const void *x, size_t cols, pb_dtype dtype)
{
    give(r, p->name, part, (pb_tensor){.layer = p->layer, .dtype = dtype, .rows = p->rows, .cols = cols, .p = x});
}

static void give_parameter(const pb_trainer *t, const pb_param *p, receiver *r)
{
    const bool whole = !t->weights.on, own = p->trained && !t->shards.on;
    give_matrix(r, p, "weight", whole ? p->w : NULL, p->cols, p->dtype);
    pb_dtype dtype = PB_F32;
    const void *gradient = p->trained && !t->gradients.shared.on ? pb_gradient_sum(t, p, &dtype) : NULL;
    give_matrix(r, p, "gradient", gradient, p->cols, dtype);
    /* Codes of 8 bits are no values without the scales of their blocks. */
    const bool readable = own && p->moments != PB_ADAMW_8BIT;
    const pb_dtype moments = p->moments == PB_ADAMW_BF16 ? PB_BF16 : PB_F32;
    give_matrix(r, p, "momentum", readable ? p->m : NULL, p->cols, moments);
    give_matrix(r, p, "v", readable ? p->v : NULL, p->by_rows ? 1 : p->cols, moments);
}

typedef struct layer_of {
    receiver *r;
    const pb_trainer *t;
    char name[24];
    int layer;
} layer_of;

static void give_of_layer(void *self, const pb_given *x)
{
    const layer_of *l = self;
    const pb_tensor y = {.layer = l->layer,
                         .dtype = x->dtype,
                         .rows = x->rows,
                         .cols = x->cols,
                         .p = x->p,
                         .by_token = !x->by_head && x->rows == (size_t)l->t->T,
                         .by_head = x->by_head,
                         .head = x->head};
    give(l->r, l->name, x->name, with_ops(y, x->ops));
}

/* Gives an activation of the layer with T rows. */
static void give_tokens(layer_of *l, const char *name, const char *ops, const void *p, size_t cols)
{
    give_of_layer(
        l,
        &(pb_given){
            .name = name, .ops = ops, .p = p, .rows = (size_t)l->t->T, .cols = cols, .dtype = l->t->model.cfg.dtype});
}

/* Names the ops that add the output of a block or an MLP to the residual stream. */
static const char *adds(const pb_trainer *t, int layer, int factor)
{
    return pb_layer_param(&t->model, layer, factor) ? "residual_fwd+addnorm_fwd" : "addnorm_fwd";
}

/* Names the ops that compute hm of a layer from o (DeepSeek-V4: from low). */
static void name_attention_output(const pb_trainer *t, int layer, char out[PB_OPS_TEXT])
{
    const char *product = t->model.g.v4 ? "linear_fwd" : pb_product_ops(t, layer, &pb_product_o);
    snprintf(out, PB_OPS_TEXT, "%s+%s", product, adds(t, layer, PB_P_residual1));
}

/* Names the ops that compute the residual stream after a layer from gu. */
static void name_mlp_output(const pb_trainer *t, int layer, char out[PB_OPS_TEXT])
{
    snprintf(out, PB_OPS_TEXT, "swiglu_fwd+%s+%s", pb_product_ops(t, layer, &pb_product_down),
             adds(t, layer, PB_P_residual2));
}

/* all: also the activations whose memory layers share because they are computed again. */
static void give_layer(const pb_trainer *t, int layer, bool all, receiver *r)
{
    const pb_layer_acts *a = &t->layers[layer];
    const size_t D = (size_t)t->model.g.D;
    layer_of l = {.r = r, .t = t, .layer = layer};
    char ops[PB_OPS_TEXT] = "embedding_fwd";
    snprintf(l.name, sizeof l.name, "layers.%d", layer);
    if (layer) name_mlp_output(t, layer - 1, ops);
    give_tokens(&l, "h", ops, a->h, D);
    if (all || !pb_shares_n1(t)) give_tokens(&l, "n1", layer ? "addnorm_fwd" : "rmsnorm_fwd", a->n1, D);
    if (all || !pb_shares_attention(t)) t->block->tensors(t, layer, give_of_layer, &l);
    name_attention_output(t, layer, ops);
    if (all || !pb_shares_attention(t) || !pb_shares_mlp(t)) give_tokens(&l, "hm", ops, a->hm, D);
    if (all || !pb_shares_n2(t)) give_tokens(&l, "n2", "addnorm_fwd", a->n2, D);
    if (!all && pb_shares_mlp(t)) return;
    if (pb_mlp_rows(t) < t->T) return; /* gu of all tokens is never in memory */
    give_tokens(&l, "gu", pb_product_ops(t, layer, &pb_product_gate_up), a->gu, 2 * (size_t)t->model.g.I);
}

/* Gives an activation of no layer with T rows. */
static void give_outer(const pb_trainer *t, receiver *r, const char *name, const char *ops, const void *p, size_t cols)
{
    const pb_tensor x = {
        .layer = -1, .dtype = t->model.cfg.dtype, .rows = (size_t)t->T, .cols = cols, .p = p, .by_token = true};
    give(r, "", name, with_ops(x, ops));
}

pb_tensor_place pb_tensor_place_of(const pb_trainer *t, const pb_tensor *x, size_t index)
{
    const size_t S = (size_t)t->S, row = index / x->cols, col = index % x->cols;
    if (x->by_token) {
        const size_t token = (size_t)pb_context_token(&t->context, t->row, (int)(row % S));
        return (pb_tensor_place){(long)(row / S), (long)token, x->head ? (long)(col / (size_t)x->head) : -1};
    }
    if (!x->by_head) return (pb_tensor_place){-1, -1, -1};
    /* [B,parts,heads,L]: attention runs on each chunk of L tokens that the rank has of a batch row. */
    const size_t L = S / (size_t)pb_context_parts(&t->context), heads = x->rows / (size_t)t->cfg.B;
    const size_t in_row = index % (heads * S), part = in_row / (heads * L);
    const size_t token = (size_t)pb_context_token(&t->context, t->row, (int)(part * L + in_row % L));
    return (pb_tensor_place){(long)(index / (heads * S)), (long)token, (long)(in_row % (heads * L) / L)};
}

bool pb_trainer_recomputes(const pb_trainer *t) { return pb_shares_n1(t) || pb_shares_n2(t); }

/* True if the backward pass gives the activations of layers to a callback. */
static bool gives_layers(const pb_trainer *t) { return t->observer && pb_trainer_recomputes(t); }

pb_status pb_observe_layer(const pb_trainer *t, int layer)
{
    receiver r = {t->observer, t->observer_self, PB_OK};
    if (gives_layers(t)) give_layer(t, layer, true, &r);
    return r.status;
}

pb_status pb_observe_last_norm(const pb_trainer *t)
{
    receiver r = {t->observer, t->observer_self, PB_OK};
    if (gives_layers(t) && pb_shares_nf(t)) give_outer(t, &r, "nf", "addnorm_fwd", t->nf, (size_t)t->model.g.D);
    return r.status;
}

pb_status pb_trainer_activations(const pb_trainer *t, pb_tensor_fn each, void *self)
{
    receiver r = {each, self, PB_OK};
    const size_t D = (size_t)t->model.g.D, V = (size_t)t->model.g.V;
    char ops[PB_OPS_TEXT];
    for (int i = 0; i < t->model.g.L && !gives_layers(t); i++) give_layer(t, i, i == 0 && t->model.cfg.frozen, &r);
    name_mlp_output(t, t->model.g.L - 1, ops);
    give_outer(t, &r, "hf", ops, t->hf, D);
    if (!pb_shares_nf(t) || t->model.cfg.frozen) give_outer(t, &r, "nf", "addnorm_fwd", t->nf, D);
    give_outer(t, &r, "logits", "linear_fwd+xent_bwd", t->cfg.loss_chunk ? NULL : t->logits, V);
    return r.status;
}

pb_status pb_trainer_parameters(const pb_trainer *t, pb_tensor_fn each, void *self)
{
    receiver r = {each, self, PB_OK};
    for (int i = 0; i < t->model.n; i++) give_parameter(t, &t->model.params[i], &r);
    return r.status;
}

pb_status pb_trainer_tensors(const pb_trainer *t, pb_tensor_fn each, void *self)
{
    PB_TRY(pb_trainer_activations(t, each, self));
    return pb_trainer_parameters(t, each, self);
}

void pb_trainer_observe(pb_trainer *t, pb_tensor_fn each, void *self, bool gradients)
{
    t->observer = each;
    t->observer_self = self;
    t->observes_gradients = each && gradients;
}

pb_status pb_observe(const pb_trainer *t, int layer, const char *name, const char *ops, const void *p, size_t cols,
                     int head)
{
    char owner[24] = "";
    receiver r = {t->observer, t->observer_self, PB_OK};
    if (!t->observes_gradients) return PB_OK;
    if (layer >= 0) snprintf(owner, sizeof owner, "layers.%d", layer);
    const pb_tensor x = {.layer = layer,
                         .dtype = t->model.cfg.dtype,
                         .rows = (size_t)t->T,
                         .cols = cols,
                         .p = p,
                         .by_token = true,
                         .head = head};
    give(&r, owner, name, with_ops(x, ops));
    return r.status;
}

pb_tensor_statistics pb_tensor_statistics_of(const void *host, size_t n, pb_dtype dtype)
{
    pb_tensor_statistics s = {.first = n};
    size_t finite = 0;
    double squares = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = pb_load(host, i, dtype);
        if (!isfinite(x)) {
            if (isnan(x)) s.nans++;
            else s.infs++;
            if (s.first == n) s.first = i;
            continue;
        }
        if (!finite || x < s.min) s.min = x;
        if (!finite || x > s.max) s.max = x;
        s.zeros += x == 0;
        squares += x * x;
        finite++;
    }
    s.rms = finite ? sqrt(squares / (double)finite) : 0;
    return s;
}
