/* bind.h - makes an op's tensors for tests and benchmarks: seeded inputs, poisoned outputs, guard
 * words around both, and the comparison of two such sets.
 *
 * On a context that only plans (pb_ctx_open_plan) tensors have addresses and no values.
 *
 * The first failure sticks in `status`; calls after it return NULL. Test it once, at the end. */
#ifndef PB_BIND_H
#define PB_BIND_H
#include "kernels/core/ctx.h"
#include "kernels/core/dtype.h"
#ifdef __cplusplus
extern "C" {
#endif
enum { PB_MAX_AXES = 10, PB_MAX_BOUND = 32 };

typedef enum pb_role { PB_ROLE_IN, PB_ROLE_OUT, PB_ROLE_INOUT } pb_role;

typedef struct pb_bound {
    const char *name;      /* static storage */
    void *p;               /* device pointer to element 0 */
    size_t rows, cols, ld; /* element (r,c) at r*ld + c; what lies between cols and ld is a gap that
                              no op may touch */
    pb_dtype dtype;
    pb_role role;
    bool log;      /* of logarithms: -inf is a value, see pb_out_log */
    double lo, hi; /* range of the seeded values */
    uint64_t sum;  /* checksum of an input as it was handed over */
    void *raw;     /* pb_in_raw: the bytes; owned */
} pb_bound;

typedef struct pb_binder {
    pb_ctx *ctx;
    pb_dtype dtype; /* of the op's floating-point tensors */
    uint64_t seed;  /* same seed and calls: same values on every backend */
    pb_status status;
    int n;
    pb_bound t[PB_MAX_BOUND];
} pb_binder;

/* Seeded inputs, uniform in [-1,1) or in [lo,hi) (integer types: lo..hi-1). */
const void *pb_in(pb_binder *b, const char *name, pb_dtype dtype, size_t n);
const void *pb_in_range(pb_binder *b, const char *name, pb_dtype dtype, size_t n, double lo, double hi);
const void *pb_in_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld);
/* Outputs, poisoned with NaN (integers: 0x7f bytes), so that an element never written shows. */
void *pb_out(pb_binder *b, const char *name, pb_dtype dtype, size_t n);
void *pb_out_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld);
/* The same, of f32 logarithms: that of 0, -inf, is right where both sides of a comparison have it. */
float *pb_out_log(pb_binder *b, const char *name, size_t n);
/* Read and written: seeded like an input in [lo,hi), compared like an output. */
void *pb_inout(pb_binder *b, const char *name, pb_dtype dtype, size_t n, double lo, double hi);
void *pb_inout_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld);

/* An input whose bytes the caller gives (a list of pointers into other tensors, say). Copied; the same
 * on every rebind; pb_copy_inputs leaves it alone, because pointers differ from device to device. */
const void *pb_in_raw(pb_binder *b, const char *name, const void *bytes, size_t n);
/* The same, read and written: compared byte by byte, so for what must come out equal (integers). */
void *pb_inout_raw(pb_binder *b, const char *name, const void *bytes, size_t n);

void pb_unbind(pb_binder *b); /* releases everything; the binder may be bound again */
/* Writes the seeded values and the poison once more, so that an op can run again from the start. */
pb_status pb_rebind(pb_binder *b);
/* Makes the inputs of `to` equal those of `from`, tensor by tensor (they were bound alike). */
pb_status pb_copy_inputs(pb_binder *to, const pb_binder *from);
pb_bound *pb_find_bound(pb_binder *b, const char *name); /* NULL when there is none */

/* EWRONG with a message when a guard word, a gap or an input has changed since bind. */
pb_status pb_check_guards(pb_binder *b);

/* How far two sets of outputs are apart, worst output first. A non-finite element on either side
 * makes both NaN, so write !(err <= tol); but -inf on both sides of a logarithm is no difference. Gaps are left out. */
typedef struct pb_diff {
    double rel;         /* ||got-want|| / ||want||; absolute where want is all zero */
    double max;         /* max|got-want| / rms(want), alike */
    const char *tensor; /* the output that `rel` belongs to */
} pb_diff;
pb_status pb_compare(const pb_binder *want, const pb_binder *got, pb_diff *diff);
/* The acceptance rule of every op test: rel <= tol and max <= 100 tol. False on NaN. */
static inline bool pb_diff_ok(const pb_diff *d, double tol) { return d->rel <= tol && d->max <= 100 * tol; }
/* The same on two plain arrays in host memory. */
pb_diff pb_diff_arrays(const void *want, const void *got, size_t n, pb_dtype dtype);

/* Uniform double in [0,1) from a counter: value i of stream `seed` (splitmix64). */
double pb_uniform(uint64_t seed, uint64_t i);
#ifdef __cplusplus
}
#endif
#endif
