/* tensors.c - lists the tensors of a trainer, and computes their statistics. */
#include "trainer/step/tensors.h"

#include <stdio.h>

#include "trainer/step/trainer_impl.h"

/* The receiver of the list, and its first failure. */
typedef struct receiver {
    pb_tensor_fn each;
    void *self;
    pb_status status;
} receiver;

static void give(receiver *r, const char *owner, const char *part, int layer, const void *p, size_t rows, size_t cols,
                 pb_dtype dtype)
{
    pb_tensor x = {.layer = layer, .dtype = dtype, .rows = rows, .cols = cols, .p = p};
    if (!p || r->status != PB_OK) return;
    snprintf(x.name, sizeof x.name, "%s%s%s", owner, *owner ? "." : "", part);
    r->status = r->each(r->self, &x);
}

static void give_parameter(const pb_trainer *t, const pb_param *p, receiver *r)
{
    const bool whole = !t->weights.on, own = p->trained && !t->shards.on;
    give(r, p->name, "weight", p->layer, whole ? p->w : NULL, p->rows, p->cols, p->dtype);
    give(r, p->name, "gradient", p->layer, p->trained && !t->gradients.shared.on ? p->sum : NULL, p->rows, p->cols,
         PB_F32);
    /* Codes of 8 bits are no values without the scales of their blocks. */
    const bool readable = own && p->moments != PB_ADAMW_8BIT;
    const pb_dtype moments = p->moments == PB_ADAMW_BF16 ? PB_BF16 : PB_F32;
    give(r, p->name, "momentum", p->layer, readable ? p->m : NULL, p->rows, p->cols, moments);
    give(r, p->name, "v", p->layer, readable ? p->v : NULL, p->rows, p->by_rows ? 1 : p->cols, moments);
}

typedef struct layer_of {
    receiver *r;
    char name[24];
    int layer;
} layer_of;

static void give_of_layer(void *self, const char *part, const void *p, size_t rows, size_t cols, pb_dtype dtype)
{
    const layer_of *l = self;
    give(l->r, l->name, part, l->layer, p, rows, cols, dtype);
}

static void give_layer(const pb_trainer *t, int layer, receiver *r)
{
    const pb_layer_acts *a = &t->layers[layer];
    const pb_dtype dt = t->model.cfg.dtype;
    const size_t T = (size_t)t->T, D = (size_t)t->model.g.D;
    layer_of l = {.r = r, .layer = layer};
    snprintf(l.name, sizeof l.name, "layers.%d", layer);
    give(r, l.name, "h", layer, a->h, T, D, dt);
    if (layer == 0 || !pb_shares_attention(t)) {
        give(r, l.name, "n1", layer, a->n1, T, D, dt);
        t->block->tensors(t, layer, give_of_layer, &l);
    }
    if (layer == 0 || !pb_shares_attention(t) || !pb_shares_mlp(t)) give(r, l.name, "hm", layer, a->hm, T, D, dt);
    if (layer > 0 && pb_shares_mlp(t)) return;
    give(r, l.name, "n2", layer, a->n2, T, D, dt);
    give(r, l.name, "gu", layer, a->gu, T, 2 * (size_t)t->model.g.I, dt);
}

pb_status pb_trainer_tensors(const pb_trainer *t, pb_tensor_fn each, void *self)
{
    receiver r = {each, self, PB_OK};
    const size_t T = (size_t)t->T, D = (size_t)t->model.g.D, V = (size_t)t->model.g.V;
    const pb_dtype dt = t->model.cfg.dtype;
    for (int i = 0; i < t->model.g.L; i++) give_layer(t, i, &r);
    give(&r, "", "hf", -1, t->hf, T, D, dt);
    give(&r, "", "nf", -1, t->nf, T, D, dt);
    give(&r, "", "logits", -1, t->cfg.loss_chunk ? NULL : t->logits, T, V, dt);
    for (int i = 0; i < t->model.n; i++) give_parameter(t, &t->model.params[i], &r);
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
