/* trainer_impl.h - the members of pb_trainer: device buffers and settings that the phases of a step use. */
#ifndef PB_TRAINER_IMPL_H
#define PB_TRAINER_IMPL_H
#include "trainer/parallel/context.h"
#include "trainer/parallel/units.h"
#include "trainer/step/block.h"
#include "trainer/step/tensors.h"

/* Activations that one layer keeps from the forward to the backward pass. T = B*S tokens. Those that the backward pass
 * computes again (pb_train_config.recompute) are in memory that all layers share. */
typedef struct pb_layer_acts {
    void *h, *n1;          /* [T,D] h: residual stream at the layer's input; n1: its RMSNorm */
    float *rstd1;          /* [T] */
    void *hm, *n2;         /* [T,D] hm: residual stream between attention and MLP; n2: its RMSNorm */
    float *rstd2;          /* [T] */
    void *gu;              /* [T,2,I] outputs of the gate and up projections; shared: [pb_mlp_rows,2,I] */
    void *xa[PB_NTARGETS]; /* [T,R] x A^T of each target's adapter; NULL: no adapter */
    void *block;           /* the attention block's activations: pb_gqa_acts or pb_v4_acts; the struct is host memory */
} pb_layer_acts;

/* Gradients that are clipped by their joint norm: those of a layer, or those of the parameters outside the layers. */
typedef struct pb_clip_group {
    int first, n;   /* the tensors trained[first] to trained[first+n-1] */
    float *partial; /* [slots] partial sums of squares of this group's gradients */
    int slots;
    int layer; /* layer of the group; -1: the group of the parameters outside the layers */
} pb_clip_group;

/* Memory for gradients of which each rank keeps its slices; see grad_slices.h. */
typedef struct pb_grad_slices {
    bool on;         /* false: each rank has all gradients in memory, and the other members are unused */
    int *turn;       /* [buckets] the buckets in the order in which they are reduced; host */
    size_t *same;    /* [buckets][ranks] elements of this rank's slice, for each rank; host */
    float *own;      /* [slices.total] sum of the gradients of this rank's slices */
    uint16_t *own16; /* [slices.total] the same as it arrives in bf16; NULL unless PB_REDUCE_BF16 and one micro-batch */
    uint16_t *out16; /* [largest bucket] a bucket in bf16; NULL unless PB_REDUCE_BF16 */
    float *blocks;   /* [ranks][largest slice] this rank's slice from each rank; NULL: one micro-batch */
    uint16_t *block16; /* the same as it arrives in bf16; NULL unless PB_REDUCE_BF16 */
} pb_grad_slices;

/* See gradients.h. */
typedef struct pb_gradients {
    pb_buckets buckets;
    pb_slices slices;
    pb_arena arena;   /* `narrow`, and `sum` if it is separate */
    float *each;      /* [model.vector] gradients of one micro-batch, which the backward pass writes */
    float *sum;       /* [model.vector] gradients of the step; the same memory as `each` unless `separate` */
    uint16_t *narrow; /* [model.vector] bf16, for PB_REDUCE_BF16; else NULL */
    bool separate;    /* micro-batches are added to the sum one by one, in the order of the ranks */
    pb_grad_slices shared;
} pb_gradients;

/* The slices of the training state that this rank keeps; see shards.h. */
typedef struct pb_shards {
    bool on;                /* false: nothing is sharded, and the other members are unused */
    bool kept;              /* pb_trainer_shard was called */
    pb_arena arena;         /* the pointers below are device memory of this arena unless marked host */
    unsigned char *moments; /* of all pieces; pb_shards_m and pb_shards_v find those of one */
    float *master;          /* [slices.total] f32 masters; NULL in an f32 model */
    float *partial;         /* [slots] partial sums of squares of this rank's slices; 0 for those of other ranks */
    size_t *m, *v;          /* [slices.n] where in `moments` those of each piece begin, in bytes; host */
    int *slot;              /* [slices.n] index in `partial` of each piece's first sum; host */
    int *group;             /* [slices.n] clip group of each piece; host */
} pb_shards;

/* Weights of which this rank keeps its slices only; see weights.h. */
typedef struct pb_weights {
    bool on; /* false: all weights are in the model's memory, and the other members are unused */
    pb_units units;
    pb_arena arena;        /* the pointers below are device memory of this arena unless marked host */
    pb_arena masters;      /* f32 master of the tensor that is loaded; until pb_trainer_shard */
    void *own;             /* [units.trained] this rank's slices of the trained tensors, as in slices.own */
    unsigned char *frozen; /* [units.own] bytes of this rank's slices of the frozen tensors */
    unsigned char **at;    /* [units.n] the buffer of each unit; the array is host memory */
    int32_t *request;      /* [1] the unit that rank 0 reads next */
    bool reading;          /* inside pb_trainer_read */
    int held;              /* the unit that pb_model_hold gathered last */
} pb_weights;

