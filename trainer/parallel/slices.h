/* slices.h - divides the buckets of gradients into slices, one per rank: which elements of each trained tensor a rank
 * keeps the optimizer's state of (--shard) and writes into its file of a checkpoint; a pure function.
 *
 * The flat layout. The trained tensors are one vector in the order of pb_model.order; element i of tensor p is element
 * p->at + i of the vector. Bucket b is a range of the vector (pb_bucket). Its slices are contiguous, in the order of
 * the ranks, and cover it; a slice may be empty. A slice ends at the end of a tensor or at p->at + k pb_cut_run(p),
 * that is, between two partial sums of the gradient's norm (clip.h) and between two blocks of 8-bit moments (adamw.h).
 * So each partial sum and each block of the unsharded tensor is computed by one rank, and the norm and the moments are
 * bitwise identical for any number of ranks. The own vector of a rank is its slices of all buckets, one after the
 * other.
 *
 * Which rank gets what. Where AdamW trains all tensors, the counts are as equal as the rule above allows. With NorMuon
 * (pb_model_config.row_moments) a slice that ends inside a matrix of NorMuon also ends at the end of a block
 * (trainer/parallel/matrix_cuts.h), so each block is whole on one rank, its owner. Costs are balanced then, not counts:
 * bucket after bucket is divided so that the largest sum of costs of a rank that gets a part of it, over all buckets so
 * far, is as small as possible; lower ranks are filled first. A block costs pb_matrix_cost, another element
 * PB_ADAMW_COST. The largest sum of a rank is at most the mean of the ranks plus the cost of the largest part that
 * cannot be divided. */
#ifndef PB_SLICES_H
#define PB_SLICES_H
#include "trainer/parallel/buckets.h"

/* A piece: the elements [first, first+n) of a trained tensor, all of which are in the rank's slice of one bucket. They
 * are the elements [own, own+n) of the rank's own vector. */
typedef struct pb_piece {
    const pb_param *p;
    size_t first, n, own;
    int bucket;
} pb_piece;

typedef struct pb_slices {
    int ranks, rank;
    size_t *count;   /* [buckets][ranks] elements of each slice, gaps between tensors included */
    size_t *own;     /* [buckets] where the slice of each bucket begins in the own vector */
    size_t total;    /* elements of the own vector */
    pb_piece *piece; /* [n] the rank's parts of tensors, in the order of the vector; none is empty */
    int n;
} pb_slices;

/* per_head: pb_normuon_config.per_head, read with NorMuon only. The caller passes *out to pb_slices_free. ENOMEM. */
pb_status pb_slices_make(const pb_model *m, const pb_buckets *b, int ranks, int rank, bool per_head, pb_slices *out);
void pb_slices_free(pb_slices *s); /* {0} is allowed */
/* Where the slice of a rank begins in its bucket, in elements. */
size_t pb_slice_at(const pb_slices *s, int bucket, int rank);
/* A slice may end at each multiple of this number of elements of a tensor. It is a multiple of pb_clip_run and, for
 * 8-bit moments, of PB_ADAMW_BLOCK. */
size_t pb_cut_run(const pb_param *p);
/* The number of second moments of a piece: one per element, or one per row if p->by_rows is set (NorMuon). */
static inline size_t pb_piece_seconds(const pb_piece *x) { return x->p->by_rows ? x->n / x->p->cols : x->n; }
#endif
