/* capturing.h - captures the op calls that computed the update for which the NaN guard skipped a step (--capture-nan;
 * trainer/step/matrix_fault.h). */
#ifndef PB_CAPTURING_H
#define PB_CAPTURING_H
#include "train/step.h"

/* Checks the options, and creates the folder. Agrees with the other ranks. EINVAL, EPATH, EIO. */
pb_status pb_capturing_open(const pb_job *j);
/* Captures the fault of step number `step`, as DIR/stepN-rankR-TENSOR.safetensors, if --capture-nan is given and the
 * fault is on this rank. path: where it was written; "": nothing to capture. A failure does not concern the
 * training. */
enum { PB_CAPTURING_PATH = 512 };
pb_status pb_capturing_step(pb_job *j, long step, const pb_matrix_fault *f, char path[PB_CAPTURING_PATH]);
#endif
