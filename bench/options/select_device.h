/* select_device.h - makes the GPU that --device cuda:N names the only visible one. */
#ifndef PB_SELECT_DEVICE_H
#define PB_SELECT_DEVICE_H
#include "bench/options/command_line.h"
#include "kernels/engine/ctx.h"

/* With --device cuda:N, sets CUDA_VISIBLE_DEVICES to the GPU number N of those that are visible so far. All code of
 * bench, and every process that it starts, then finds this GPU under number 0. With "cpu" and "cuda" it does nothing.
 * Must be called before the first call of CUDA. A process that another bench started with the same --device inherits
 * the variable, and keeps it.
 * EINVAL: the device has another name, CUDA_VISIBLE_DEVICES lists N GPUs or fewer, or several ranks are asked for,
 * of which each uses the GPU with its own number. */
pb_status pb_options_select_device(const pb_options *o);
/* The backend of --device, without its number. EINVAL: the device has another name. */
pb_status pb_options_backend(const pb_options *o, pb_backend_id *out);
#endif
