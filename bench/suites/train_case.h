/* train_case.h - what the suites that train share: a trainer from a case's axes, on the shipped text, and
 * the check that its gradients are right. */
#ifndef PB_TRAIN_CASE_H
#define PB_TRAIN_CASE_H
#include "bench/measure/emit.h"
#include "kernels/core/op.h"
#include "trainer/step/trainer.h"

/* The axes every training suite has, with the defaults they share. `attention` is in a key only where it is given:
 * without it a model has its own. It is only for models that have a choice, as one case has one key. */
#define PB_TRAIN_AXES "attention= dtype=f32 layers=0 model=smollm2-135m rank=16 targets=q+v"

/* A trainer for the axes attention, batch, clip, dtype, layers, model, rank, seq, targets, tuning, with batch number
 * `index` of the shipped text in place. EINVAL names the axis that cannot be. */
pb_status pb_train_case_open(pb_ctx *ctx, const pb_case *c, pb_trainer **out);
pb_status pb_train_case_batch(pb_trainer *t, size_t index);
pb_status pb_train_case_config(const pb_case *c, pb_train_config *out);
/* EINVAL when the axes, `mode` (eager or graph) among them, cannot be: a pb_suite's check. */
pb_status pb_train_case_check(const pb_case *c);
/* Whether mode is graph. */
bool pb_train_case_graph(const pb_case *c);
/* Rough seconds of one forward pass on two CPU cores; the other phases follow from it. */
double pb_train_case_seconds(const pb_case *c);
/* Rough seconds of a whole case on a GPU: weights drawn by the host, a check, samples. */
double pb_train_case_device_seconds(const pb_case *c);

/* Is the gradient the gradient? After forward, loss and backward (no clip): the loss is taken at both ends
 * of a short step along a direction in which every trained tensor moves, and the difference is compared
 * with what the gradient predicts. In bf16, where weights are too coarse for that, the gradient is
 * compared with that of the same model in f32. Leaves the weights bit for bit as they were, and forward,
 * loss and backward run. */
pb_status pb_gradient_error(pb_trainer *t, double *error);
/* The bound on that error for a dtype: a wrong gradient has no time. */
double pb_gradient_bound(pb_dtype dtype);

/* Emits gradient_error and says whether the case may have a time (status "ok"). Forward, loss and backward have run
 * afterwards. On a GPU a case takes the figure of one that differs in mode and clip alone if this launch has it, since
 * neither touches the gradients before the clip; and where there is no room for the model in f32 beside it, the row
 * says so and the case has its time. */
typedef struct pb_check {
    const char *status;
    char note[160];
} pb_check;
pb_status pb_train_case_gradient(pb_ctx *ctx, const pb_case *c, pb_trainer *t, pb_sink *sink, pb_check *out);
/* On a GPU: everything that an earlier case or check left is given back, and the peak of memory starts anew. */
pb_status pb_train_case_fresh(pb_ctx *ctx, pb_trainer *t);
/* On a GPU: peak_memory and device_memory since pb_train_case_fresh. */
pb_status pb_train_case_memory(pb_ctx *ctx, const pb_case *c, pb_sink *sink);

/* All gradients as one array, malloc'd; for bit-for-bit comparison of graph and eager. */
pb_status pb_gradient_copy(pb_trainer *t, float **out, size_t *n);
#endif
