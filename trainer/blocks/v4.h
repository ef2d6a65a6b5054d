/* v4.h - the DeepSeek-V4 attention block of the trainer: formulas, stored activations, and omissions.
 *
 * x = n1 [T,D] is the input, T = B*S. There are H heads of d elements, whose last R elements RoPE rotates. A layer with
 * ratio > 0 has G = S/ratio compressed rows: key/value vectors that are each pooled from `ratio` tokens. C is the
 * number of columns of the compressor's values.
 *
 *     [q_a | kv_a | a | z] = x latent^T         widths q_rank, d, C, C
 *     qr = RMSNorm(q_a)        q0 = qr q_b^T        q = RoPE(q0 / rms over each head's d elements)
 *     kv[:S] = RoPE(RMSNorm(kv_a))       kv[S:] = RoPE(RMSNorm(compressor(a, z, ape))), row g at position g ratio
 *     o = sparse_mla(q, kv, idx, sink) / sqrt d        one kv head; a row of kv is both key and value
 *     proj = (grouped_linear(RoPE^-1(o), o_a)) o_b^T
 *
 * RoPE rotates neighbouring pairs (PB_ROPE_ADJACENT) at the token's position in its conversation. Layers without
 * compressed rows use the base g->theta without scaling; the others use compress_theta with YaRN. RoPE^-1 rotates back
 * by the query's position.
 *
 * idx is the key list of each query. It lists the window's tokens, then compressed rows. Only keys of the query's own
 * conversation, and only compressed rows whose tokens do not come after the query, are listed (mla_index). Which
 * compressed rows are listed depends on the configuration:
 *
 *     PB_ATTENTION_DENSE    all of them
 *     PB_ATTENTION_SPARSE   in layers of ratio 4 the topk that the lightning indexer scores highest; elsewhere all
 *
 * Both settings run the same kernel and differ in the key lists only. The independent reference for dense attention is
 * scripts/fixtures/v4_model_fixtures.py, which uses masks and no lists.
 *
 * The indexer's queries qr index_q^T, and its own compressed keys, are rotated in the same way. DeepSeek applies a
 * Hadamard transform to both; it is omitted here, because an orthogonal transform of queries and keys changes no score
 * (it only helps quantisation). The top-k selection has no gradient. Without index_loss the indexer's parameters are
 * therefore not trained: they have no gradient, no moments and no weight decay. With index_loss > 0 they learn, from
 * the loss of indexer_kl.h, to score compressed rows by the attention mass that these receive. That loss is summed over
 * all queries and divided by the number of loss tokens. It trains the indexer only: qr and x are constants in it.
 *
 * With kv_qat, all rows of kv are rounded to FP8 and back after RoPE (kv_qat.h); gradients pass through unchanged.
 *
 * In a packed row, conversations begin at multiples of the largest ratio (pb_sample_align), so that each conversation's
 * compressed rows pool the same tokens as without packing.
 *
 * With context parallelism, S and G above count the tokens and compressed rows of this rank's slice of a row; queries
 * attend to the keys of the whole row, which are gathered (trainer/blocks/v4_context.c).
 *
 * Not implemented: mixture of experts (the MLP is the dense SwiGLU of all families), hyper-connections, multi-token
 * prediction, adapters, and the layout of DeepSeek's checkpoints. */
#ifndef PB_V4_H
#define PB_V4_H
#include "kernels/indexer/indexer.h"
#include "trainer/step/trainer_impl.h"

/* Intermediate results of an indexer. */
typedef struct pb_v4_index {
    /* q [T,index_H*index_d]: queries after RoPE. in [T,2C_i+index_H]: the columns of the compressor's values, of its
     * gates and of the head weights, in this order. */
    void *q, *in;
    void *pooled, *k; /* [B,G,index_d] compressed rows before (pooled) and after (k) norm and RoPE */
    float *rstd, *w;  /* rstd [B,G]: 1/rms of each pooled row, from the norm; w [T,index_H]: head weights in f32 */
    int32_t *pick;    /* [B,S,topk] selected compressed rows */
} pb_v4_index;

