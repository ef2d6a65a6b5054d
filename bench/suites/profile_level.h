/* profile_level.h - how much a process records: the levels of suite profile.
 *
 * A process is of one level from its first to its last step, because CUPTI is not detached from a process once it is
 * attached. */
#ifndef PB_PROFILE_LEVEL_H
#define PB_PROFILE_LEVEL_H
#include "kernels/engine/ctx.h"

/* X(level, what a step does at it) */
#define PB_LEVEL_MAP(X)                                                                                                \
    X(off, "a range tests a flag: what every other run does")                                                          \
    X(nvtx, "a range calls NVTX, and no tool is attached")                                                             \
    X(attached, "CUPTI is attached and no window is open: what a job waits with for --profile-on-demand")              \
    X(ring, "a range is written into the ring of its thread: what train --profile-ranks does on a CPU")                \
    X(activity, "ring, and CUPTI records the kernels, copies and host calls of an eager step")                         \
    X(graphs, "ring, and CUPTI records each replayed graph as a whole")                                                \
    X(nodes, "the same of a replayed graph: CUPTI records each of its nodes")                                          \
    X(sampled, "nodes, and the GPU's counters are read every millisecond: train --profile-sampling TIMELINE")

typedef enum pb_level {
#define X(level, what) PB_LEVEL_##level,
    PB_LEVEL_MAP(X)
#undef X
        PB_LEVELS
} pb_level;

/* EINVAL: no level has this name. */
pb_status pb_level_find(const char *name, pb_level *out);

typedef struct pb_levelled {
    pb_level level;
    bool tsc;               /* the ring read the time-stamp counter */
    size_t ranges, records; /* recorded since pb_level_begin: ranges, those overwritten included; events of the GPU */
    size_t dropped;         /* events of the GPU that were lost, and samples */
    struct pb_gpu_sampler *sampler; /* of level sampled; pb_level_end closes it */
    size_t samples;                 /* of the GPU's counters */
} pb_levelled;

/* Begins to record at a level; no_tsc: the ring uses clock_gettime. EUNSUPPORTED, with the reason: this backend, this
 * build or this machine cannot record at it, or a tool is attached. ENOMEM, EDEVICE. */
pb_status pb_level_begin(pb_ctx *ctx, pb_level level, bool no_tsc, pb_levelled *out);
/* Ends it, after a host sync, and counts what was recorded. EWRONG: nothing was, although the level records something,
 * or something listened although the level records nothing. ENOMEM, EDEVICE. */
pb_status pb_level_end(pb_ctx *ctx, pb_levelled *l);
#endif
