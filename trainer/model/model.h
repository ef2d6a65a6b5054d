/* model.h - decoder-only transformer models: their geometry, and their parameters in device memory.
 *
 * All families (families.def) have pre-norm residual layers:
 *
 *     h += o(attention(rope(qkv(norm1(h)))))          h += down(swiglu(gate_up(norm2(h))))
 *
 * After the last layer follow a norm and the head, which is the embedding matrix when the two are tied. The DeepSeek-V4
 * family replaces the attention block by that of v4.h. In the Doge family, whose attention is that of gqa_dynamic.c,
 * both lines begin with h = f * h instead of h, where f is a learned vector [D] (residual.h). */
#ifndef PB_MODEL_H
#define PB_MODEL_H
#include "kernels/adamw/adamw.h"
#include "kernels/engine/arena.h"
#include "kernels/engine/dtype.h"
#include "kernels/cpu/gemm.h"
#include "kernels/rope/rope.h"

typedef enum pb_family {
#define FAMILY(id, block, what) PB_FAMILY_##id,
#include "trainer/model/families.def"
    PB_NFAMILIES
} pb_family;

/* Dimensions that only the DeepSeek-V4 family has. A compressed row is one key/value vector that is pooled from `ratio`
 * consecutive tokens; the ratio differs between layers. */
enum { PB_V4_RATIOS = 8 };
typedef struct pb_v4_geometry {
    /* q_rank, o_rank: ranks of the low-rank products of q and of the output; groups: groups of the output's */
    int q_rank, o_rank, groups;
    int rope; /* number of elements of a head that RoPE rotates, which are the last ones */
    /* sliding window: number of latest tokens (the query's own included) whose keys are not compressed */
    int window;
    int index_H, index_d, topk;    /* the indexer's heads, head size, and number of compressed rows it selects */
    double compress_theta;         /* RoPE base of layers with compressed rows; the others use g->theta */
    pb_rope_scaling compress_rope; /* scaling of compress_theta's frequencies; g->theta's are not scaled */
    int ratio[PB_V4_RATIOS];       /* per layer: tokens per compressed row; 0: the layer has none */
} pb_v4_geometry;

typedef struct pb_geometry {
    const char *name;
    pb_family family;
    int V, D, L, H, K, d, I; /* vocabulary, hidden size, layers, query heads, key/value heads, head size, MLP width */
    float eps;               /* of RMSNorm */
    double theta;            /* base of RoPE */
    /* tied: the head is the embedding; bias: q, k, v have biases; qk_norm: q, k have an RMSNorm per head */
    bool tied, bias, qk_norm;
    int max_pos;              /* longest row in tokens */
    pb_rope_scaling rope;     /* scaling of RoPE's frequencies */
    bool o_bias;              /* a bias on the output projection of attention */
    int keep;                 /* Doge: most keys that a query attends to; 0: another family */
    const pb_v4_geometry *v4; /* NULL except in the V4 family */
} pb_geometry;

/* Tokens per compressed row in this layer; 0: the layer has no compressed rows. */
static inline int pb_ratio(const pb_geometry *g, int layer) { return g->v4 ? g->v4->ratio[layer] : 0; }
/* The ratio whose compressed rows overlap: each pools its own 4 tokens and the 4 before them, with d columns of values
 * for each of the two sets. Layers with this ratio have an indexer. */
enum { PB_V4_OVERLAPPING = 4 };
/* Columns of the values (and of the gates) from which compressed rows of d elements are pooled. */
static inline int pb_v4_columns(int ratio, int d) { return ratio == 0 ? 0 : ratio == PB_V4_OVERLAPPING ? 2 * d : d; }
/* Returns the alignment of conversations in a packed row, in tokens: the largest ratio of the model; 1: no layer has
 * compressed rows. */
int pb_sample_align(const pb_geometry *g);

/* Finds a built-in geometry by its name; *out is borrowed. EINVAL: no geometry has this name; the message lists all
 * names. */
pb_status pb_geometry_find(const char *name, const pb_geometry **out);
extern const pb_geometry pb_geometries[]; /* terminated by an entry whose name is NULL */

/* The choices of which parameters a run trains. Each entry: X(enumerator, word on the command line, meaning). */
#define PB_TUNING_MAP(X)                                                                                               \
    X(FULL, "full", "every parameter is trained")                                                                      \
    X(LORA, "lora", "adapters are trained, and the norm gains of every layer unless fixed_norms")                      \
    X(QLORA, "qlora", "like lora, with the base matrices in NF4")
typedef enum pb_tuning {
#define X(id, word, what) PB_##id,
    PB_TUNING_MAP(X)
#undef X
        PB_NTUNINGS
} pb_tuning;

/* The projections that can have an adapter. `targets` is a mask of bits 1 << pb_target. */
#define PB_TARGET_MAP(X) X(Q, "q") X(K, "k") X(V, "v") X(O, "o") X(GATE, "gate") X(UP, "up") X(DOWN, "down")
typedef enum pb_target {
#define X(id, word) PB_TARGET_##id,
    PB_TARGET_MAP(X)
#undef X
        PB_NTARGETS
} pb_target;