/* Activations that one layer keeps from the forward to the backward pass. */
typedef struct pb_v4_acts {
    void *latent;       /* [T,q_rank+d+2C] outputs of the projections q_a, kv_a, a and z, column after column */
    void *qr;           /* [T,q_rank] */
    void *q0, *q;       /* [T,H*d] queries before (q0) and after (q) norm and RoPE */
    float *rstd_latent; /* [T] */
    float *rstd_q;      /* [T,H] */
    float *rstd_kv;     /* [T] */
    void *kv;           /* [B,S+G,d] keys, which are also the values: S tokens, then G compressed rows */
    void *pooled;       /* [B,G,d] the compressed rows before norm and RoPE */
    float *rstd_pooled; /* [B,G] */
    int32_t *idx;       /* [B,S,W] key lists made by this layer's indexer; NULL: the layer uses v4.lists */
    pb_v4_index index;  /* memory shared by all layers unless the indexers are trained */
    void *o;            /* [T,H*d] output of attention before RoPE^-1 */
    float *lse;         /* [T,H] */
    void *low;          /* [T,groups*o_rank] output of o_a, input of o_b */
} pb_v4_acts;

/* Key lists that depend on positions only, not on activations. Layers of the same ratio share one pb_v4_list. */
typedef struct pb_v4_list {
    int ratio;
    int32_t *idx; /* [B,S,W] */
} pb_v4_list;

/* Buffers for training the indexers. */
typedef struct pb_v4_index_back {
    /* mass [B,S,topk]: attention mass of the selected rows; score [B,S,topk]: their scores, then the gradients of the
     * scores; loss [L]: unweighted loss per layer */
    float *mass, *score, *loss;
    void *dq, *dk, *din; /* gradients of pb_v4_index's q, k and in */
    float *dw;           /* gradient of pb_v4_index's w */
} pb_v4_index_back;

/* RoPE tables: base g->theta (layers without compressed rows), and compress_theta with YaRN (layers with them). */
enum { PB_V4_PLAIN, PB_V4_COMPRESSED, PB_V4_TABLES };

/* Buffers that all layers share. */
typedef struct pb_v4 {
    float *cos[PB_V4_TABLES], *sin[PB_V4_TABLES]; /* [S,R/2] */
    float *one; /* [1] the constant 1: the sink's gradient is computed as that of a linear layer with input 1 */
    pb_v4_list lists[PB_V4_RATIOS];
    int nlists;
    void *wide, *normed; /* wide [T,H*d]: RoPE^-1(o), in the backward pass dq; normed [T,d]: key rows before RoPE */
    void *rows;          /* [B,S+G,d] kv before FP8; only with kv_qat */
    pb_v4_index index;   /* buffers of the indexer if it is not trained; otherwise each layer has its own */
    pb_v4_index_back index_back;
    void *dwide;                /* [T,H*d] */
    void *dlow, *dqr, *dlatent; /* gradients of low, qr and latent */
    /* Only with context parallelism, for rows of N tokens and M compressed rows. all [B,N+M,d]: the keys that this
     * rank's queries attend to, at their place among those of the whole row, N tokens, then M compressed rows;
     * index_all [B,M,index_d]: the keys of the indexer. start [B,S]: first token of each token's conversation, counted
     * from the slice's first token. */
    void *all, *index_all;
    int32_t *start;
    /* The edge: the last r tokens of the slice before this one; r = 4, the ratio of overlapping groups. joint: the edge
     * and the first r tokens of the slice. joint_start [B,2r]: first token of each one's conversation, counted from the
     * first of the 2r tokens; joint [B,2r,2C]: their values and gates; djoint: gradient of joint. edge_own [B,r,2C]:
     * values and gates of the last r tokens of this slice, which are sent to the next rank; in the backward pass the
     * gradients that go to the previous rank. edge_all: edge_own of all ranks. edge_row [B,2,D]: the two rows pooled
     * from joint; in the backward pass their gradients. */
    int32_t *joint_start;
    void *edge_own, *edge_all, *joint, *edge_row, *djoint;
    /* The terms that this rank's queries add to the gradients of all (dall) and index_all (dindex); dpart [B,S+G,d]:
     * the sums over the ranks of one of them, for the keys of this rank */
    float *dall, *dindex, *dpart;
    void *window_room; /* f32 [ranks,window-1,d]: keys that each rank sends to the next, or their gradients */
    /* dkv: gradient of kv; drow [T,d]: dkv of the token rows or of the compressed rows, after RoPE's backward */
    void *dkv, *drow;
    float *dsink; /* [H] */
} pb_v4;

