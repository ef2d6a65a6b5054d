/* calls.h - binds an op to seeded tensors and calls it, for tests that run every op. */
#ifndef PB_TESTS_CALLS_H
#define PB_TESTS_CALLS_H
#include "tests/test.h"

/* The tensors of an op, and the arguments that point at them. */
typedef struct call {
    const pb_op *op;
    void *args;
    pb_binder b;
} call;

/* Runs the call `self`; has the signature of pb_fn. */
static inline pb_status call_run(pb_ctx *ctx, void *self)
{
    return pb_op_run(ctx, ((call *)self)->op, ((call *)self)->args);
}

static inline call call_bind(pb_ctx *ctx, const pb_op *op, const int *dim, pb_dtype t)
{
    call c = {op, calloc(1, op->args_size), {.ctx = ctx, .dtype = t, .seed = 7}};
    assert_non_null(c.args);
    CHECK_OK(op->bind(&c.b, dim, c.args));
    return c;
}

static inline void call_unbind(call *c)
{
    pb_unbind(&c->b);
    free(c->args);
}

/* A call on the CPU whose inputs are consistent with each other (op->prepare). call_fresh() copies them to other
 * calls. */
static inline call call_inputs(pb_ctx *cpu, const pb_op *op, const int *dim, pb_dtype t)
{
    call c = call_bind(cpu, op, dim, t);
    if (op->prepare) CHECK_OK(op->prepare(cpu, c.args));
    return c;
}

/* Poisons the outputs of c and copies the inputs of `inputs` into c. */
static inline void call_fresh(call *c, const call *inputs)
{
    CHECK_OK(pb_rebind(&c->b));
    CHECK_OK(pb_copy_inputs(&c->b, &inputs->b));
}

static inline bool call_takes(const pb_impl *i, const call *c)
{
    return (!i->available || i->available()) && (!i->accepts || i->accepts(c->args));
}
#endif
