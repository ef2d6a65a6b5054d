/* model.h - decoder models of the families in families.def: their geometry, their parameters and the memory that holds
 * them.
 *
 * Pre-norm residual blocks: h += o(attention(rope(qkv(norm1(h))))); h += down(swiglu(gate_up(norm2(h)))),
 * a final norm, and a head that is the embedding when tied. Of a V4 block (v4.h) only the attention is another. */
#ifndef PB_MODEL_H
#define PB_MODEL_H
#include "kernels/core/arena.h"
#include "kernels/core/dtype.h"
#include "kernels/core/gemm.h"
#include "kernels/rope/rope.h"

typedef enum pb_family {
#define FAMILY(id, block, what) PB_FAMILY_##id,
#include "trainer/families.def"
    PB_NFAMILIES
} pb_family;

/* What only the DeepSeek-V4 family has. */
enum { PB_V4_RATIOS = 8 };
typedef struct pb_v4_geometry {
    int q_rank, o_rank, groups;    /* of the low-rank products of q and o; groups of the latter */
    int rope;                      /* elements of a head that are rotated, its last */
    int window;                    /* tokens that a query sees uncompressed, itself among them */
    int index_H, index_d, topk;    /* the indexer: heads, head size, compressed rows that it picks */
    double compress_theta;         /* of the rotation in layers with compressed rows; g->theta in those without */
    pb_rope_scaling compress_rope; /* of its frequencies; in layers without compressed rows there is none */
    int ratio[PB_V4_RATIOS];       /* of each layer: tokens of a compressed row; 0: it has none */
} pb_v4_geometry;

typedef struct pb_geometry {
    const char *name;
    pb_family family;
    int V, D, L, H, K, d, I;
    float eps;
    double theta;
    bool tied, bias, qk_norm; /* bias: of q, k and v */
    int max_pos;
    pb_rope_scaling rope;     /* of the frequencies that theta gives */
    bool o_bias;              /* a bias on attention's output product */
    const pb_v4_geometry *v4; /* of the V4 family; else NULL */
} pb_geometry;

/* Tokens of a compressed row in this layer; 0: the layer has none. */
static inline int pb_ratio(const pb_geometry *g, int layer) { return g->v4 ? g->v4->ratio[layer] : 0; }
/* Ratio 4 pools two rows' tokens into each, channel halves apart, and has an indexer. */
enum { PB_V4_OVERLAPPING = 4 };
/* Columns of the values (and of the gates) that rows of d elements are pooled from. */
static inline int pb_v4_columns(int ratio, int d) { return ratio == 0 ? 0 : ratio == PB_V4_OVERLAPPING ? 2 * d : d; }
/* Samples that share a row begin at multiples of this: the longest compressed row. 1: anywhere. */
int pb_sample_align(const pb_geometry *g);

/* EINVAL names the geometries there are. */
pb_status pb_geometry_find(const char *name, const pb_geometry **out);
extern const pb_geometry pb_geometries[]; /* ended by a NULL name */

/* X(enumerator, option's word, meaning) */
#define PB_TUNING_MAP(X)                                                                                               \
    X(FULL, "full", "every parameter is trained")                                                                      \
    X(LORA, "lora", "adapters, and both norm gains of every layer unless fixed_norms")                                 \
    X(QLORA, "qlora", "as lora, with the base matrices in NF4")
typedef enum pb_tuning {
#define X(id, word, what) PB_##id,
    PB_TUNING_MAP(X)
#undef X
        PB_NTUNINGS
} pb_tuning;

/* Which outputs carry an adapter: bits of `targets`. */
#define PB_TARGET_MAP(X) X(Q, "q") X(K, "k") X(V, "v") X(O, "o") X(GATE, "gate") X(UP, "up") X(DOWN, "down")
typedef enum pb_target {
#define X(id, word) PB_TARGET_##id,
    PB_TARGET_MAP(X)
#undef X
        PB_NTARGETS
} pb_target;

