/* chrome.h - writes the ranges of a profiling window as a trace in Chrome's Trace Event Format, compressed with gzip,
 * which Perfetto (ui.perfetto.dev) and chrome://tracing read.
 *
 * Source: "Trace Event Format" (Duffy, Chromium project) and the fields that PyTorch's Kineto writes, because tools for
 * its traces, such as HolisticTraceAnalysis, expect them: schemaVersion, distributedInfo with "rank": N (the space is
 * part of what they search for), baseTimeNanoseconds. Times are microseconds with three decimals, counted from
 * baseTimeNanoseconds, which is equal for all ranks: the begin of a period of 90 days since 1970.
 *
 * The GPU's events are described in chrome_gpu.h. Events of ranges: ph X; cat is cpu_op for ops, user_annotation
 * otherwise; a training step is called "ProfilerStep#N"; args.kind is the kind of ranges.h, args.value its value (of
 * an op args.layer, the layer of the model from 0), args.op_flops and args.op_bytes the least work of an op,
 * args.incomplete: true marks a range that was open when the window ended. A collective, and each of its kernels of
 * NCCL and copies, has the args of Kineto's traces: "Collective name", bytes ("collective bytes" of a copy), dtype,
 * "Process Group Name", "Group size" and Seq (ranges.h: pb_range_collective). What a reader must know of the whole
 * trace follows the events in "plumb": version, steps, clock, dropped (ranges that were lost), gpu_dropped (records of
 * the GPU that were lost), unjoined (kernels without an op), omitted (events beyond the limit of the file's size),
 * truncated and, of a window that only some of the profiled ranks record, ranks. In a job of several ranks
 * clock_offsets_ns has, for the begin and the end of the window, rank 0's clock minus this one's, clock_uncertainty_ns
 * the bounds of their errors, and clock_shifted says whether the times were moved to rank 0's clock; or clock_unknown
 * says why the clocks could not be compared. If hardware counters were sampled (chrome_samples.h): samples (in the
 * trace), samples_lost, samples_outside (of the window, and left out), sample_overflows and sample_interval_us
 * (gpu_samples.h). */
#ifndef PB_TRACE_CHROME_H
#define PB_TRACE_CHROME_H
#include "os/disk.h"
#include "profiles/ring.h"
#include "ranks/clocks.h"
#include "trace/gpu.h"
#include "trace/gzip.h"

typedef struct pb_trace_about {
    int rank, ranks;
    const char *host, *topology, *version, *backend, *device;
    const char *name;              /* of the window; NULL: it has none */
    int64_t first_step, last_step; /* numbers of the steps that the window covers */
    bool truncated;                /* the window ended before its last step */
    const bool *expected;          /* [ranks]: which ranks record this window; NULL: all profiled ones */
    size_t limit;                  /* most bytes of JSON before compression; 0: no limit */
    bool compared;                 /* the clock was compared with rank 0's at both ends of the window */
    bool shifted;                  /* times are those of rank 0's clock */
    pb_clock_offset clock[2];      /* compared: what was found */
} pb_trace_about;

typedef struct pb_trace_size {
    size_t events, omitted;   /* written; left out because of the limit */
    size_t kernels, unjoined; /* kernels; those whose op is not known */
    size_t samples;           /* of hardware counters, each of which is an event for each of its metrics */
    size_t json, file;        /* bytes before and after compression */
} pb_trace_size;

/* Appends ,"key": and nanoseconds as microseconds with three decimals, without rounding. */
void pb_trace_put_us(pb_gzip *g, const char *key, int64_t ns);

/* Rough bytes of JSON of a range, and of a kernel with its host call and the arrow between them, and by how much gzip
 * shortens them; for estimates before a window. Measured: 165 bytes per range, compressed to a seventh, of a step of
 * the model tiny on a CPU; the kernel's are counted from the format, with a name of 200 bytes. */
enum { PB_TRACE_RANGE_BYTES = 165, PB_TRACE_KERNEL_BYTES = 1000, PB_TRACE_PACKING = 7 };
/* The least limit: the text around the events, with names of usual length. */
enum { PB_TRACE_LEAST = 8192 };

/* Appends ,"op_flops": and ,"op_bytes": for the numbers that are not 0. */
void pb_trace_put_work(pb_gzip *g, int64_t flops, int64_t bytes);
/* Appends what is known of a collective: its name, bytes, dtype, group, the group's ranks and the collective's number
 * in it, with the names that Kineto's traces have; `key` is that of the bytes. Nothing if c->group is NULL. */
void pb_trace_put_collective(pb_gzip *g, const char *name, const char *key, int64_t bytes,
                             const pb_range_collective *c);

/* Writes the trace to `path`, which appears only when it is complete. EPATH, EIO, ENOMEM. EINVAL: a limit below
 * PB_TRACE_LEAST. */
pb_status pb_trace_write(const pb_disk *d, const char *path, const pb_trace_about *about, const pb_ring_window *w,
                         const pb_gpu_window *gpu, pb_trace_size *size);
#endif
