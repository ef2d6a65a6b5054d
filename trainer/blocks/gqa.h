/* gqa.h - activations and buffers of the grouped-query attention block. T = B*S tokens; W = (H+2K)d, the width of q, k
 * and v together.
 *
 * In the Doge family (g->keep > 0) attention is dynamic-mask attention: each query attends to the keys with the largest
 * biases, and the bias of a key, which its value determines, is added to its scores (gqa_dynamic.c). */
#ifndef PB_GQA_H
#define PB_GQA_H
#include "kernels/dynmask_attention/dynmask_attention.h"
#include "trainer/step/trainer_impl.h"

/* Activations that one layer keeps from the forward to the backward pass. */
typedef struct pb_gqa_acts {
    void *qkv;            /* [T,W] after bias and adapters; without QK-norm, q and k are rotated in place */
    void *qk;             /* [T,(H+K)d] normed and rotated q and k; NULL without QK-norm */
    float *rstdq, *rstdk; /* [T,H], [T,K]; only with QK-norm */
    void *o;              /* [T,H*d] output of attention before the projection o */
    float *lse;           /* [B,H,S] log-sum-exp of each query's scores */
    /* Only with dynamic-mask attention: u and biases of the keys [B,K,S] (dynmask_bias.h), and the key lists [B,K,S]
     * (dynmask_keys.h); with context parallelism, those of whole rows. */
    float *u, *bias;
    int32_t *list, *until;
} pb_gqa_acts;

/* Buffers that all layers share. */
typedef struct pb_gqa {
    float *cos, *sin; /* [S,d/2] RoPE tables */
    void *cache;      /* [L,S,2,K,d] keys (normed and rotated) and values of the row's tokens; NULL unless cfg.cached */
    void *dqkv;       /* [T,W] */
    void *dattn;      /* [T,H*d] */
    float *dbias;     /* [B,K,S]; only with dynamic-mask attention */
    /* Only with context parallelism (gqa_context.c); `row` is the length of a whole row. kv: keys and values of this
     * rank's tokens [T,2,K,d]; all: those of all ranks [B,row,2,K,d]; blocks [row/2,2,K,d]: the second chunks of one
     * batch row in the order of the ranks. */
    void *kv, *all, *blocks;
    float *dall;  /* [row,2,K,d] this rank's terms of the gradients of one batch row's keys and values */
    float *dpart; /* [row,2,K,d] terms of its first chunk's queries; later the second half of `dall` in reverse order */
    float *dkv;   /* [T,2,K,d] the gradients of this rank's keys and values, added over the ranks */
    /* Only with context parallelism and dynamic-mask attention. starts [B,row]: first token of each token's
     * conversation; part_bias [K,keys]: biases of the `keys` keys that a chunk's queries may attend to; row_dbias,
     * chunk_dbias [K,row]: terms of the gradients of a batch row's biases, of all chunks of this rank and of one;
     * all_dbias [K,row]: as the op writes them for a chunk, then the sums over the ranks; own_u [B,K,S]: u of this
     * rank's keys */
    int32_t *starts;
    float *part_bias, *row_dbias, *chunk_dbias, *all_dbias, *own_u;
} pb_gqa;

/* The inputs of attention: the queries of the batch, and `keys` keys and values, of which the last S are the
 * batch's. */
typedef struct pb_gqa_inputs {
    void *q, *k, *v;
    size_t ldq, ldk, ldv; /* distance between tokens in elements */
    int keys;
} pb_gqa_inputs;

/* A chunk of batch row `row`: `length` tokens, the first of which is number `token` of this rank's tokens. Its last
 * token attends to `keys` keys of the row. */
typedef struct pb_gqa_chunk {
    int row, length, keys;
    size_t token;
} pb_gqa_chunk;

static inline const pb_gqa *pb_gqa_of(const pb_trainer *t) { return t->block_state; }
static inline const pb_gqa_acts *pb_gqa_layer(const pb_trainer *t, int layer) { return t->layers[layer].block; }

