/* state_impl.h - the tensors of a state file, shared by the files that write and load it. */
#ifndef PB_STATE_IMPL_H
#define PB_STATE_IMPL_H
#include "trainer/checkpoint/state.h"
#include "trainer/step/trainer_impl.h"

enum { PB_STATE_CHUNK = 1 << 20 }; /* f32 elements per transfer between host and device */
/* The kinds of tensors that a checkpoint has for each trained parameter. */
typedef enum pb_state_kind {
    PB_STATE_W,        /* weights, f32 */
    PB_STATE_M,        /* first moments; in 8 bits, their codes */
    PB_STATE_V,        /* second moments; in 8 bits, their codes */
    PB_STATE_M_ABSMAX, /* f32 absmax of each block of first moments; only of moments in 8 bits (kernels/adamw/adamw.h) */
    PB_STATE_V_ABSMAX,
    PB_STATE_KINDS
} pb_state_kind;
enum { PB_STATE_SCALARS = 4 };
/* The scalars of a trainer: the last one, of the NaN guard, only with NorMuon. */
static inline size_t pb_state_scalars(const pb_trainer *t)
{
    return t->cfg.optimizer == PB_OPTIMIZER_NORMUON ? PB_STATE_SCALARS : PB_STATE_SCALARS - 1;
}
extern const char *const pb_state_scalar_names[PB_STATE_SCALARS];
extern const pb_st_dtype pb_state_scalar_types[PB_STATE_SCALARS];

/* Elements first .. first+n-1 of the tensor of one kind of a trained parameter. The tensor has the parameter's shape,
 * except that second moments of a matrix that NorMuon trains have one column, and the absmax values of all blocks form
 * one row. n 0: the parameter has no tensor of this kind. */
typedef struct pb_state_tensor {
    char name[64]; /* such as "m.layers.3.qkv" or "m_absmax.layers.3.qkv", of the whole tensor */
    pb_st_dtype dtype;
    unsigned char *device; /* device memory of these elements */
    size_t first, n;
    const pb_param *p;
    size_t rows, cols; /* of the whole tensor */
} pb_state_tensor;
static inline size_t pb_state_bytes(const pb_state_tensor *x) { return x->n * pb_st_dtype_size(x->dtype); }
/* Describes the whole tensor of a kind. */
pb_state_tensor pb_state_whole(const pb_param *p, pb_state_kind kind);

/* The tensors that this rank keeps: number of tensors, and tensor i. With one rank, or if nothing is sharded, these are
 * whole tensors: all kinds of the first trained parameter, then those of the second, ... */
size_t pb_state_kept(const pb_trainer *t);
pb_state_tensor pb_state_kept_at(const pb_trainer *t, size_t i);

/* The tensors that this rank writes. Each of several ranks writes its slices (slices.h) of tensors that it keeps. */
size_t pb_state_written(const pb_trainer *t);
pb_state_tensor pb_state_written_at(const pb_trainer *t, size_t i);
/* Number of optimizer counters that this rank writes: they are equal on all ranks, and rank 0 writes them. */
size_t pb_state_written_scalars(const pb_trainer *t);

/* The copied elements of the tensors that pb_state_written_at describes, one after the other, and the counters. */
const unsigned char *pb_state_copied(const pb_state_copy *c);
const pb_adamw_state *pb_state_copied_scalars(const pb_state_copy *c);
#endif
