/* cupti_host.h - what counting by CUPTI has in common, whether ranges of work are counted (gpu_counters.h) or the whole
 * GPU is sampled (gpu_samples.h): the GPU and its chip, which passes read a group's events, and the values of what was
 * read. Private to trace. */
#ifndef PB_TRACE_CUPTI_HOST_H
#define PB_TRACE_CUPTI_HOST_H
#include <cupti_profiler_host.h> /* order: it declares what the next headers use */

#include <cupti_profiler_target.h>
#include <cupti_result.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profiles/groups.h"

/* A struct of parameters as CUPTI wants it: zeros but for its size. */
#define PARAMETERS(type, name) type name = {.structSize = type##_STRUCT_SIZE}

/* One group on one GPU, or on a chip without a GPU. */
typedef struct pb_cupti_host {
    pb_counter_group group;
    const char *names[PB_GROUP_EVENTS]; /* the counters of `group` */
    CUcontext context;                  /* of the calling thread, and its device */
    CUdevice device;
    CUpti_Profiler_Host_Object *object;
    uint8_t *available; /* which counters this GPU offers to this user; owned; NULL: those of the chip */
    uint8_t *config;    /* [config_bytes]: an image, as CUPTI calls it, that says what each pass reads; owned */
    size_t config_bytes;
    int passes;
} pb_cupti_host;

/* Copies the group and loads the functions of libcupti. EUNSUPPORTED: there is no libcupti. */
pb_status pb_cupti_host_open(const pb_counter_group *g, pb_cupti_host *h);
void pb_cupti_host_close(pb_cupti_host *h);
/* Loads one more function of libcupti. EUNSUPPORTED: it has none of this name. */
pb_status pb_cupti_host_symbol(const char *name, void **out);
/* Finds the CUDA context of the calling thread, and refuses a GPU of another chip than the group's, or one that offers
 * no counters of this kind to this user. EUNSUPPORTED, EDEVICE. */
pb_status pb_cupti_host_gpu(pb_cupti_host *h, CUpti_Profiler_API kind);
/* Makes `config` and `passes`. EUNSUPPORTED: libcupti does not know the chip. EINVAL: the chip lacks an event, or the
 * group is not one that is read in this way (READ in groups.h). */
pb_status pb_cupti_host_configure(pb_cupti_host *h, CUpti_ProfilerType type);
/* Reads the events of range or sample number `index` of a data image: values[group.events]. EDEVICE. */
pb_status pb_cupti_host_values(const pb_cupti_host *h, const uint8_t *data, size_t bytes, size_t index, double *values);
/* Waits until the GPU has done all work of the context. EDEVICE. */
pb_status pb_cupti_host_wait(const pb_cupti_host *h);
/* Turns CUPTI's result of the call into a status with one line that says why. */
pb_status pb_cupti_host_failed(const char *call, CUptiResult r);
#endif