/* The matrices that NorMuon trains; see matrices.h. */
typedef struct pb_matrix_block pb_matrix_block;
typedef struct pb_matrix_shape {
    int rows, cols, n; /* n: number of blocks of this shape */
    size_t at;         /* the first element of these blocks in the vector of updates */
} pb_matrix_shape;
typedef struct pb_matrices {
    bool on;                /* false: AdamW trains all tensors, and the other members are unused */
    pb_dtype dtype;         /* of the updates */
    pb_matrix_counts whole; /* of the whole model */
    /* The blocks that this rank updates: all, or with sharded state those that it owns. The members below are
     * theirs. */
    pb_matrix_block *block; /* [blocks], host */
    pb_matrix_shape *shape; /* [shapes], host */
    size_t *counts; /* [shapes][ranks] elements of the blocks that each rank orthogonalises; host; NULL: sharded */
    int parts;      /* tensors, or with sharded state the pieces of this rank's slices, that hold the blocks */
    int blocks, shapes;
    size_t elements, rows;        /* of the blocks */
    pb_arena arena;               /* the pointers below are device memory of this arena */
    void *u;                      /* [elements] dtype: the updates */
    float *factor;                /* [rows] */
    float *flag;                  /* [1] of the guard */
    pb_normuon_block *block_list; /* [blocks] */
    pb_normuon_piece *piece_list; /* [blocks] */
} pb_matrices;

/* The lookup part of a tied embedding's gradient; see token_rows.h. */
typedef struct pb_token_rows {
    bool on;      /* false: the whole gradient is reduced, and the other members are unused */
    int32_t *ids; /* [ranks T] of all ranks */
    void *dy;     /* [ranks T,D] their rows, in the model's dtype */
} pb_token_rows;

/* The figures that a rank sends to the others with each micro-batch. */
typedef struct pb_report {
    float loss; /* of the micro-batch */
    float stop; /* 1: the rank was asked to stop; else 0 */
} pb_report;

struct pb_trainer {
    pb_train_config cfg;
    pb_model model;
    pb_ctx *ctx;
    const pb_block *block;
    /* Host memory of the attention block. block_state: shared by all layers; block_layers [L]: one struct per layer. */
    void *block_state, *block_layers;
    int S, T; /* of the current batch: S tokens per row that this rank has, T = B*S tokens in all */
    int row;  /* tokens of a whole row; S without context parallelism */
    pb_context context;
    int first;       /* with cfg.cached: tokens of the row before the current batch; else 0 */
    int cached;      /* with cfg.cached: tokens of the row at the end of the current batch */
    bool accumulate; /* see pb_trainer_accumulate */
    bool reduce;     /* see pb_trainer_reduce */
    bool evaluates;  /* see pb_trainer_evaluates */
    pb_gradients gradients;
    pb_shards shards;
    pb_weights weights;
    pb_token_rows rows;
    pb_matrices matrices;

    pb_arena acts;          /* the pointers below are device memory of this arena unless marked host; sized for cfg.S */
    int32_t *ids, *targets; /* [T] */
    float *mask, *inv_count; /* mask [T]; inv_count [1] = 1/(loss tokens of the step) */
    float *loss_scale;       /* [1] */
    float *index_scale;      /* [1] factor of the indexers' gradients; NULL: the indexers are not trained */
    float host_inv_count;    /* host copy of inv_count */
    int32_t *start, *pos;    /* [T]; NULL when batches are not packed; pos also with context parallelism */
    pb_layer_acts *layers;   /* [L], host */
    void *hf, *nf;           /* [T,D] hf: residual stream after the last layer; nf: its RMSNorm */
    float *rstdf;            /* [T] */
    void *logits;            /* [pb_logit_rows,V]; the loss phase overwrites them with their gradient */
    float *chunk_loss;       /* [1] with a loss chunk: the loss of the last chunk; else NULL */
    float *nll;              /* [T] per token */
    pb_report *report;       /* [1] the loss of the last micro-batch */
    pb_report *reports;      /* [ranks] those of all ranks; with one rank the same memory as `report` */
    float *step_loss;        /* [1] sum of the losses of this rank's micro-batches of the step */
    float *all_loss;         /* [1] sum of the step losses of all ranks; with one rank the same memory */
    /* Some gradients use the memory of a buffer that the backward pass no longer needs (activations.c): dn that of
     * proj, dact that of act unless an adapter of `down` reads both, and dgu that of gu if gu is computed again. */
    void *proj;       /* [T,D] output of the projection o or down */
    void *gu;         /* [pb_mlp_rows,2,I] gu of the layer that is computed, if layers share it; else NULL */
    void *act;        /* [pb_mlp_rows,I] output of SwiGLU */
    void *dcur, *dn;  /* [T,D] dcur: gradient of the residual stream; dn: gradient of a norm's output */
    void *dact, *dgu; /* [pb_mlp_rows,I], [pb_mlp_rows,2,I] */