enum {
#define PARAM(id, ...) PB_P_##id,
#include "trainer/model/model.def"
    PB_NPARAMS
};
/* True for the parameters of the indexer, which are consecutive in model.def. */
static inline bool pb_param_indexes(int id) { return id >= PB_P_index_q && id <= PB_P_index_norm; }

typedef enum pb_param_kind { PB_KIND_MATRIX, PB_KIND_TABLE, PB_KIND_GAIN, PB_KIND_BIAS, PB_KIND_ADAPTER } pb_param_kind;

/* One tensor [rows,cols] of the model. All pointers are device memory of the model's arenas. */
typedef struct pb_param {
    char name[48]; /* such as "layers.3.gate_up" or "layers.3.lora_a.q" */
    int layer;     /* -1: not part of a layer */
    pb_param_kind kind;
    size_t rows, cols;
    pb_dtype dtype;
    void *w;              /* [rows,cols] of `dtype`; NULL when quantised */
    uint8_t *q;           /* NF4 codes, two per byte; NULL when not quantised */
    pb_nf4_scales scales; /* valid when q is not NULL */
    float *master;        /* f32 master copy of a trained bf16 tensor; else NULL */
    float *grad;          /* f32 gradient [pb_param_n]; NULL when not trained */
    void *m, *v;          /* moments [pb_param_n], [pb_param_v_n] in the format `moments`; NULL when not trained */
    pb_adamw_format moments;
    bool by_rows; /* v has one element per row (NorMuon), not one per element (AdamW), and the moments are f32 */
    /* Gradient that the phases clip and optimizer read. It is `grad`, which the backward pass writes, except where a
     * trainer adds micro-batches in a fixed order (trainer/step/gradients.h). */
    float *sum;
    bool trained;
    /* Offset of a trained parameter's gradient in the model's vector of gradients, in elements, and the stage of the
     * backward pass after which the gradient is complete; see pb_model.order. */
    size_t at;
    int stage; /* set for parameters that are not trained, too */
} pb_param;

enum { PB_FLAT_ALIGN = 64 };

static inline size_t pb_param_n(const pb_param *p) { return p->rows * p->cols; }
static inline size_t pb_param_v_n(const pb_param *p) { return p->by_rows ? p->rows : pb_param_n(p); }
/* Number of blocks of a quantised tensor, which have a scale each. */
static inline size_t pb_param_blocks(const pb_param *p)
{
    return (pb_param_n(p) + (size_t)p->scales.block - 1) / (size_t)p->scales.block;
}
static inline size_t pb_param_m_bytes(const pb_param *p) { return pb_adamw_moment_bytes(p->moments, pb_param_n(p)); }
static inline size_t pb_param_v_bytes(const pb_param *p) { return pb_adamw_moment_bytes(p->moments, pb_param_v_n(p)); }

typedef struct pb_model_config {
    const pb_geometry *geometry;
    int layers; /* number of layers, the first ones of the geometry; 0: all */
    pb_tuning tuning;
    pb_dtype dtype;   /* type of matrices, tables, adapters and activations: f32 or bf16 */
    int rank;         /* rank of the adapters; LoRA and QLoRA only */
    float alpha;      /* adapter output is scaled by alpha/rank */
    unsigned targets; /* which projections have adapters: bits 1 << pb_target */
    /* If true, adapters' B are initialised randomly, so that no gradient is 0 (for tests). If false, B is 0. */
    bool random_b;
    int nf4_block;
    /* QLoRA: the scales of NF4 are stored in 8 bits, QLoRA's double quantisation (Dettmers et al. 2023,
     * arXiv:2305.14314, section 3): 0.127 in place of 0.5 bit per weight with blocks of 64. */
    bool nf4_double;
    /* Weight of the indexers' own loss, which is trained together with the language model's; 0: the indexers are not
     * trained. V4 only. */
    float index_loss;
    /* If true, the model is for inference: gradients, moments and master weights are not allocated. */
    bool frozen;
    /* For dtype f32: initial values of matrices, tables and adapters are rounded to bf16, so that the weights
     * equal those of the bf16 model. */
    bool as_bf16;
    /* If true, the caller keeps the moments and the master weights: p->m and p->v are NULL, and p->master is valid only
     * between pb_model_masters_open and pb_model_masters_close. The trained weights are vectors in pb_model.order. */
    bool sharded;
    /* Format of AdamW's moments; 8bit: tensors below PB_ADAMW_8BIT_LEAST elements have f32. */
    pb_adamw_format moments;
    bool row_moments; /* if true, trained matrices and adapters have one second moment per row: pb_param.by_rows */
    bool no_grads;    /* if true, the caller provides the memory of the gradients, p->grad */
    const pb_memory_source *grads_source; /* the memory of the gradients comes from here; NULL: from the backend */
    /* If true, with `sharded`, the caller provides the memory of the weights: it sets p->w, p->q and p->scales of all
     * parameters but the trained f32 vectors of a bf16 model, sets `store`, and calls pb_model_fill. */
    bool no_weights;
    bool fixed_norms; /* LoRA and QLoRA: only the adapters are trained, not the gains of the layers' norms */
    /* If true, only adapters are initialised; everything else is 0 until pb_model_load_hf fills it. */
    bool blank;
    uint64_t seed;
} pb_model_config;