/* Output width of the product that computes q, k and v. */
static inline int pb_qkv_width(const pb_geometry *g) { return (g->H + 2 * g->K) * g->d; }
/* Sets *q and *k to the q and k that attention reads (after norm and RoPE), and *ld to the distance between their
 * tokens in elements. */
static inline void pb_attention_inputs(const pb_trainer *t, const pb_gqa_acts *a, void **q, void **k, size_t *ld)
{
    const pb_geometry *g = &t->model.g;
    *q = a->qk ? a->qk : a->qkv;
    *k = pb_column(t, *q, g->H * g->d);
    *ld = a->qk ? (size_t)(g->H + g->K) * g->d : (size_t)pb_qkv_width(g);
}

/* Dynamic-mask attention. lists computes the biases and key lists of the x->keys keys of every batch row. fwd_args and
 * bwd_args return the arguments of attention for the whole batch. bias_back computes, from s->dbias, the gradients of
 * the biases' parameters, and adds those of the values to dqkv; u [B,K,S]: u of the batch's keys. */
pb_status pb_gqa_dynamic_lists(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x);
pb_dynmask_attention_fwd_args pb_gqa_dynamic_fwd_args(const pb_trainer *t, int layer, const pb_gqa_inputs *x);
pb_dynmask_attention_bwd_args pb_gqa_dynamic_bwd_args(const pb_trainer *t, int layer, const pb_gqa_inputs *x);
pb_status pb_gqa_dynamic_bias_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x, const float *u);
/* Dynamic-mask attention of rows that several ranks share (trainer/blocks/gqa_dynamic_context.c). starts uploads where
 * the conversations of whole rows begin. begin computes biases and key lists of whole rows from the gathered values.
 * chunk computes o and lse of a chunk's queries. chunk_back computes their dq, and in dkv [c->keys,2,K,d] their terms
 * of the gradients of keys and values; it writes their terms of the gradients of the biases to s->row_dbias or, with
 * `add`, adds them. row_end sums s->row_dbias over the ranks, and writes this rank's part to s->dbias. end calls
 * bias_back. */
pb_status pb_gqa_dynamic_begin(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_gqa_dynamic_chunk(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x,
                               const pb_gqa_chunk *c);
pb_status pb_gqa_dynamic_chunk_back(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x,
                                    const pb_gqa_chunk *c, float *dkv, bool add);
pb_status pb_gqa_dynamic_row_end(pb_ctx *ctx, const pb_trainer *t, int row);
pb_status pb_gqa_dynamic_end(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x);
pb_status pb_gqa_dynamic_starts(pb_trainer *t, const pb_batch *b, int S);
/* Dynamic-mask attention: computes a->o and what the backward pass reads; then the gradients of q, k and v in dqkv, and
 * those of the biases' parameters. */
pb_status pb_gqa_dynamic_forward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x);
pb_status pb_gqa_dynamic_backward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x);
/* Context parallelism: reserves its buffers, those of the backward pass or the others; computes a->o and what the
 * backward pass reads; then the gradients of q, k and v in dqkv. */
void pb_gqa_context_carve(pb_trainer *t, bool backward);
pb_status pb_gqa_context_forward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x);
pb_status pb_gqa_context_backward(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_gqa_inputs *x);
/* The chunk `part` of batch row `row`; elements of the keys and values of a token; pointer to token `token` of a tensor
 * of the model's dtype, whose tokens are ld elements apart. */
pb_gqa_chunk pb_gqa_chunk_of(const pb_trainer *t, int row, int part);
static inline size_t pb_kv_width(const pb_trainer *t) { return 2 * (size_t)t->model.g.K * (size_t)t->model.g.d; }
static inline void *pb_token(const pb_trainer *t, const void *p, size_t token, size_t ld)
{
    return (unsigned char *)p + token * ld * pb_dtype_size(t->model.cfg.dtype);
}
pb_status pb_gqa_forward(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_gqa_recompute(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_gqa_backward(pb_ctx *ctx, const pb_trainer *t, int layer);
#endif
