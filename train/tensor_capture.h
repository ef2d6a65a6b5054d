/* tensor_capture.h - --capture-tensors: statistics of every tensor of the trainer (trainer/step/tensors.h), and the
 * tensors whose names match, after each step that the profiler's schedule records on this rank. Below the folder of
 * --profile-out:
 *
 *     tensors/stepN-rankR.csv                   a row for each tensor: tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,
 *                                               inf,first_row,first_col,ops,batch_row,token,head,micro_batch. min, max
 *                                               and rms are of the finite elements, empty if all are not finite; first:
 *                                               the first that is not finite, empty if every one is finite; ops: those
 *                                               that write it; batch_row, token, head: of the first, empty where the
 *                                               tensor has no such axis; micro_batch: 0, 1, ..., empty of parameters
 *     tensors/stepN-rankR-layerL.safetensors    the tensors of layer L that match, as extra tensors of a capture
 *     tensors/stepN-rankR-rest.safetensors      those of no layer
 *
 * N is the number of the step in the run. In a step of several micro-batches each has its own rows of activations, and
 * its own files, with -microM before -layerL and -rest; parameters are in the files without it.
 *
 * Activations are read after each micro-batch, parameters after the step, so replayed graphs need nothing more. With
 * --capture-gradients, gradients of activations are read during the backward pass: all ranks then make the step by kernel
 * launches, whether --mode is graph or not, with the same bits. Reading takes time: in a captured step, step_time of the
 * log has that of activations and their gradients. */
#ifndef PB_TENSOR_CAPTURE_H
#define PB_TENSOR_CAPTURE_H
#include "train/profiling.h"
#include "trainer/tokenizer/pattern.h"

typedef struct pb_tensor_capture {
    bool on; /* false: the option is not given, or this job is not profiled */
    pb_tok_pattern pattern;
    long steps;                  /* that this process has made */
    struct pb_step_capture *now; /* of the step that is being made; NULL: it is not captured */
    bool lacks_memory;           /* it should be captured, and there is no memory for it */
} pb_tensor_capture;

/* Checks the option, and makes the folder. Agrees with the other ranks. EINVAL: no --profile-ranks, or
 * --profile-on-demand, which has no schedule; EINVAL, EFORMAT: not a regular expression that can be used. EPATH,
 * EIO. */
pb_status pb_tensor_capture_open(const pb_job *j, const pb_profiling *p, pb_tensor_capture *out);
/* Call it before every step; `number` is the step's number in the run. *eager: the step must not be recorded or replayed.
 * A failure does not concern the training: pb_tensor_capture_end returns it. */
void pb_tensor_capture_begin(pb_tensor_capture *c, pb_job *j, const pb_profiling *p, long number, bool *eager);
/* Call it after every step: writes the files. */
pb_status pb_tensor_capture_end(pb_tensor_capture *c, pb_job *j);
void pb_tensor_capture_close(pb_tensor_capture *c);
#endif
