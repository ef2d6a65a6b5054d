/* lora.h - low-rank adapters (LoRA) on the outputs of linear layers that share their input, all in one call.
 *
 * Hu et al. 2021, arXiv:2106.09685, eq. 3: a is [R,K], b is [N,R], scale = alpha/R. Forward, for every
 * target i (q and v, for example):
 *     xa_i = x a_i^T        y_i += scale xa_i b_i^T
 * Backward:
 *     db_i (+)= scale dy_i^T xa_i     dxa_i = scale dy_i b_i     da_i (+)= dxa_i^T x
 *     dx += sum over i of dxa_i a_i
 * x, y, xa, a, b, dx and dy have type `dtype`; da and db are f32. y_i may be a range of columns of a wider tensor
 * (ldy > N). In bf16, xa is rounded to bf16, and both y and the backward pass use the rounded xa. */
#ifndef PB_LORA_H
#define PB_LORA_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { PB_LORA_MAX = 4 };

typedef struct pb_lora_target {
    const void *a; /* [R,K] */
    const void *b; /* [N,R] */
    void *xa;      /* [T,R], out; the backward pass needs it */
    void *y;       /* [T,N], read and written; rows are ldy elements apart */
    size_t ldy;
    int N;
} pb_lora_target;

typedef struct pb_lora_fwd_args {
    const void *x; /* [T,K] */
    pb_lora_target target[PB_LORA_MAX];
    int n; /* targets used, 1..PB_LORA_MAX */
    int T, K, R;
    float scale;
    pb_dtype dtype;
} pb_lora_fwd_args;

typedef struct pb_lora_grad {
    const void *a, *b, *xa; /* as in pb_lora_target */
    const void *dy;         /* [T,N]; rows are lddy elements apart */
    float *da;              /* [R,K] f32, out */
    float *db;              /* [N,R] f32, out */
    size_t lddy;
    int N;
} pb_lora_grad;

typedef struct pb_lora_bwd_args {
    const void *x; /* [T,K] */
    void *dx;      /* [T,K], read and written: dx += ... */
    pb_lora_grad target[PB_LORA_MAX];
    int n;
    int T, K, R;
    float scale;
    bool accumulate; /* true: da, db +=; false: = */
    pb_dtype dtype;
} pb_lora_bwd_args;

PB_DECLARE_OP(lora, fwd)
PB_DECLARE_OP(lora, bwd)

#ifdef __cplusplus
}
#endif
#endif