    pb_param **trained; /* [ntrained] ordered by group; host */
    int ntrained;
    pb_clip_group *groups;      /* [ngroups], host */
    int ngroups, slots;         /* slots: partial sums of all groups */
    float *partial;             /* [slots] sums of squares of all groups' gradients, group by group */
    pb_clip_state *clip;        /* [ngroups] results of clipping; [1] with the variant multi */
    pb_clip_entry *clip_list;   /* [ntrained] */
    pb_adamw_entry *adamw_list; /* [pb_adamw_entries] */
    size_t bf16_elements;       /* of both lists: elements whose gradients are in bf16 */
    float *adamw_maps;          /* [2][256] pb_adamw_maps; NULL unless moments are in 8 bits */
    pb_adamw_state *state;      /* [1] */
    pb_tensor_fn observer;      /* of pb_trainer_observe; NULL: none */
    void *observer_self;
    bool observes_gradients; /* the observer also gets gradients of activations */
};

/* True if the backward pass adds to the gradients in memory; false: it overwrites them. */
static inline bool pb_adds(const pb_trainer *t) { return t->accumulate && !t->gradients.separate; }

/* True if the backward pass reads n2: for the gradients of gate and up or of their adapters. */
static inline bool pb_reads_n2(const pb_trainer *t)
{
    const unsigned adapters = t->model.cfg.targets & (1u << PB_TARGET_GATE | 1u << PB_TARGET_UP);
    return t->model.cfg.tuning == PB_FULL || adapters;
}

/* True if the activations of a layer's attention, from its first norm on, are in memory that all layers share; the same
 * for those of its MLP, from its second norm on. */
static inline bool pb_shares_attention(const pb_trainer *t)
{
    const pb_recompute r = t->cfg.recompute;
    return t->cfg.model.frozen || r == PB_RECOMPUTE_ATTENTION || r == PB_RECOMPUTE_PRODUCTS || r == PB_RECOMPUTE_LAYER;
}
static inline bool pb_shares_mlp(const pb_trainer *t)
{
    const pb_recompute r = t->cfg.recompute;
    return t->cfg.model.frozen || r == PB_RECOMPUTE_MLP || r == PB_RECOMPUTE_PRODUCTS || r == PB_RECOMPUTE_LAYER;
}
/* The same for the outputs of the two norms. n2 is kept only if the backward pass or the caller reads it. */
static inline bool pb_shares_n1(const pb_trainer *t)
{
    return pb_shares_attention(t) || t->cfg.recompute == PB_RECOMPUTE_NORMS;
}
static inline bool pb_shares_n2(const pb_trainer *t)
{
    return pb_shares_mlp(t) || t->cfg.recompute == PB_RECOMPUTE_NORMS || (!pb_reads_n2(t) && !t->cfg.keep_unread);
}
/* True if each layer keeps what its attention computes from q, k and v, although it shares the other activations. */
static inline bool pb_keeps_attended(const pb_trainer *t)
{
    return !t->cfg.model.frozen && t->cfg.recompute == PB_RECOMPUTE_PRODUCTS;
}

/* True if nf, the output of the last norm, is where the layers' n1 is. The loss phase then computes it again. */
static inline bool pb_shares_nf(const pb_trainer *t) { return pb_shares_n1(t) && t->cfg.loss_chunk; }

/* Rows of logits in memory: all tokens of the longest batch, or a chunk. */
static inline int pb_logit_rows(const pb_trainer *t)
{
    const int all = t->cfg.B * t->cfg.S, chunk = t->cfg.loss_chunk;
    return chunk && chunk < all ? chunk : all;
}

/* Tokens whose MLP is in memory at a time: all of the longest batch, or a chunk. */
static inline int pb_mlp_rows(const pb_trainer *t)
{
    const int all = t->cfg.B * t->cfg.S, chunk = t->cfg.mlp_chunk;
    return chunk && chunk < all ? chunk : all;
}

/* Tokens of the longest whole row. */
static inline int pb_row_most(const pb_trainer *t) { return t->cfg.S * t->context.ranks; }

/* Sets the shape of the current batch. row: tokens of a whole row. */
static inline void pb_set_shape(pb_trainer *t, int row)
{
    t->row = row;
    t->S = row / t->context.ranks;
    t->T = t->cfg.B * t->S;
}
/* inputs.c: EINVAL: rows of S tokens cannot be divided over the ranks of the context. */
pb_status pb_check_row(const pb_context *c, int S);

/* Pointer to column `col` of a tensor of the model's dtype. */
static inline void *pb_column(const pb_trainer *t, void *p, int col)
{
    return (unsigned char *)p + (size_t)col * pb_dtype_size(t->model.cfg.dtype);
}

/* Computes RoPE's cos and sin [S,dim/2] for the trainer's S on the host and uploads them.
 * scaling NULL: none. Host syncs. */
pb_status pb_upload_rotations(pb_trainer *t, float *cosines, float *sines, int dim, double theta,
                              const pb_rope_scaling *scaling);

/* Returns the number of entries of adamw_list (clip.c): one for each tensor that AdamW trains or, with sharded state,
 * for each piece of such a tensor in this rank's slices. */
int pb_adamw_entries(const pb_trainer *t);
/* clip.c: writes the device lists clip_list and adamw_list; call it again after a change of the clip variant. */
pb_status pb_clip_write_lists(pb_trainer *t);
#endif
