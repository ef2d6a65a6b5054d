/* normuon.h - one NorMuon step over all its matrices. Li, Liu, Liang, Chen, Zhao 2025, arXiv:2510.05491; order and
 * constants as in microsoft/dion, dion/normuon.py and dion/muon.py.
 *
 * A block is a matrix [rows,cols] that is orthogonalised alone: a parameter, or some of its rows, such as the rows of q
 * in a fused qkv. For each block, with gradient G, scaled by s as in adamw.h:
 *
 *     momentum   M = mu M + s G                  U = M, or with nesterov U = mu M + s G
 *                U is rounded to `dtype`, and replaced by its orthogonal factor (newton_schulz.h)
 *     rows       v_i = v_i + (1 - beta2) (mean over j of U_ij^2 - v_i)
 *                f_i = h_i ||U||_F / max(||h U||_F, 1e-8)        with h_i = 1 / (sqrt(v_i) + 1e-8), (h U)_ij = h_i U_ij
 *     apply      W_ij = W_ij (1 - lr wd) - lr r f_i U_ij
 *
 * So the rescaled update has the norm of U. v starts at 0 and has no bias correction; f does not change when all v_i
 * are multiplied by the same factor. Weight decay uses lr, without the factor r of the block's shape
 * (pb_normuon_adjust). With `cautious`, elements where W_ij U_ij < 0 have no weight decay. Unlike dion, M and v are f32
 * whatever the type of the weights, because bf16 loses additions that are small next to the sum. Also unlike dion, the
 * update of a block always gets its norm back as a whole; dion with FSDP2 does this for the rows of each rank alone.
 *
 * normuon_dion_test takes four steps on five small matrices and compares the weights with those of dion's own code at
 * commit 0a059a45. The L2 norm of the difference must be at most 1e-5 of the change of the weights for our f32 and
 * dion's code computed in float64, 0.03 for our bf16 and dion's code in float64, and 0.1 for our bf16 and dion as it
 * is, which rounds more intermediate results to bf16.
 *
 * Four ops, so that the blocks of one shape are orthogonalised together and a rank can update a part of a block:
 *     momentum   M and U of pieces
 *     check      whether a vector has an element that is not finite (the NaN guard)
 *     rows       v and f of whole blocks
 *     apply      W of pieces
 *
 * Skipped steps. All ops but check read `when`. If a clip state has `skip` set, the loss is not finite, or *guard is
 * not 0, a step is skipped: rows and apply change nothing, and momentum leaves M and sets U to 0. momentum runs before
 * the guard is known, so its caller passes no guard to it. It has two ways to treat M if the guard then skips the step:
 *     keep = true    momentum writes M, which keeps the gradient of the skipped step (dion's guard does so)
 *     keep = false   momentum does not write M; apply, called with commit = true, computes the same M and writes it,
 *                    so that a skipped step leaves M as it was. Both give the same bits if no step is skipped. */
#ifndef PB_NORMUON_H
#define PB_NORMUON_H
#include "kernels/adamw/adamw.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The factor r for the learning rate of a block. Each entry: X(enumerator, word on the command line, meaning). */
#define PB_NORMUON_ADJUST_MAP(X)                                                                                       \
    X(SPECTRAL, "spectral", "sqrt(rows/cols): the same learning rate for any width")                                   \
    X(RMS, "rms", "0.2 sqrt(max(rows, cols)): a learning rate as for AdamW")                                           \
    X(NONE, "none", "1")
typedef enum pb_normuon_adjust_kind {
#define X(id, word, what) PB_NORMUON_##id,
    PB_NORMUON_ADJUST_MAP(X)
#undef X
        PB_NNORMUON_ADJUSTS
} pb_normuon_adjust_kind;

/* A block. */
typedef struct pb_normuon_block {
    const void *u; /* [rows,cols] dtype: the orthogonal factor */
    float *v;      /* [rows], read and written */
    float *factor; /* [rows], out: f */
    int rows, cols;
} pb_normuon_block;

/* Elements first .. first+n-1 of a block; the pointers but `factor` are to element `first`. */
typedef struct pb_normuon_piece {
    void *w;             /* [n] wdtype, read and written */
    float *master;       /* [n] f32 master weights; NULL, with wdtype f32 only: w is the master */
    const float *grad;   /* [n] */
    float *m;            /* [n] */
    void *u;             /* [n] dtype; momentum writes it, apply reads it */
    const float *factor; /* [rows] of the block */
    size_t first, n;
    int rows, cols; /* of the block */
    pb_dtype wdtype;
    int clip;    /* as in pb_adamw_entry */
    float decay; /* wd */
} pb_normuon_piece;

/* The conditions on which a step is skipped, and the scale of its gradients; the members are those of
 * pb_adamw_step_args. */
typedef struct pb_normuon_when {
    const pb_clip_state *clip; /* [nclip], or NULL */
    const float *loss_scale;   /* [1], or NULL: 1 */
    const float *loss;         /* [1]; NULL: not checked */
    const float *guard;        /* [1] 0, or 1: the step is skipped; NULL: 0 */
    int nclip;
    bool scale_gradients;
} pb_normuon_when;

typedef struct pb_normuon_momentum_args {
    const pb_normuon_piece *list; /* [n] in device memory */
    pb_normuon_when when;         /* without guard */
    size_t elements;              /* of all pieces; used for the op's cost only */
    int n;
    float mu; /* 0 <= mu < 1 */
    bool nesterov, keep;
    pb_dtype dtype; /* of U: f32 or bf16 */
} pb_normuon_momentum_args;

typedef struct pb_normuon_check_args {
    const void *x; /* [n] dtype */
    float *flag;   /* [1] f32, out: 1 if an element is NaN or infinite, else 0 */
    size_t n;
    pb_dtype dtype;
} pb_normuon_check_args;

typedef struct pb_normuon_rows_args {
    const pb_normuon_block *list; /* [n] in device memory */
    pb_normuon_when when;
    size_t elements, rows; /* of all blocks; used for the op's cost and its scratch memory */
    int n;
    float beta2; /* 0 <= beta2 < 1 */
    pb_dtype dtype;
} pb_normuon_rows_args;

typedef struct pb_normuon_apply_args {
    const pb_normuon_piece *list; /* [n] in device memory */
    pb_normuon_when when;
    const pb_adamw_state *state; /* [1]; lr is read */
    size_t elements;             /* used for the op's cost only */
    int n;
    float rate; /* the learning rate of the matrices is rate * state->lr */
    pb_normuon_adjust_kind adjust;
    bool cautious;
    bool commit; /* true: also M = mu M + s G, which the op momentum has not written */
    float mu;    /* read with commit only */
    pb_dtype dtype;
} pb_normuon_apply_args;

PB_DECLARE_OP(normuon, momentum)
PB_DECLARE_OP(normuon, check)
PB_DECLARE_OP(normuon, rows)
PB_DECLARE_OP(normuon, apply)

#ifdef __cplusplus
}
#endif
#endif
