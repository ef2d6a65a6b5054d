/* select_device.c - makes the GPU that --device cuda:N names the only visible one. */
#include "bench/options/select_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Holds the --device for which CUDA_VISIBLE_DEVICES was set, so that processes started by this one do not choose
 * again among the GPUs that are left. */
static const char selected[] = "PB_SELECTED_DEVICE";

pb_status pb_options_backend(const pb_options *o, pb_backend_id *out)
{
    int number;
    return pb_device_find(o->device, out, &number);
}

/* Copies entry `number` of a list with commas. */
static pb_status entry(const char *list, int number, char *out, size_t size)
{
    const char *at = list;
    for (int i = 0; i < number; i++) {
        at = strchr(at, ',');
        if (!at || !at[1])
            return pb_fail(PB_EINVAL, "--device cuda:%d: CUDA_VISIBLE_DEVICES=%.100s has %d GPU%s", number, list, i + 1,
                           i ? "s" : "");
        at++;
    }
    const size_t n = strcspn(at, ",");
    if (n == 0 || n >= size)
        return pb_fail(PB_EINVAL, "--device cuda:%d: CUDA_VISIBLE_DEVICES=%.100s has no name of a GPU there", number,
                       list);
    snprintf(out, size, "%.*s", (int)n, at);
    return PB_OK;
}

pb_status pb_options_select_device(const pb_options *o)
{
    pb_backend_id id;
    int number;
    char gpu[128];
    if (!o->device) return PB_OK; /* the command has no such option */
    PB_TRY(pb_device_find(o->device, &id, &number));
    if (!strchr(o->device, ':')) return PB_OK;
    if (o->ranks > 1)
        return pb_fail(PB_EINVAL,
                       "--device %s with --ranks %ld: each rank uses the GPU with its own number; "
                       "give --device cuda",
                       o->device, o->ranks);
    const char *done = getenv(selected), *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (done && strcmp(done, o->device) == 0) return PB_OK;
    if (visible) PB_TRY(entry(visible, number, gpu, sizeof gpu));
    else snprintf(gpu, sizeof gpu, "%d", number);
    if (setenv("CUDA_VISIBLE_DEVICES", gpu, 1) != 0 || setenv(selected, o->device, 1) != 0)
        return pb_fail(PB_ENOMEM, "--device %s: the environment cannot be changed", o->device);
    return PB_OK;
}
