/* bind.h - makes the tensors of an op for tests and benchmarks: seeded inputs and poisoned outputs, with guard words
 * before and after each. It also compares the outputs of two such sets.
 *
 * On a planning context (pb_ctx_open_plan) tensors have addresses but no values.
 *
 * The first failure is kept in `status`, and calls after it return NULL. It is enough to test
 * `status` once, at the end. */
#ifndef PB_BIND_H
#define PB_BIND_H
#include "kernels/engine/ctx.h"
#include "kernels/engine/dtype.h"
#ifdef __cplusplus
extern "C" {
#endif
enum { PB_MAX_AXES = 10, PB_MAX_BOUND = 32 };

typedef enum pb_role { PB_ROLE_IN, PB_ROLE_OUT, PB_ROLE_INOUT } pb_role;

typedef struct pb_bound {
    const char *name;      /* not copied: must outlive the binder */
    void *p;               /* device pointer to element 0 */
    size_t rows, cols, ld; /* element (r,c) is at r*ld + c; columns cols..ld-1 are a gap that no op may touch */
    pb_dtype dtype;
    pb_role role;
    bool log;      /* holds logarithms: -inf is a valid value; see pb_out_log */
    double lo, hi; /* range of the seeded values */
    uint64_t sum;  /* checksum of an input when it was uploaded */
    void *raw;     /* bytes given to pb_in_raw or pb_inout_raw: an owned copy; NULL: seeded */
} pb_bound;

typedef struct pb_binder {
    pb_ctx *ctx;
    pb_dtype dtype; /* type of the op's floating-point tensors */
    uint64_t seed;  /* equal seeds and equal sequences of calls give equal values on every backend */
    pb_status status;
    int n;
    pb_bound t[PB_MAX_BOUND];
} pb_binder;

/* Bind seeded inputs, uniform in [-1,1) or in [lo,hi). Integer types get the integers lo..hi-1. */
const void *pb_in(pb_binder *b, const char *name, pb_dtype dtype, size_t n);
const void *pb_in_range(pb_binder *b, const char *name, pb_dtype dtype, size_t n, double lo, double hi);
const void *pb_in_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld);
/* Bind outputs. They are poisoned with NaN (integers: bytes 0x7f), so that elements that the op never writes are
 * found. */
void *pb_out(pb_binder *b, const char *name, pb_dtype dtype, size_t n);
void *pb_out_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld);
/* Binds an f32 output of logarithms. -inf, the logarithm of 0, counts as equal if both compared outputs have it. */
float *pb_out_log(pb_binder *b, const char *name, size_t n);
/* Bind tensors that an op reads and writes: seeded in [lo,hi) like an input, compared like an output. */
void *pb_inout(pb_binder *b, const char *name, pb_dtype dtype, size_t n, double lo, double hi);
void *pb_inout_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld);

/* Binds an input whose bytes the caller gives, such as a list of pointers to other tensors. The bytes are copied, and
 * pb_rebind restores them. pb_copy_inputs skips such an input, because pointers differ between devices. */
const void *pb_in_raw(pb_binder *b, const char *name, const void *bytes, size_t n);
/* How many of n values a bind has to compute before it gives them to pb_in_raw: all, or none on a planning context,
 * where no value is read. */
static inline size_t pb_to_compute(const pb_binder *b, size_t n) { return b->ctx->planning ? 0 : n; }
/* Like pb_in_raw, but the op reads and writes it. It is compared byte by byte as integers. */
void *pb_inout_raw(pb_binder *b, const char *name, const void *bytes, size_t n);

void pb_unbind(pb_binder *b); /* frees all tensors; the binder can then be used again */
/* Writes the seeded values and the poison again, so that an op can run again from the same state. */
pb_status pb_rebind(pb_binder *b);
/* Copies the inputs of `from` to `to`. Both were bound by the same sequence of calls. */
pb_status pb_copy_inputs(pb_binder *to, const pb_binder *from);
pb_bound *pb_find_bound(pb_binder *b, const char *name); /* NULL: no tensor has this name */

/* Copy the elements of tensor k between host memory [rows,cols], which has no gaps, and the device. pb_bound_set also
 * makes the written values those that pb_check_guards expects of an input. Host syncs. */
pb_status pb_bound_get(const pb_binder *b, int k, void *host);
pb_status pb_bound_set(pb_binder *b, int k, const void *host);
/* True if the bytes given to pb_in_raw or pb_inout_raw contain the address of a tensor of this binder. On a planning
 * context no number looks like an address. */
bool pb_bound_has_addresses(const pb_binder *b, int k);

/* Returns the FNV-1a hash of n bytes, computed on eight bytes at a time, because tensors of benchmarks have
 * gigabytes. */
uint64_t pb_checksum(const void *bytes, size_t n);

/* Fails with EWRONG and a message if a guard word, a gap between rows or an input has changed since it was bound. In a
 * build with AddressSanitizer, a CPU kernel that reads or writes a guard word ends the process with a report. */
pb_status pb_check_guards(pb_binder *b);

/* The difference between two sets of outputs: the maximum over all outputs. A non-finite element in either set makes
 * both numbers NaN, so test !(err <= tol). -inf in both sets of a tensor of logarithms counts as equal. Gaps are not
 * compared. */
typedef struct pb_diff {
    double rel;         /* norm of the error, ||got-want|| / ||want||; absolute where `want` is all zero */
    double max;         /* largest error, max|got-want| / rms(want); absolute where `want` is all zero */
    const char *tensor; /* the output that has this `rel` */
} pb_diff;
pb_status pb_compare(const pb_binder *want, const pb_binder *got, pb_diff *diff);
/* Applies the acceptance rule of every op test: rel <= tol and max <= 100 tol. False on NaN. */
static inline bool pb_diff_ok(const pb_diff *d, double tol) { return d->rel <= tol && d->max <= 100 * tol; }
/* Compares two arrays in host memory in the same way as pb_compare. */
pb_diff pb_diff_arrays(const void *want, const void *got, size_t n, pb_dtype dtype);

/* Returns a uniform double in [0,1): value number i of stream `seed` (splitmix64). It depends on i and `seed` only. */
double pb_uniform(uint64_t seed, uint64_t i);
#ifdef __cplusplus
}
#endif
#endif
