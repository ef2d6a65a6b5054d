/* op.h - pb_op, the descriptor of an op: its arguments and shapes, how to make its inputs, the least work it must do,
 * and the list of its implementations. Tests, benchmarks and the trainer all run an op with pb_op_run. */
#ifndef PB_OP_H
#define PB_OP_H
#include "kernels/engine/bind.h"
#include "kernels/engine/ctx.h"
#ifdef __cplusplus
extern "C" {
#endif

/* One way to compute an op. `run` only enqueues on ctx's stream: it does not allocate, does not wait for the device and
 * uses no other stream. So every op can be recorded into a graph. */
typedef struct pb_impl {
    const char *name; /* "ref" is the reference; NULL ends a list */
    pb_status (*run)(pb_ctx *ctx, const void *args);
    bool (*accepts)(const void *args);     /* NULL: takes every valid shape and dtype */
    size_t (*workspace)(const void *args); /* bytes of ctx->scratch that `run` needs; NULL: none */
    bool (*available)(void);               /* true if this machine can run it, e.g. pb_cpu_has_avx512; NULL: always */
    bool varies;                           /* not deterministic: two runs may differ in the last bits */
    /* Optional. Makes memory that belongs to something in *args, such as a communicator, large enough. Called before
     * `run`, and also on the plan backend, which accounts for the memory; it may allocate outside recordings only. */
    pb_status (*reserve)(pb_ctx *ctx, const void *args);
} pb_impl;

/* The least work that any implementation must do; the roofline time follows from it. An op that neither arithmetic nor
 * memory traffic limits leaves both 0.
 *     flops  floating-point operations; a multiply-add counts as two
 *     bytes  each input read once, each output written once */
typedef struct pb_cost {
    double flops, bytes;
} pb_cost;

typedef int pb_dims[PB_MAX_AXES];

/* A number among an op's arguments that no shape determines, such as eps. */
typedef struct pb_number {
    const char *name;     /* NULL ends a list */
    size_t offset, bytes; /* in the struct of arguments; bytes: of a float or a double */
} pb_number;
#define PB_NUMBER(args, member)                                                                                        \
    {                                                                                                                  \
#member, offsetof(args, member), sizeof(((args *)0)->member)                                                   \
    }

typedef struct pb_op {
    const char *name;    /* for example "rmsnorm_fwd" */
    const char *axes;    /* for example "BSD": one letter per entry of pb_dims */
    const char *rare;    /* axes after those, which the text of a shape names only where they are not 0; NULL: none */
    const pb_dims *edge; /* shapes that the tests run; a row whose first entry is 0 ends the list */
    const pb_dims *grid; /* shapes that `bench --suite kernels` runs; ended like `edge` */
    const pb_dims *device_grid; /* further shapes for GPUs, too large for a CPU; NULL: none */
    size_t args_size;
    const pb_number *numbers;           /* with which a captured call is described besides its shape; NULL: none */
    const pb_impl *impls[PB_NBACKENDS]; /* the preferred implementation first */
    /* Fails with EINVAL on arguments that no implementation may take, such as a negative size, eps <= 0 or NULL. */
    pb_status (*check)(const void *args);
    /* Allocates the tensors of shape `dim` on the binder's device, seeds the inputs, poisons the
     * outputs, and fills *args. */
    pb_status (*bind)(pb_binder *b, const int *dim, void *args);
    /* Optional. Overwrites seeded inputs that in real use come from another op (such as o and lse in
     * attention's backward pass) with consistent values. Runs on the CPU binder only; other devices
     * receive a copy of its inputs. */
    pb_status (*prepare)(pb_ctx *cpu, const void *args);
    pb_cost (*cost)(const void *args);
    double tol[PB_NFLOAT]; /* per dtype: limit on the relative L2 error of every output against "ref"; see pb_compare */
    /* For a backward op: the forward op whose finite differences it must match. Tensors are matched by name: output y
     * of the forward op has the gradient dy, input x the gradient dx. */
    const struct pb_op *grad_of;
    const char *loss; /* with grad_of: name of the forward op's scalar output; its upstream gradient is 1 */
    bool f32_only;    /* true: all floating-point tensors of this op are f32, for any `dtype` */
    double grad_tol;  /* limit on the relative L2 error against central differences in f32; 0: 2e-3 */
} pb_op;

/* Runs an op: checks the arguments, selects an implementation, reserves its scratch memory, counts the launch and
 * applies PB_DEBUG. While a CPU graph is recorded, the call is added to the graph instead of being run. EINVAL: bad
 * arguments; EUNSUPPORTED: no implementation takes them. */
pb_status pb_op_run(pb_ctx *ctx, const pb_op *op, const void *args);
/* Returns the implementation that pb_op_run would select, or NULL. */
const pb_impl *pb_op_pick(const pb_ctx *ctx, const pb_op *op, const void *args);
/* Runs `impl` without checking the arguments and without selecting an implementation. pb_op_run calls it, and the
 * replay of a CPU graph calls it for each node. */
pb_status pb_impl_run(pb_ctx *ctx, const pb_op *op, const pb_impl *impl, const void *args);
const pb_op *pb_op_find(const char *name);                    /* NULL: no op has this name */
bool pb_impl_exists(pb_backend_id backend, const char *name); /* true if any op has an implementation of this name */

extern const pb_op *const pb_ops[]; /* one entry per line of ops.def; NULL ends the list */

/* Writes a shape such as "B2.S128.D576", in the order of op->axes, for keys and messages. Writes at most n
 * bytes, including the final 0. */
void pb_dims_text(const pb_op *op, const int *dim, char *out, size_t n);

/* Declares an op and its two lists of implementations, one per backend. Each list ends with an
 * entry whose name is NULL. */
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
