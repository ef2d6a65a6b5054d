/* tensor_capture.h - --capture-tensors: statistics of every tensor of the trainer (trainer/step/tensors.h), and the
 * tensors whose names match, after each step that the profiler's schedule records on this rank. Below the folder of
 * --profile-out:
 *
 *     tensors/stepN-rankR.csv                   a row for each tensor: tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,
 *                                               inf,first_row,first_col,ops,batch_row,token,head,micro_batch. min, max
 *                                               and rms are of the finite elements, empty if all are not finite; first:
 *                                               the first that is not finite, empty if every one is finite; ops: those
 *                                               that write it; batch_row, token, head: of the first, empty where the
 *                                               tensor has no such axis; micro_batch: 0, 1, ...; empty for parameters
 *     tensors/stepN-rankR-layerL.safetensors    the tensors of layer L that match, as extra tensors of a capture
 *     tensors/stepN-rankR-rest.safetensors      those of no layer
 *
 * N is the number of the step in the run. If a step has several micro-batches, the table has rows for the
 * activations of each, and each has files of its own, with -microM before -layerL and -rest; the files of parameters
 * have no -microM.
 *
 * Activations are read after each micro-batch and parameters after the step, so a replayed graph can be captured, too.
 * Gradients of activations (--capture-gradients) and activations that are computed again (--recompute) are read during
 * the backward pass: all ranks then run the step eagerly, even with --mode graph; the results are bitwise identical. In
 * a captured step, step_time of the log includes
 * the time to read activations and their gradients, but not parameters. */
#ifndef PB_TENSOR_CAPTURE_H
#define PB_TENSOR_CAPTURE_H
#include "train/profiling.h"
#include "trainer/tokenizer/pattern.h"

typedef struct pb_tensor_capture {
    bool on; /* false: the option is not given, or this job is not profiled */
    pb_tok_pattern pattern;
    long steps;                  /* steps that this process has begun */
    struct pb_step_capture *now; /* of the current step; NULL: it is not captured */
    bool lacks_memory;           /* the current step should be captured, but there is no memory for it */
} pb_tensor_capture;

/* Checks the option before anything is written. Agrees with the other ranks. EINVAL: --profile-on-demand, which has no
 * schedule, or a path that is too long; EINVAL, EFORMAT: not a regular expression that can be used. */
pb_status pb_tensor_capture_check(const pb_job *j, pb_tensor_capture *out);
/* Call after pb_tensor_capture_check. Makes the folder, if this job is profiled. Agrees with the other ranks. EPATH,
 * EIO. */
pb_status pb_tensor_capture_open(const pb_job *j, const pb_profiling *p, pb_tensor_capture *c);
/* True if a captured step is read between its ops, because the next layer overwrites gradients of activations and
 * activations that are computed again. */
bool pb_tensor_capture_between_ops(const pb_job *j);
/* Call it before every step; `number` is the step's number in the run. *eager: the step must run eagerly. A failed
 * capture does not stop training: pb_tensor_capture_end returns its status. */
void pb_tensor_capture_begin(pb_tensor_capture *c, pb_job *j, const pb_profiling *p, long number, bool *eager);
/* Call it after every step: writes the files. The status of the capture: ENOMEM, EINVAL (--capture-limit), EIO, EPATH,
 * EDEVICE. */
pb_status pb_tensor_capture_end(pb_tensor_capture *c, pb_job *j);
void pb_tensor_capture_close(pb_tensor_capture *c);
#endif
