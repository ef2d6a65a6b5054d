/* kernel_case.h - the cases of suite kernels: one op, shape, dtype and implementation each. */
#ifndef PB_KERNEL_CASE_H
#define PB_KERNEL_CASE_H
#include "bench/rows/rows.h"
#include "kernels/engine/op.h"

typedef struct pb_kernel_case {
    const pb_op *op;
    pb_dtype dtype;
    pb_dims dim; /* in the order of op->axes */
} pb_kernel_case;

/* Parses name, dtype and shape of a case, such as kernels/rmsnorm_fwd?dtype=f32&impl=avx2&shape=B1.S256.D576... EINVAL:
 * no such op, or a dtype or shape that it does not have. */
pb_status pb_kernel_case_of(const pb_case *c, pb_kernel_case *out);
/* The bytes and FLOPs of one call of a case, by its op's cost function; zeros: the op has none. Allocates no tensors.
 * The errors of pb_kernel_case_of(), and those of the op's bind. */
pb_status pb_kernel_case_work(const pb_case *c, pb_cost *work);
/* Returns the estimated seconds of a case in one process: filling the tensors, and the calls that are timed, at rates
 * that most ops reach on two CPU cores or (device) on an H200. */
double pb_kernel_case_seconds(const pb_case *c, bool device);

/* Call add(user, case) for each case (pb_suite.enumerate).
 * pb_kernel_cases: of each op the first shape of its grid, on a GPU also all shapes of its device grid. full: all
 * shapes of both, and fallback implementations, which are used only for inputs that a faster one refuses.
 * pb_kernel_edges: of each op the first three edge shapes that the implementation takes; full: all of them. Edge shapes
 * are those of the ops' tests. They reach the same code as the shapes of the grids, which take minutes on an emulated
 * processor. */
pb_status pb_kernel_cases(pb_ctx *ctx, bool full, pb_status (*add)(void *user, const pb_case *c), void *user);
pb_status pb_kernel_edges(pb_ctx *ctx, bool full, pb_status (*add)(void *user, const pb_case *c), void *user);
/* Finds the first edge shape of the op, from `from` on, that implementation plan->impl takes for dtype t; *out is NULL
 * if none is left. plan: the plan backend, which allocates no memory and fills no tensors. ENOMEM. */
pb_status pb_kernel_edge(pb_ctx *plan, const pb_op *op, pb_dtype t, const pb_dims *from, const pb_dims **out);
#endif
