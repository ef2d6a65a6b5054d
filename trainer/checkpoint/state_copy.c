/* state_copy.c - copies to host memory what a rank writes of a checkpoint, so that training can continue while it is
 * written. */
#include <stdlib.h>
#include <string.h>

#include "trainer/checkpoint/state_impl.h"

struct pb_state_copy {
    unsigned char *state; /* the tensors, as pb_state_copied describes */
    pb_adamw_state scalars;
    unsigned char *weights; /* those that pb_peft_save reads; NULL: it reads none of this rank */
    pb_ctx ctx;             /* of the CPU: the model below is host memory */
    pb_model model;         /* the trainer's, with params and the lists of them replaced */
};

const unsigned char *pb_state_copied(const pb_state_copy *c) { return c->state; }
const pb_adamw_state *pb_state_copied_scalars(const pb_state_copy *c) { return &c->scalars; }
pb_model *pb_state_copy_model(pb_state_copy *c) { return &c->model; }

/* ---- sizes --------------------------------------------------------------------------------------------------- */

static size_t state_bytes(const pb_trainer *t)
{
    size_t n = 0;
    for (size_t i = 0; i < pb_state_written(t); i++) {
        const pb_state_tensor x = pb_state_written_at(t, i);
        n += pb_state_bytes(&x);
    }
    return n;
}

/* True for the weights that pb_peft_save reads: adapters, and the gains of the layers. */
static bool exported(const pb_param *p)
{
    return p->kind == PB_KIND_ADAPTER || (p->kind == PB_KIND_GAIN && p->layer >= 0);
}

/* The type in which a weight is copied: adapters are exported from their f32 masters. */
static pb_dtype copied_dtype(const pb_param *p) { return p->kind == PB_KIND_ADAPTER ? PB_F32 : p->dtype; }

/* Bytes of a copied weight, rounded up so that the next one is aligned. */
static size_t weight_bytes(const pb_param *p)
{
    return (pb_param_n(p) * pb_dtype_size(copied_dtype(p)) + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

static size_t all_weights(const pb_trainer *t)
{
    size_t n = 0;
    if (pb_comm_rank(t->cfg.comm) != 0 || t->cfg.model.tuning == PB_FULL) return 0;
    for (int i = 0; i < t->model.n; i++)
        if (exported(&t->model.params[i])) n += weight_bytes(&t->model.params[i]);
    return n;
}

size_t pb_state_copy_bytes(const pb_trainer *t) { return state_bytes(t) + all_weights(t); }

/* ---- the model of the copy ----------------------------------------------------------------------------------- */

/* A list of n pointers into `from`, as pointers to the same entries of `to`; NULL: no memory. */
static pb_param **moved(pb_param *const *list, size_t n, const pb_param *from, pb_param *to)
{
    pb_param **out = calloc(n + 1, sizeof(pb_param *));
    for (size_t i = 0; out && i < n; i++) out[i] = list[i] ? to + (list[i] - from) : NULL;
    return out;
}

/* Makes a model whose adapters and gains are in c->weights. Every other weight is absent. */
static pb_status make_model(pb_state_copy *c, const pb_model *from)
{
    const size_t L = (size_t)from->g.L;
    unsigned char *at = c->weights;
    pb_model *m = &c->model;
    *m = *from;
    m->ctx = &c->ctx;
    m->cfg.sharded = m->cfg.no_weights = false;
    m->params = calloc((size_t)from->n, sizeof *m->params);
    m->layer = moved(from->layer, L * PB_NPARAMS, from->params, m->params);
    m->lora_a = moved(from->lora_a, L * PB_NTARGETS, from->params, m->params);
    m->lora_b = moved(from->lora_b, L * PB_NTARGETS, from->params, m->params);
    if (!m->params || !m->layer || !m->lora_a || !m->lora_b)
        return pb_fail(PB_ENOMEM, "no memory for the copy of the adapters");
    for (int i = 0; i < from->n; i++) {
        pb_param *p = &m->params[i];
        *p = from->params[i];
        p->w = p->q = NULL;
        p->master = p->grad = p->sum = NULL;
        p->m = p->v = NULL;
        if (!exported(p)) continue;
        p->w = at;
        p->dtype = copied_dtype(p);
        at += weight_bytes(&from->params[i]);
    }
    return PB_OK;
}

static pb_status allocate(pb_state_copy *c, const pb_trainer *t)
{
    const size_t state = state_bytes(t), weights = all_weights(t);
    c->state = malloc(state + 1);
    c->weights = weights ? malloc(weights) : NULL;
    if (!c->state || (weights && !c->weights))
        return pb_fail(PB_ENOMEM, "no memory for a copy of the training state: %.1f MB",
                       1e-6 * (double)(state + weights));
    PB_TRY(pb_ctx_open(&c->ctx, PB_CPU, 0));
    return weights ? make_model(c, &t->model) : PB_OK;
}

pb_status pb_state_copy_open(pb_trainer *t, pb_state_copy **out)
{
    pb_state_copy *c = calloc(1, sizeof *c);
    const pb_status s = c ? allocate(c, t) : pb_fail(PB_ENOMEM, "no memory for a copy of the training state");
    if (s == PB_OK) *out = c;
    else pb_state_copy_close(c);
    return s;
}

void pb_state_copy_close(pb_state_copy *c)
{
    if (!c) return;
    free(c->model.params);
    free(c->model.layer);
    free(c->model.lora_a);
    free(c->model.lora_b);
    if (c->ctx.be) pb_ctx_close(&c->ctx);
    free(c->weights);
    free(c->state);
    free(c);
}

/* ---- copying ------------------------------------------------------------------------------------------------- */

pb_status pb_state_copy_take(pb_state_copy *c, const pb_trainer *t)
{
    unsigned char *at = c->state;
    for (size_t i = 0; i < pb_state_written(t); i++) {
        const pb_state_tensor x = pb_state_written_at(t, i);
        const size_t bytes = pb_state_bytes(&x);
        if (bytes) PB_TRY(pb_download(t->ctx, at, x.device, bytes));
        at += bytes;
    }
    return pb_state_written_scalars(t) ? pb_download(t->ctx, &c->scalars, t->state, sizeof c->scalars) : PB_OK;
}

typedef struct taking {
    pb_state_copy *c;
    pb_model *from;
} taking;

/* On rank 0. */
static pb_status take_weights(void *self)
{
    const taking *x = self;
    for (int i = 0; i < x->from->n; i++) {
        const pb_param *p = &x->from->params[i], *to = &x->c->model.params[i];
        if (!exported(p)) continue;
        PB_TRY(pb_model_hold(x->from, p));
        const bool master = p->kind == PB_KIND_ADAPTER && p->master;
        PB_TRY(pb_download(x->from->ctx, to->w, master ? p->master : p->w, pb_param_n(p) * pb_dtype_size(to->dtype)));
    }
    return PB_OK;
}

pb_status pb_state_copy_take_model(pb_state_copy *c, pb_trainer *t)
{
    if (t->cfg.model.tuning == PB_FULL) return PB_OK;
    PB_TRY(pb_trainer_gather_masters(t, true));
    const pb_status s = pb_trainer_read(t, take_weights, &(taking){c, &t->model});
    PB_TRY(pb_trainer_gather_masters(t, false));
    return s;
}
