/* trace_read.h - reads the files of a profiled job (trace/profile.h) back. */
#ifndef PB_TRACE_READ_H
#define PB_TRACE_READ_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"
#include "profiles/ranges.h"
#include "trace/gpu_samples.h"

typedef struct pb_trace_event {
    const char *name; /* owned by the trace */
    pb_range_kind kind;
    int tid;
    double begin, end;   /* seconds since the begin of the window */
    int64_t value;       /* PB_RANGE_NO_VALUE: none */
    double flops, bytes; /* least work of an op; 0: not known */
} pb_trace_event;

/* Work on the GPU. */
typedef enum pb_gpu_work { PB_WORK_KERNEL, PB_WORK_COMMUNICATION, PB_WORK_MEMORY, PB_WORK_KINDS } pb_gpu_work;
typedef struct pb_gpu_span {
    const char *name, *op, *phase; /* op, phase: in which it was enqueued; NULL: not known; owned by the trace */
    /* COMMUNICATION: a kernel of NCCL, or a copy inside a collective; MEMORY: another copy, or memory set to a value */
    pb_gpu_work what;
    bool copy;           /* a copy, or memory set to a value */
    double begin, end;   /* as in pb_trace_event */
    int64_t correlation; /* of the host's call that enqueued it; 0: none */
    double enqueued;     /* when that call ended; NAN: the trace does not have it */
    double flops, bytes; /* least work of the op of a replayed graph, on one of its kernels; else 0 */
    int64_t lane;        /* the stream, plus 1000000 for each further lane of work that overlaps on it */
    bool graph;          /* a replayed graph as a whole: what is COMMUNICATION or KERNEL inside is not known */
    double moved;        /* bytes that a copy moved or set; 0 for kernels */
} pb_gpu_span;

/* A collective of which the group is known: on a CPU its range, on a GPU one of its kernels of NCCL or copies. */
typedef struct pb_trace_collective {
    const char *name, *group, *dtype; /* owned by the trace */
    int ranks;
    int64_t number,
        launch; /* launch: the launch of a replayed graph, which repeats the numbers of its capture; else 0 */
    double begin, end, bytes; /* begin, end: as in pb_trace_event */
    bool kernel, first;       /* first: of the kernels of a call */
} pb_trace_collective;

/* Hardware counters of the GPU, sampled over time. */
typedef struct pb_trace_samples {
    double interval; /* seconds from one sample to the next; 0: nothing was sampled */
    int metrics;
    pb_sampled_metric metric[PB_GROUP_METRICS];
    double *begin; /* [n], rising; as in pb_trace_event */
    double *value; /* [n][metrics], in the unit of the metric; NAN: the sample lacks the metric */
    size_t n;
} pb_trace_samples;

typedef struct pb_trace {
    int rank;
    int64_t first_step, last_step;
    int64_t begin_ns; /* of the window: CLOCK_REALTIME, on the clock of rank 0 if the trace was shifted to it */
    bool truncated;
    bool compared;         /* the clock was compared with rank 0's */
    const char *clock_why; /* why it could not be; NULL: it was */
    double offset,
        uncertain; /* seconds: rank 0's clock minus this rank's, the larger of both ends; the bound of its error */
    bool shifted;  /* the times were moved to rank 0's clock */
    int *expected; /* [nexpected]: the ranks that record this window; NULL: all profiled ones */
    size_t nexpected;
    long dropped, omitted;  /* dropped: ranges, and records of the GPU */
    pb_trace_event *events; /* [n], by tid, then by begin; of equal begins, the longer first */
    size_t n;
    pb_gpu_span *gpu; /* [ngpu], in no order */
    size_t ngpu;
    pb_trace_collective *collectives; /* [ncollectives], by group, number, launch, then begin */
    size_t ncollectives;
    pb_trace_samples samples;
    void *json; /* owns the names */
} pb_trace;

typedef struct pb_profile_run {
    char folder[512];
    int ranks;         /* of the job */
    bool *profiled;    /* [ranks] */
    const char **host; /* [ranks] */
    char topology[64], why[256];
    pb_trace *traces; /* [n], by step, then by rank */
    size_t n;
    void *manifest; /* owns the names of hosts */
} pb_profile_run;

/* EPATH: no manifest.json, or a file cannot be read. EINVAL: a file is not what trace/profile.h describes, or ends in
 * the middle; the message names it. ENOMEM. Free with pb_profile_run_free(), also after a failure. */
pb_status pb_profile_run_read(const char *folder, pb_profile_run *out);
void pb_profile_run_free(pb_profile_run *r);
#endif
