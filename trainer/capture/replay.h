/* replay.h - runs the calls of a capture (capture.h) again, and compares what they write with what was captured.
 *
 * A tensor agrees if NaN, +Inf and -Inf are at the same elements in both, and if the elements that are finite in both
 * have a relative L2 error of at most `bound`, and a largest error of at most 100 bound in units of their root mean
 * square (as in pb_diff). bound is the op's own limit against its reference (pb_op.tol): once if one of the two
 * implementations is the reference, else twice, because each may be off by the limit. Integers are compared as
 * numbers. */
#ifndef PB_REPLAY_H
#define PB_REPLAY_H
#include "trainer/capture/capture.h"

typedef struct pb_captured pb_captured;

/* An output of a call. */
typedef struct pb_replay_row {
    int call;
    const char *tensor, *impl; /* impl: that ran now. Constant text of the op */
    size_t rows, cols;         /* of the tensor */
    size_t captured, now;      /* elements that are not finite */
    size_t moved;              /* elements that are NaN, +Inf or -Inf in one, and something else in the other */
    size_t first;              /* row * cols + column of the first of these, else of the first not finite one */
    double rel, max, bound;
    bool same_bits, agrees;
} pb_replay_row;

/* Opens and checks a capture. EINVAL, with one line that names the file: damaged; not a capture; an op, implementation,
 * shape, number or tensor that this program does not have; a tensor of another shape or type than the op's. EPATH, EIO,
 * ENOMEM. */
pb_status pb_captured_open(const char *path, pb_captured **out);
void pb_captured_close(pb_captured *r); /* NULL is allowed */
int pb_captured_calls(const pb_captured *r);
const char *pb_captured_note(const pb_captured *r, pb_capture_key key); /* NULL: not in the file */
const pb_op *pb_captured_op(const pb_captured *r, int call);
/* How the call was made, such as "rmsnorm_fwd f32 B1.S4.D8 eps=1e-06, cpu.avx2". */
const char *pb_captured_text(const pb_captured *r, int call);

/* Runs a call on ctx, and compares. impl: the implementation to run; NULL: the captured one if it is of this backend
 * and takes the arguments here, else the one that ctx selects. rows [PB_MAX_BOUND]; *n: how many. EUNSUPPORTED: no such
 * implementation takes these arguments. EWRONG: the op wrote outside its tensors, or changed an input. */
pb_status pb_captured_replay(const pb_captured *r, int call, pb_ctx *ctx, const char *impl, pb_replay_row *rows,
                             int *n);

/* Compares two host arrays of row->rows * row->cols elements with row->bound, and fills the members of `row` that say
 * how they differ. */
void pb_replay_compare(const void *captured, const void *now, pb_dtype dtype, pb_replay_row *row);
#endif
