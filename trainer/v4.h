/* v4.h - a DeepSeek-V4 block inside the trainer: its formulas, what it keeps, and what is not here.
 *
 * With x = n1 [T,D], T = B*S, H heads of d elements whose last R are rotated, and G = S/ratio compressed rows:
 *
 *     [q_a | kv_a | a | z] = x latent^T         widths q_rank, d, C, C (C: columns of the compressor)
 *     qr = RMSNorm(q_a)        q0 = qr q_b^T        q = RoPE(q0 / rms over each head's d elements)
 *     kv[:S] = RoPE(RMSNorm(kv_a))       kv[S:] = RoPE(RMSNorm(compressor(a, z, ape))), row g at position g ratio
 *     o = sparse_mla(q, kv, idx, sink) / sqrt d        one kv head, keys and values at once
 *     proj = (grouped_linear(RoPE^-1(o), o_a)) o_b^T
 *
 * RoPE turns neighbouring pairs (PB_ROPE_ADJACENT) at the token's position in its sample: frequencies of g->theta in a
 * layer without compressed rows and without any scaling, of compress_theta with YaRN in the others. The inverse one
 * takes the query's position. idx lists the window's tokens, then compressed rows whose tokens all precede the query's
 * end, of its own sample only (mla_index):
 *     PB_ATTENTION_DENSE    all of them
 *     PB_ATTENTION_SPARSE   in layers of ratio 4 the topk rows that the lightning indexer scores highest, else all
 * Both run on one kernel, so that they differ by the choice of keys alone; the independent statement is the dense masks
 * of scripts/fixtures/v4_model_fixtures.py, which know no lists.
 *
 * The indexer's queries qr index_q^T and its own compressed keys are rotated alike. Its Hadamard transform, which turns
 * both by one orthogonal matrix, is left out: it changes no score, only what quantisation would do to them. What it
 * picks has no gradient, so its parameters are not trained: no gradient, no moments, no decay. With index_loss > 0 they
 * learn, from indexer_kl.h's loss alone, to score rows as attention's mass falls on them; that loss is summed over all
 * queries, divided by the tokens that count, and reaches nothing but the indexer: qr and x are constants to it.
 *
 * With kv_qat all rows of kv go through FP8 and back (kv_qat.h) behind RoPE; gradients pass straight through.
 *
 * Samples that share a row begin at multiples of the longest compressed row (pb_sample_align), as the groups of each
 * sample are then those that it has alone.
 *
 * Not here: mixture of experts (the MLP is a dense SwiGLU of common code), hyper-connections, multi-token prediction,
 * adapters, and V4's layout of checkpoints. */
#ifndef PB_V4_H
#define PB_V4_H
#include "kernels/indexer/indexer.h"
#include "trainer/trainer.h"

/* What an indexer makes on its way to a list. */
typedef struct pb_v4_index {
    void *q, *in;     /* [T,index_H*index_d], rotated; [T,2C_i+index_H] values, gates and weights of the heads */
    void *pooled, *k; /* [B,G,index_d] the compressor's rows; normed and rotated */
    float *rstd, *w;  /* [B,G]; [T,index_H] */
    int32_t *pick;    /* [B,S,topk] */
} pb_v4_index;

/* What one layer keeps. */
typedef struct pb_v4_acts {
    void *latent;       /* [T,q_rank+d+2C] */
    void *qr;           /* [T,q_rank] */
    void *q0, *q;       /* [T,H*d] */
    float *rstd_latent; /* [T] */
    float *rstd_q;      /* [T,H] */
    float *rstd_kv;     /* [T] */
    void *kv;           /* [B,S+G,d] as attention reads it */
    void *pooled;       /* [B,G,d] the compressor's rows */
    float *rstd_pooled; /* [B,G] */
    int32_t *idx;       /* [B,S,W] the lists that an indexer made; NULL: those of v4.lists */
    pb_v4_index index;  /* of an indexer that is not trained: the same memory for all layers */
    void *o;            /* [T,H*d] before it is turned back */
    float *lse;         /* [T,H] */
    void *low;          /* [T,groups*o_rank] between the output's two products */
} pb_v4_acts;

/* Lists that do not depend on a layer's activations, one for every ratio. */
typedef struct pb_v4_list {
    int ratio;
    int32_t *idx; /* [B,S,W] */
} pb_v4_list;

/* What training an indexer takes. */
typedef struct pb_v4_index_back {
    float *mass, *score, *loss; /* [B,S,topk] twice; [L] each layer's loss, unweighted */
    void *dq, *dk, *din;        /* like q, k, in */
    float *dw;
} pb_v4_index_back;

/* Which of two sets of frequencies. */
enum { PB_V4_PLAIN, PB_V4_COMPRESSED, PB_V4_TABLES };

/* What all layers share. */
typedef struct pb_v4 {
    float *cos[PB_V4_TABLES], *sin[PB_V4_TABLES]; /* [S,R/2] */
    float *one;                                   /* [1] the number 1 */
    pb_v4_list lists[PB_V4_RATIOS];
    int nlists;
    void *wide, *normed; /* [T,H*d] o turned back; [T,d] rows before their rotation */
    void *rows;          /* [B,S+G,d] kv before FP8, with kv_qat */
    pb_v4_index index;   /* while no indexer is trained */
    pb_v4_index_back index_back;
    void *dwide;                /* [T,H*d] */
    void *dlow, *dqr, *dlatent; /* like low, qr, latent */
    void *dkv, *drow;           /* like kv; [T,d] one part of it, rotated back */
    float *dsink;               /* [H] */
} pb_v4;

/* A layer's figures for the present batch. */
typedef struct pb_v4_shape {
    int ratio, G, S_kv; /* G compressed rows behind the S tokens */
    int C, width;       /* columns of values; of latent */
    int T, W;           /* compressed rows in a list, and its length */
    bool indexed;       /* an indexer makes the list */
    int table;          /* of rotations */
    int step, index_C;  /* tokens between positions of compressed rows, at least 1; the indexer's C */
} pb_v4_shape;
pb_v4_shape pb_v4_shape_of(const pb_trainer *t, int layer, int S);
/* The lists of a layer. */
const int32_t *pb_v4_lists(const pb_trainer *t, int layer);

/* What every step of a layer's pass reads. */
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
/* The pass's own indexer, as the ops read it. */
pb_indexer pb_v4_indexer(const pb_v4_pass *p);
pb_v4_pass pb_v4_pass_of(pb_ctx *ctx, const pb_trainer *t, int layer);
const pb_param *pb_v4_param(const pb_v4_pass *p, int id);

/* v4.wide = o turned back by its queries' positions. */
pb_status pb_v4_turn_back(const pb_v4_pass *p);
#endif
