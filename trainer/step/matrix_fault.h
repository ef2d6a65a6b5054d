/* matrix_fault.h - after a step that the NaN guard skipped: which matrix had an update that is not finite, and its
 * capture.
 *
 * The capture (trainer/capture/capture.h) has the calls that made the update of that block alone, from the gradient and
 * the momentum to the orthogonal factor, so that `bench replay` runs this part of the step again:
 *
 *     normuon_momentum     the momentum and the update of this block, run again by pb_matrix_fault_capture
 *     newton_schulz_run    its input is the update; its output is what the step wrote
 *
 * With the momentum that the guard keeps (PB_GUARD_KEEP), the step has overwritten the momentum that it began with.
 * Then the first call computes the same update from the new momentum, which has the gradient added; without nesterov
 * the update is that momentum, and there is no first call. Extra tensors are gradient, momentum, second moment and
 * weight of the block: "gradient", "momentum", "v", "w", and "master" of a bf16 weight. The guard has left v and w as
 * they were.
 *
 * Nothing is copied while no step is skipped, so the capture costs nothing until then, and works for replayed graphs,
 * too. */
#ifndef PB_MATRIX_FAULT_H
#define PB_MATRIX_FAULT_H
#include "trainer/capture/capture.h"
#include "trainer/step/trainer.h"

typedef struct pb_matrix_fault {
    const char *name; /* of the tensor; NULL: on this rank all updates are finite */
    int layer;        /* -1: not part of a layer */
    int block;        /* index, for pb_matrix_fault_capture */
    size_t row, col;  /* of the first element that is not finite, in the tensor */
    size_t elements;  /* of this block that are not finite */
    int others;       /* further blocks with such an element */
} pb_matrix_fault;

/* Finds the first block whose update is not finite. Host syncs, and reads all updates. ENOMEM, EDEVICE. */
pb_status pb_matrix_fault_find(pb_trainer *t, pb_matrix_fault *out);
/* Captures the block of a fault, with at most `limit` bytes, and sets the notes layer, phase, tensor and why; the
 * caller sets the others, and writes and closes *out. Allocates device memory for one block. EINVAL: larger than the
 * limit. */
pb_status pb_matrix_fault_capture(pb_trainer *t, const pb_matrix_fault *f, size_t limit, pb_capture **out);
#endif
