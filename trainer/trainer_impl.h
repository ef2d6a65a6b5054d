/* trainer_impl.h - the inside of a trainer, shared by the files that are its phases. */
#ifndef PB_TRAINER_IMPL_H
#define PB_TRAINER_IMPL_H
#include "trainer/block.h"
#include "trainer/v4.h"

/* What one layer keeps from forward to backward. T = B*S; W = (H+2K)d, the width of q, k and v. */
typedef struct pb_layer_acts {
    void *h, *n1;          /* [T,D] residual stream that enters, and its norm */
    float *rstd1;          /* [T] */
    void *qkv;             /* [T,W] after bias and adapters; q and k rotated in place without QK-norm */
    void *qk;              /* [T,(H+K)d] normed and rotated q and k, with QK-norm; else NULL */
    float *rstdq, *rstdk;  /* [T,H], [T,K] with QK-norm */
    void *o;               /* [T,H*d] attention's output */
    float *lse;            /* [B,H,S] */
    void *hm, *n2;         /* [T,D] residual stream between the halves, and its norm */
    float *rstd2;          /* [T] */
    void *gu;              /* [T,2,I] */
    void *xa[PB_NTARGETS]; /* [T,R] where the target has an adapter */
    pb_v4_acts v4;         /* of a V4 block, in place of qkv to lse */
} pb_layer_acts;

/* Gradients that are clipped together: a layer's, or those outside the layers. */
typedef struct pb_clip_group {
    int first, n;   /* in trained[] */
    float *partial; /* this group's slots */
    int slots;
} pb_clip_group;

struct pb_trainer {
    pb_train_config cfg;
    pb_model model;
    pb_ctx *ctx;
    const pb_block *block;
    pb_v4 v4; /* of a V4 block */
    int S, T; /* of the present batch: tokens a row, and of all rows */
    bool accumulate;

    pb_arena acts;           /* everything below that is device memory, for the largest T */
    int32_t *ids, *targets;  /* [T] */
    float *mask, *inv_count; /* [T], [1] */
    float *loss_scale;       /* [1] */
    float *index_scale;      /* [1] what the indexers' gradients are multiplied by; NULL: they are not trained */
    float inv;               /* inv_count, on the host */
    int32_t *start, *pos;    /* [T], or NULL when batches are not packed */
    float *cos, *sin;        /* [S,d/2] */
    pb_layer_acts *layers;   /* [L], host */
    void *hf, *nf;           /* [T,D] last residual stream and its norm */
    float *rstdf;            /* [T] */
    void *logits;            /* [T,V] */
    float *nll, *loss;       /* [T], [1] */
    float *step_loss;        /* [1] the sum over the step's micro-batches */
    void *proj;              /* [T,D] output of o or down */
    void *act;               /* [T,I] swiglu's output */
    void *dcur, *dn;         /* [T,D] gradient of the residual stream; of a norm's output */
    void *dqkv;              /* [T,W] */
    void *dattn;             /* [T,H*d] */
    void *dact, *dgu;        /* [T,I], [T,2,I] */

    pb_param **trained; /* [ntrained] group by group */
    int ntrained;
    pb_clip_group *groups; /* [ngroups] */
    int ngroups, slots;
    float *partial;             /* [slots] */
    pb_clip_state *clip;        /* [ngroups], or [1] with the multi arm */
    pb_clip_entry *clip_list;   /* [ntrained] device */
    pb_adamw_entry *adamw_list; /* [ntrained] device */
    pb_adamw_state *state;      /* [1] device */
};

/* Width of the product that holds q, k and v. */
static inline int pb_qkv_width(const pb_geometry *g) { return (g->H + 2 * g->K) * g->d; }
/* Pointer to column `col` of a tensor of the model's dtype. */
static inline void *pb_column(const pb_trainer *t, void *p, int col)
{
    return (unsigned char *)p + (size_t)col * pb_dtype_size(t->model.cfg.dtype);
}
/* q and k as attention reads them. */
static inline void pb_attention_inputs(const pb_trainer *t, const pb_layer_acts *a, void **q, void **k, size_t *ld)
{
    const pb_geometry *g = &t->model.g;
    *q = a->qk ? a->qk : a->qkv;
    *k = pb_column(t, *q, g->H * g->d);
    *ld = a->qk ? (size_t)(g->H + g->K) * g->d : (size_t)pb_qkv_width(g);
}

/* The products of a layer that share an input, and the adapter targets among their outputs. */
typedef struct pb_product {
    int param, bias; /* ids of model.def; bias -1: none */
    pb_target first;
    int targets;
} pb_product;
extern const pb_product pb_product_qkv, pb_product_o, pb_product_gate_up, pb_product_down;

/* Fills device tables of rotations [S,dim/2] of the trainer's S; scaling NULL: none. Waits. */
pb_status pb_upload_rotations(pb_trainer *t, float *cosines, float *sines, int dim, double theta,
                              const pb_rope_scaling *scaling);

/* clip.c: (re)writes the device lists after the arm has changed. */
pb_status pb_clip_write_lists(pb_trainer *t);
#endif
