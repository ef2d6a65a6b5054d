/* tensor_capture.h - --capture-tensors: statistics of every tensor of the trainer (trainer/step/tensors.h), and the
 * tensors whose names match, after each step that the profiler's schedule records on this rank. Below the folder of
 * --profile-out:
 *
 *     tensors/stepN-rankR.csv                   a row for each tensor: tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,
 *                                               inf,first_row,first_col,ops,batch_row,token,head. min, max and rms
 *                                               are of the finite elements, empty if all are not finite; first: the
 *                                               first that is not finite, empty if every one is finite; ops: those
 *                                               that write it; batch_row, token, head: of the first, empty where the
 *                                               tensor has no such axis
 *     tensors/stepN-rankR-layerL.safetensors    the tensors of layer L that match, as extra tensors of a capture
 *     tensors/stepN-rankR-rest.safetensors      those of no layer
 *
 * N is the number of the step in the run. The tensors are read after the step, so replayed graphs need nothing more;
 * the time between two steps grows, that of a step does not. */
#ifndef PB_TENSOR_CAPTURE_H
#define PB_TENSOR_CAPTURE_H
#include "train/profiling.h"
#include "trainer/tokenizer/pattern.h"

typedef struct pb_tensor_capture {
    bool on; /* false: the option is not given, or this job is not profiled */
    pb_tok_pattern pattern;
    long steps; /* that this process has made */
} pb_tensor_capture;

/* Checks the option, and makes the folder. Agrees with the other ranks. EINVAL: no --profile-ranks, or
 * --profile-on-demand, which has no schedule; EINVAL, EFORMAT: not a regular expression that can be used. EPATH,
 * EIO. */
pb_status pb_tensor_capture_open(const pb_job *j, const pb_profiling *p, pb_tensor_capture *out);
/* Call it after every step; `number` is the step's number in the run. A failure does not concern the training. */
pb_status pb_tensor_capture_step(pb_tensor_capture *c, pb_job *j, const pb_profiling *p, long number);
void pb_tensor_capture_close(pb_tensor_capture *c);
#endif
