/* op.h - an op is one descriptor: what it computes on, how to make its inputs, what it must cost, and
 * every implementation of it. Tests, benchmarks and the trainer all reach it through pb_op_run. */
#ifndef PB_OP_H
#define PB_OP_H
#include "kernels/core/bind.h"
#include "kernels/core/ctx.h"
#ifdef __cplusplus
extern "C" {
#endif

/* One way to compute an op. `run` only enqueues on ctx's stream: it allocates nothing, waits for
 * nothing and uses no other stream, so that any op can be recorded into a graph. */
typedef struct pb_impl {
    const char *name; /* "ref" is the oracle; NULL ends a list */
    pb_status (*run)(pb_ctx *ctx, const void *args);
    bool (*accepts)(const void *args);     /* NULL: every valid shape and dtype */
    size_t (*workspace)(const void *args); /* bytes of ctx->scratch it needs; NULL: none */
    bool (*available)(void);               /* NULL: on every machine; else e.g. pb_cpu_has_avx512 */
    bool varies;                           /* not deterministic: two runs may differ in the last bits */
} pb_impl;

/* The least work any version must do, for floors: FLOPs (multiply and add count one each) and bytes
 * of compulsory traffic. An op bound by neither leaves both 0. */
typedef struct pb_cost {
    double flops, bytes;
} pb_cost;

typedef int pb_dims[PB_MAX_AXES];

typedef struct pb_op {
    const char *name;           /* "rmsnorm_fwd" */
    const char *axes;           /* "BSD": one letter an entry of pb_dims */
    const pb_dims *edge;        /* shapes that tests run; a row whose first entry is 0 ends the list */
    const pb_dims *grid;        /* shapes that `bench --suite kernels` runs; ended alike */
    const pb_dims *device_grid; /* further shapes on a GPU, too large for a CPU; NULL: none */
    size_t args_size;
    const pb_impl *impls[PB_NBACKENDS]; /* best first */
    /* Reports arguments that no implementation may take (negative sizes, eps <= 0, NULL): EINVAL. */
    pb_status (*check)(const void *args);
    /* Shape -> seeded inputs and poisoned outputs on the binder's device. */
    pb_status (*bind)(pb_binder *b, const int *dim, void *args);
    /* Optional: replaces inputs that another op produces (attention's o and lse) by consistent ones.
     * Runs on the CPU binder only; other devices receive a copy of its inputs. */
    pb_status (*prepare)(pb_ctx *cpu, const void *args);
    pb_cost (*cost)(const void *args);
    double tol[PB_NFLOAT]; /* relative L2 of every output against ref, per dtype; see pb_compare */
    /* For a backward op: the forward whose finite differences it must match. Names join them: the
     * forward's output y has the gradient dy, its input x the gradient dx. */
    const struct pb_op *grad_of;
    const char *loss; /* with grad_of: the forward's scalar output whose upstream gradient is 1 */
    bool f32_only;    /* nothing in it has the type `dtype` */
    double grad_tol;  /* relative L2 against central differences in f32; 0: 2e-3 */
} pb_op;

/* The one door through which every op passes: checks the arguments, picks the implementation, sizes
 * the scratch, counts, applies PB_DEBUG, or notes the call while a graph is recorded.
 * EINVAL: bad arguments; EUNSUPPORTED: no implementation takes them. */
pb_status pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args);
/* The implementation pb_op_run would pick, or NULL. */
const pb_impl *pb_op_pick(const pb_ctx *ctx, const pb_op *op, const void *args);
/* Runs a picked implementation: pb_op_run after the choice, and what replay calls. */
pb_status pb_impl_run(pb_ctx *ctx, const pb_op *op, const pb_impl *impl, const void *args);
const pb_op *pb_op_find(const char *name);                    /* NULL when there is none */
bool pb_impl_exists(pb_backend_id backend, const char *name); /* of any op */

extern const pb_op *const pb_ops[]; /* every line of ops.def, NULL-ended */

/* "B2.S128.D576" in the order of op->axes, for keys and messages. Writes at most n bytes. */
void pb_dims_text(const pb_op *op, const int *dim, char *out, size_t n);

/* The backend's list of implementations of an op is a NULL-name-ended array with these names. */
#define PB_DECLARE_OP(f, p)                                                                                            \
    extern const pb_op pb_op_##f##_##p;                                                                                \
    extern const pb_impl pb_##f##_##p##_cpu[], pb_##f##_##p##_cuda[];                                                  \
    static inline pb_status pb_##f##_##p(pb_ctx *ctx, const pb_##f##_##p##_args *args)                                 \
    {                                                                                                                  \
        return pb_op_run(ctx, &pb_op_##f##_##p, args);                                                                 \
    }
#define PB_BOTH_BACKENDS(f, p)                                                                                         \
    {                                                                                                                  \
        [PB_CPU] = pb_##f##_##p##_cpu, [PB_CUDA] = pb_##f##_##p##_cuda                                                 \
    }
#ifdef __cplusplus
}
#endif
#endif
