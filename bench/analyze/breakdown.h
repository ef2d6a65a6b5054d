/* breakdown.h - divides the time of a trace's training steps.
 *
 * A step is a range of kind step, or, in a trace of `bench run --profile-out`, which has none, of kind sample. The
 * thread that has such ranges is the training thread. Only work inside steps counts.
 * All times are seconds, summed over the steps of the trace.
 *
 *     step        the steps
 *     exposed     the part of `step` in which the training thread is inside an op that communicates (comm_*): it
 *                 enqueues a collective, carries one out, or waits for one
 *     compute     the part of `step` inside other ops
 *     other       step - exposed - compute: the host's work between ops, and copies
 *     hidden      time during which another thread carries out a collective while the training thread is inside a step
 *                 but in no op that communicates; overlapping collectives count once
 * so that step = compute + exposed + other, and communication = exposed + hidden.
 *
 * If the trace has work of a GPU, its time is divided as well, in `gpu`; each moment of a step belongs to one part:
 *
 *     compute     a kernel runs that is not NCCL's
 *     exposed     a kernel of NCCL or a copy of a collective runs, and no other kernel
 *     memory      only other copies run, or memory is set
 *     idle        nothing runs; for a part of it the GPU waits for the host (idle.h)
 *     hidden      the part of `compute` in which a kernel of NCCL or a copy of a collective runs too
 *
 * so that step = compute + exposed + memory + idle. A part's `gpu` is the sum of its kernels' and copies' durations.
 *
 * `collectives` divides communication by collective, group and dtype. On a GPU a call's time is that of its kernels of
 * NCCL; on a CPU, that of its range. Its exposed time is the part of it that is in the trace's exposed communication;
 * where several calls run at once, the one that began first has the time, so the sum is right. On a GPU it is all of
 * the exposed communication; on a CPU the rest, in which the training thread waits but no collective runs, belongs to
 * none.
 *
 * A phase's time is that of its ranges; `own` leaves out the ops that communicate, so that a rank that waits for others
 * is not taken for slow. `gpu_own` is the time of the phase's kernels and copies without communication, known in a
 * replayed graph too. An op's time is that of its ranges without ops inside them. Its `flops` and `bytes` are the least
 * work that its calls had to do by the op's own model, the one that suite kernels uses: each input read once, each
 * output written once. */
#ifndef PB_BREAKDOWN_H
#define PB_BREAKDOWN_H
#include "bench/analyze/trace_read.h"

enum { PB_BREAKDOWN_NAMES = 128 }; /* phases or ops of a trace; others are left out of the sums by name and counted */

typedef struct pb_part {
    const char *name; /* borrowed from the trace */
    long calls;
    double seconds, own;
    long gpu_calls;      /* kernels, copies */
    double gpu, gpu_own; /* their seconds; own: without those that communicate */
    double flops, bytes; /* ops: the least work of the calls; 0: the op's model has none, or the trace is older */
} pb_part;

typedef struct pb_gpu_division {
    double compute, exposed, memory, idle, hidden;
    double host_bound, unknown; /* parts of idle (idle.h) */
    long kernels, unjoined;     /* unjoined: kernels whose op is not known */
    long graphs; /* replayed graphs that were recorded as wholes; each counts as compute from begin to end */
} pb_gpu_division;

/* The collectives of one kind, group and dtype. */
typedef struct pb_collective_part {
    const char *name, *group, *dtype; /* borrowed from the trace */
    int ranks;                        /* of the group */
    long calls;
    double seconds, exposed; /* sums over the calls */
    double bytes;
} pb_collective_part;
enum { PB_BREAKDOWN_COLLECTIVES = 64 };

typedef struct pb_breakdown {
    int rank;
    long steps;
    double step, compute, exposed, other, hidden;
    bool has_gpu;
    pb_gpu_division gpu;
    pb_part phases[PB_BREAKDOWN_NAMES], ops[PB_BREAKDOWN_NAMES];
    int nphases, nops, unnamed; /* unnamed: parts beyond the room */
    pb_collective_part collectives[PB_BREAKDOWN_COLLECTIVES];
    int ncollectives;
} pb_breakdown;

/* ENOMEM. A trace without a complete step gives steps = 0. */
pb_status pb_breakdown_make(const pb_trace *t, pb_breakdown *out);
#endif