/* Functions of the owner of the weights, where p->w, p->q and p->scales are addresses in buffers that several layers
 * share (trainer/step/weights.h). */
typedef struct pb_weight_store {
    pb_status (*keep)(void *self, const pb_param *p, size_t first, size_t n); /* see pb_model_keep */
    pb_status (*hold)(void *self, const pb_param *p);                         /* see pb_model_hold */
    void *self;
} pb_weight_store;

typedef struct pb_model {
    pb_model_config cfg;
    pb_geometry g; /* the geometry, with L as configured */
    pb_ctx *ctx;
    /* [n]: first the parameters outside the layers (MODEL in model.def), then those of each layer (LAYER) in the order
     * of model.def, then the adapters */
    pb_param *params;
    int n;
    pb_param *outer[PB_NPARAMS]; /* [id]: parameters outside the layers; NULL: the model lacks this one */
    pb_param **layer;            /* [L * PB_NPARAMS] parameters of each layer by id; NULL: the layer lacks it */
    pb_param **lora_a, **lora_b; /* [L * PB_NTARGETS] adapter matrices A [R,in] and B [out,R]; NULL: no adapter */
    pb_arena weights, grads, moments;
    float *nf4_code; /* [256] the map of double-quantised scales, in `weights`; NULL: cfg.nf4_double is false */
    size_t trained;  /* number of trained elements */
    /* [ordered] the trained parameters in the order in which the backward pass completes their gradients. Stage 0 is
     * the head and the last norm, stage 1 the last layer, stage L the first layer, stage L+1 the embedding (of a tied
     * head too). Vectors of f32 in a bf16 model come after all others, so that the elements before them have one dtype.
     * The gradients are one vector of `vector` elements in this order; each begins at a multiple of PB_FLAT_ALIGN
     * elements, and the gaps are 0. The elements below `wide` have the model's dtype. */
    pb_param **order;
    int ordered;
    size_t vector, wide;
    /* With cfg.sharded: the trained weights, element i of the vector of gradients at wide_w + i of the model's dtype
     * below `wide` (NULL with cfg.no_weights), and at rest_w + (i - rest) of f32 from `rest` on, where the first f32
     * vector of a bf16 model begins. */
    void *wide_w;
    float *rest_w;
    size_t rest;
    pb_weight_store store; /* with cfg.no_weights */
    pb_arena masters;      /* with cfg.sharded: [wide] f32 master weights, while they are open; else unused */
    /* True if the gains of the layers' norms are trained or were loaded with the adapters: the adapters' export then
     * contains them. */
    bool export_norms;
} pb_model;

/* Checks a configuration. EINVAL: more layers than the geometry has, a dtype that is not f32 or bf16, or invalid
 * adapter settings. */
pb_status pb_model_check(const pb_model_config *c);
/* Allocates a model and fills it with seeded values: matrices and tables uniform with standard deviation 0.02, gains
 * uniform in 1 +- 0.1, biases in +-0.02, adapters' A in +-1/sqrt(in), adapters' B 0; Doge's dt with standard deviation
 * 0.2 and its dt_a in +-1, so that the biases of the keys differ by more than rounding. The same seed gives the same
 * model on every device, in every dtype (up to rounding) and tuning. EINVAL: see pb_model_check; ENOMEM. */
pb_status pb_model_open(pb_ctx *ctx, const pb_model_config *cfg, pb_model *out);
void pb_model_close(pb_model *m);
/* Fills the weights as pb_model_open does; with cfg.no_weights the caller calls it, once. */
pb_status pb_model_fill(pb_model *m);
/* Call it after writing elements first .. first+n-1 of a parameter (and of its master), before another parameter is
 * written; without cfg.no_weights it does nothing. A parameter in NF4 is written in whole blocks, and from
 * an even element. Each rank calls it on its own. */
pb_status pb_model_keep(pb_model *m, const pb_param *p, size_t first, size_t n);
/* Call it before reading a parameter outside the phases of a step: the weights of its layer are then valid until the
 * next call. Without cfg.no_weights it does nothing; with it, it works only inside pb_trainer_read
 * (EINVAL). */
pb_status pb_model_hold(pb_model *m, const pb_param *p);
/* With cfg.sharded and bf16: allocates f32 masters of the trained weights, zeros, and sets p->master of each; or frees
 * them. pb_model_open leaves them open, with the initial values, so that a file can be loaded into them. */
pb_status pb_model_masters_open(pb_model *m);
void pb_model_masters_close(pb_model *m);

/* True if the model stores a parameter in NF4. */
bool pb_param_quantised(const pb_model *m, const pb_param *p);

static inline pb_param *pb_layer_param(const pb_model *m, int layer, int id)
{
    return m->layer[layer * PB_NPARAMS + id];
}
/* Returns the input and output width of a target's projection, and the column at which its output begins in the output
 * of its matrix (k, for instance, is part of the matrix qkv). */
void pb_target_shape(const pb_geometry *g, pb_target t, int *in, int *out, int *offset);
#endif