enum {
#define PARAM(id, ...) PB_P_##id,
#include "trainer/model.def"
    PB_NPARAMS
};
/* Whether a parameter is the indexer's; they stand together in model.def. */
static inline bool pb_param_indexes(int id) { return id >= PB_P_index_q && id <= PB_P_index_norm; }

typedef enum pb_param_kind { PB_KIND_MATRIX, PB_KIND_TABLE, PB_KIND_GAIN, PB_KIND_BIAS, PB_KIND_ADAPTER } pb_param_kind;

/* One tensor [rows,cols] of the model. Every pointer is device memory of the model's arenas. */
typedef struct pb_param {
    char name[48]; /* "layers.3.gate_up", "layers.3.lora_a.q" */
    int layer;     /* -1: outside the layers */
    pb_param_kind kind;
    size_t rows, cols;
    pb_dtype dtype;
    void *w;              /* [rows,cols] dtype; NULL when quantised */
    uint8_t *q;           /* NF4 codes, or NULL */
    pb_nf4_scales scales; /* with q */
    float *master;        /* f32 copy when dtype is bf16 and it is trained, else NULL */
    float *grad, *m, *v;  /* f32, NULL when frozen */
    bool trained;
} pb_param;

static inline size_t pb_param_n(const pb_param *p) { return p->rows * p->cols; }

typedef struct pb_model_config {
    const pb_geometry *geometry;
    int layers; /* 0: the geometry's; else a model cut to its first layers */
    pb_tuning tuning;
    pb_dtype dtype;   /* of matrices, tables, adapters and activations */
    int rank;         /* of adapters; lora and qlora only */
    float alpha;      /* adapters are scaled by alpha/rank */
    unsigned targets; /* bits 1 << pb_target */
    bool random_b;    /* adapters' B drawn like A, so that no gradient is zero; false: B = 0 as trained */
    int nf4_block;
    float index_loss; /* >= 0: weight of the loss that trains the indexers of a V4 model beside the language model's; 0:
                         they are not trained */
    bool frozen;      /* nothing is trained: neither gradients, moments nor master weights are held */
    bool as_bf16;     /* f32 only: drawn matrices, tables and adapters are rounded to bf16 first: the bf16 model's very
                         values */
    bool fixed_norms; /* adapters alone are trained, and no gains beside them */
    bool blank;       /* only adapters are drawn; everything else is 0 until pb_model_load_hf fills it */
    uint64_t seed;
} pb_model_config;

typedef struct pb_model {
    pb_model_config cfg;
    pb_geometry g; /* with L as configured */
    pb_ctx *ctx;
    pb_param *params; /* [n], in the order of model.def, layer by layer, then the adapters */
    int n;
    pb_param *outer[PB_NPARAMS]; /* MODEL parameters by id; absent: NULL */
    pb_param **layer;            /* [L * PB_NPARAMS], LAYER parameters by id; absent: NULL */
    pb_param **lora_a, **lora_b; /* [L * PB_NTARGETS], absent: NULL; A [R,in], B [out,R] */
    pb_arena weights, grads, moments;
    size_t trained; /* elements */
    bool own_norms; /* the gains of the layers' norms go with the adapters: they are trained, or came with adapters */
} pb_model;

/* EINVAL: layers, dtype or adapters that the geometry cannot have. */
pb_status pb_model_check(const pb_model_config *c);
/* Allocates and fills a model with seeded weights: matrices and tables uniform with standard deviation
 * 0.02, gains 1 +- 0.1, biases +-0.02, adapters' A uniform in +-1/sqrt(in). The same seed gives the same
 * model on every device, dtype (up to rounding) and tuning. EINVAL: see pb_model_check. */
pb_status pb_model_open(pb_ctx *ctx, const pb_model_config *cfg, pb_model *out);
void pb_model_close(pb_model *m);

static inline pb_param *pb_layer_param(const pb_model *m, int layer, int id)
{
    return m->layer[layer * PB_NPARAMS + id];
}
/* [in, out] widths of a target, and where its output starts in the product it belongs to. */
void pb_target_shape(const pb_geometry *g, pb_target t, int *in, int *out, int *offset);
#endif