static inline const pb_v4 *pb_v4_of(const pb_trainer *t) { return t->block_state; }
static inline const pb_v4_acts *pb_v4_layer(const pb_trainer *t, int layer) { return t->layers[layer].block; }

/* Dimensions of a layer for S tokens of every row. */
typedef struct pb_v4_shape {
    int ratio, G, S_kv;     /* ratio: tokens per compressed row; G = S/ratio: compressed rows; S_kv = S + G: keys */
    int row, row_G, row_kv; /* the same of the whole row: tokens, compressed rows, keys; without shared rows equal */
    int C, width;           /* C: columns of the compressor's values; width: columns of latent */
    int T, W;               /* entries per key list: T for compressed rows, W in all (window and compressed rows) */
    bool indexed;           /* true: the layer's indexer makes its key lists */
    int table;              /* RoPE table of the layer: PB_V4_PLAIN or PB_V4_COMPRESSED */
    /* step: ratio, or 1 in layers without compressed rows; index_C: columns of the indexer's values */
    int step, index_C;
} pb_v4_shape;
pb_v4_shape pb_v4_shape_of(const pb_trainer *t, int layer, int S);
/* The key lists [B,S,W] of a layer. */
const int32_t *pb_v4_lists(const pb_trainer *t, int layer);

/* Arguments that the functions of one layer's forward or backward pass share. */
typedef struct pb_v4_pass {
    pb_ctx *ctx;
    const pb_trainer *t;
    const pb_geometry *g;
    const pb_v4_acts *a;
    const pb_v4 *v;
    int layer;
    pb_v4_shape s;
    pb_dtype dtype;
} pb_v4_pass;
/* Returns the struct that describes the layer's indexer to the indexer ops. */
pb_indexer pb_v4_indexer(const pb_v4_pass *p);
pb_v4_pass pb_v4_pass_of(pb_ctx *ctx, const pb_trainer *t, int layer);
const pb_param *pb_v4_param(const pb_v4_pass *p, int id);
/* The keys [B,s.row_kv,d] to which the queries attend. */
static inline const void *pb_v4_keys(const pb_v4_pass *p) { return p->t->cfg.context ? p->v->all : p->a->kv; }
/* `start` of the tokens of this rank, counted from its first token; NULL: not packed. */
static inline const int32_t *pb_v4_start(const pb_v4_pass *p)
{
    return p->t->cfg.context && p->t->start ? p->v->start : p->t->start;
}

/* Context parallelism (trainer/blocks/v4_context.c). context_carve reserves buffers of the forward pass, or with
 * `backward` those of the backward pass; s: the largest layer. context_rows uploads where the conversations of a batch
 * begin; its rows have S tokens. Without context parallelism the other functions do nothing. gather_* gather the keys
 * that this rank's queries attend to; reduce_* sum the gradients of these keys over the ranks. edge_forward replaces row
 * 0 of c [B,G,D], which the compressor pooled from columns x. edge_take takes the gradient of that row out of dc, before
 * the compressor's backward pass. edge_backward, after it, copies into dx the gradients that this row gives to the
 * columns x. */
void pb_v4_context_carve(pb_trainer *t, const pb_v4_shape *s, bool backward);
pb_status pb_v4_context_rows(pb_trainer *t, const pb_batch *b, int S);
pb_status pb_v4_gather_keys(const pb_v4_pass *p);
pb_status pb_v4_gather_index(const pb_v4_pass *p);
pb_status pb_v4_reduce_keys(const pb_v4_pass *p);
pb_status pb_v4_reduce_index(const pb_v4_pass *p);
pb_status pb_v4_edge_forward(const pb_v4_pass *p, int ape, const void *x, size_t ld, int C, void *c, int D);
pb_status pb_v4_edge_take(const pb_v4_pass *p, void *dc, int D);
pb_status pb_v4_edge_backward(const pb_v4_pass *p, int ape, const void *x, void *dx, size_t ld, int C, int D);

/* Computes v4.wide = RoPE^-1(o): rotates the output of attention back by the positions of the queries. */
pb_status pb_v4_rotate_back(const pb_v4_pass *p);

pb_status pb_v4_begin(pb_ctx *ctx, const pb_trainer *t);
pb_status pb_v4_forward(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_v4_recompute(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_v4_backward(pb_ctx *ctx, const pb_trainer *t, int layer);
#endif
