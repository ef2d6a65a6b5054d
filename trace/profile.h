/* profile.h - the profiling of one process of a job: opens and closes windows at the boundaries of steps, and writes
 * what they recorded.
 *
 * No call here waits for another rank, except that rank 0's pb_profile_close() waits at most two seconds for reports of
 * clocks, and two for the files of the ranks; a rank that is not profiled makes the same calls, which do nothing. A
 * helper thread compares this rank's clock with rank 0's when a window begins and when it ends.
 * At the end of a window the training thread copies its records; another thread compresses and writes them.
 *
 * Files below OUT:
 *     manifest.json                   rank 0, when the job begins: version of the program and its libraries, ranks,
 *                                     those profiled and why, topology, hosts, steps; when it ends also clocks: how far
 *                                     each rank's clock was from rank 0's, and recorded: for each rank its windows,
 *                                     events, lost and omitted ones, truncated windows, samples of the GPU's counters
 *                                     and lost ones, and the median time of a step while ranks record over that of
 *                                     one while none does
 *     traces/stepA-B/rankN.json.gz    chrome.h; A and B are the numbers of the first and last step, N that of the rank.
 *                                     A program whose windows are not steps names another unit than step
 *     ranks/rankN.json                when the rank ends, profiled or not: its windows, what profiling cost it, and
 *                                     with a schedule how long its steps took while ranks recorded and otherwise
 *     records/stepA-B-rankN.records.gz   if wanted: records.h
 * OUT is a new or empty folder, so that traces of two runs are never mixed. */
#ifndef PB_TRACE_PROFILE_H
#define PB_TRACE_PROFILE_H
#include "os/disk.h"
#include "profiles/ring.h"
#include "ranks/clocks.h"
#include "trace/gpu.h"

typedef struct pb_topology pb_topology; /* ranks/topology.h */

typedef struct pb_profile_options {
    const char *ranks, *steps; /* as in choose.h */
    const char *out;           /* the folder */
    const char *unit;          /* what the windows are counted in, in the names of their folders; NULL: "step" */
    const char *trigger;       /* a file that opens windows of ACTIVE steps (trigger.h); NULL: SKIP to REPEAT count */
    bool attach_late;          /* trigger: CUPTI is attached when the first window opens, not at once */
    bool no_traces;            /* the windows of the schedule are only told to the caller, who counts in them */
    size_t limit;              /* most bytes of JSON of a trace, before compression; 0: 1 GiB */
    bool gpu;                  /* also records what the GPU does (gpu.h) */
    pb_gpu_graphs graphs;      /* what it records of replayed graphs */
    const pb_counter_group *sampling; /* also sampled, if gpu (gpu_samples.h); NULL: none; borrowed */
    int sampling_us;                  /* microseconds between samples */
    bool records;     /* also keeps the records as they were before they were joined, for tests (records.h) */
    size_t gpu_limit; /* bytes of records of a GPU in a window; 0: 256 MiB */
    pb_ring_options ring;
} pb_profile_options;

/* The job and this rank; the strings are borrowed until pb_profile_close(). */
typedef struct pb_profile_job {
    const pb_topology *topology; /* NULL: one rank */
    int rank;
    const int *node;         /* [ranks] as in choose.h; NULL: one host */
    const char *const *host; /* [ranks] names of hosts; NULL: not known */
    const char *program, *version, *backend, *device;
    const char *libraries; /* with their versions, as text; NULL: none */
    pb_clocks *clocks;     /* to compare with rank 0's (ranks/clocks.h); NULL: one rank */
} pb_profile_job;

typedef struct pb_profile pb_profile;

/* Checks the options, makes the folders and begins the manifest. *out is NULL if no rank is profiled. `why`, of at
 * least 200 bytes, receives the line that says which ranks are profiled. EINVAL, EPATH, EIO, ENOMEM. */
pb_status pb_profile_open(const pb_disk *d, const pb_profile_options *o, const pb_profile_job *job, char *why,
                          pb_profile **out);
/* With attach_late, CUPTI is attached when the first window opens. attached(self) is called then, in the thread that
 * trains, so that the caller can pass on the nodes of the graphs that it has recorded (pb_gpu_node). If it fails,
 * kernels of these graphs have no op, and pb_profile_close() returns the failure. p may be NULL. */
void pb_profile_on_attach(pb_profile *p, pb_status (*attached)(void *self), void *self);
/* Call them around every step, in the thread that trains; `number` is the step's number in the run. p may be NULL.
 * The GPU's work of a step must have ended when pb_profile_end_step() is called.
 * A trace that cannot be written does not end the run: pb_profile_close() returns the first failure. */
void pb_profile_begin_step(pb_profile *p, int64_t number);
void pb_profile_end_step(pb_profile *p);
/* A line that tells what the trigger file did in the last call of pb_profile_begin_step(): a request, or why it is
 * none. NULL: nothing. It is the same on all ranks that look at the file, so one of them prints it. */
const char *pb_profile_remark(const pb_profile *p);
/* The size that the trace of the next window will have, if its steps are like the one before it. */
typedef struct pb_profile_expected {
    int64_t first, last;    /* numbers of the window's steps */
    double ranges, kernels; /* of a step */
    double json, packed;    /* bytes of the trace of a rank, before and after compression */
    bool cut, overwrites;   /* the limit will leave events out; the ring of a thread may lose its oldest ranges */
} pb_profile_expected;
/* Call it after pb_profile_end_step() with the kernels that the GPU ran in that step. True: the next step begins to
 * record, and the ranges of this one were counted, which happens on profiled ranks. */
bool pb_profile_expects(const pb_profile *p, double kernels, pb_profile_expected *out);
/* Names the window that is open, such as by the key of a case: the trace and the rank's file have the name. `name` must
 * stay valid until pb_profile_close(). */
void pb_profile_name_window(pb_profile *p, const char *name);
/* Ends a window that is still open, and marks its trace as truncated; waits for the writing thread; writes the file of
 * the rank. Frees p, which may be NULL. ENOMEM, EIO, EPATH: a file is missing; the message names it. */
pb_status pb_profile_close(pb_profile *p);
#endif
