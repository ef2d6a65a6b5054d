/* comm.h - collectives between the ranks of a group: ops that move and reduce device memory over MPI (CPU) or NCCL
 * (GPU).
 *
 * With N ranks, r = 0..N-1, x_r the input and y_r the output of rank r:
 *     all_reduce      y_r[i] = sum or max over s of x_s[i]                            x, y: [count]
 *     reduce_scatter  y_r[i] = sum or max over s of x_s[offset_r + i]                 x: [total], y: [counts[r]]
 *     all_gather      y_r[offset_s + i] = x_s[i]                                      x: [counts[r]], y: [total]
 *     all_to_all      rank r's block s becomes block r of rank s                      x: [sum send], y: [sum receive]
 *     broadcast       y_r[i] = x_root[i]                                              x, y: [count]
 *     agree           y_r[i] = 1 if x_s[i] != 0 on any rank s (NaN counts), else 0    x, y: [count]
 *     wait            no data: later work on the compute stream follows the collectives enqueued so far
 * Semantics and the equal-count forms as in MPI 4.0 chapter 6 and NCCL's user guide. Blocks are contiguous and in rank
 * order: offset_r is the sum of the counts before r, total the sum of all.
 *
 * Order. All ranks enqueue the same collectives in the same order, over all communicators of the process, eager or
 * replayed. A collective starts after the work enqueued on the compute stream before it. With overlap = false later
 * work on the compute stream follows the collective. With overlap = true it runs next to later work, on the
 * communicator's own stream (GPU) or on a thread of the process (CPU), and nothing may use its outputs or change its
 * inputs (also the arrays of counts) before a `wait`. Collectives of one communicator run one after the other. A
 * recording waits for all collectives that it enqueued with overlap before it ends; otherwise pb_record fails on a GPU.
 * Collectives enqueued before a recording are waited for before it.
 *
 * Ordered reduction. With ordered = true the result is ((x_0 + x_1) + x_2) + ... in f32, rounded once to the dtype, bit
 * for bit, whatever the number of hosts, the count or the split into collectives: the blocks are exchanged, each rank
 * adds its own in rank order, and the sums are gathered. It moves as many bytes as a ring but needs memory of the
 * communicator. MPI reduces so in every case but all_reduce in f32 with ordered = false. With ordered = false the order
 * is the library's, and bf16 may be rounded between additions. Max is exact in both; the result of max is unspecified
 * if an element is NaN on some rank (use agree to find that out).
 *
 * One rank: comm = NULL or a group of one rank. Reductions and exchanges are then copies (nothing if y == x), and wait
 * does nothing, so callers need no case for it. A count of 0 is valid; x and y may then be NULL.
 *
 * In place: all_reduce, broadcast and agree with y == x; all_gather with x == y + offset_r; reduce_scatter with
 * y == x + offset_r. Any other overlap of x and y is not allowed. Buffers need no alignment beyond their dtype's; 16
 * bytes are faster.
 *
 * Memory. A communicator owns the memory that collectives need: for an ordered reduction about one more copy of x, of
 * at most 64 MiB for all_reduce. It grows outside recordings, so run a collective once before recording it; it is
 * allocated with pb_alloc, so the plan backend accounts for it. Blocks that a recording uses stay valid until
 * pb_comm_close.
 *
 * Errors. EINVAL: bad arguments. On the CPU every collective first compares op, dtype, counts and flags between ranks,
 * and a difference is EINVAL on all ranks ("rank 1 calls all_reduce of 5 f32, rank 0 of 4"); NCCL cannot detect it (it
 * hangs or mixes data), so callers compare their layout once with pb_world_same. EDEVICE: the library failed, or
 * pb_comm_abort was called. After a failure the communicator takes no more work: every later call on it fails with the
 * same message. The error of an overlapped collective is returned by a later call on the communicator, at the latest by
 * `wait` (CPU) or by pb_comm_status (GPU). EUNSUPPORTED: with MPI, a block or total beyond 2^31 - 1 elements. */
#ifndef PB_COMM_H
#define PB_COMM_H
#include "kernels/engine/op.h"
#include "ranks/world.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_comm pb_comm;

/* Opens the communicator of one role, such as "dp", for the device of ctx. Collective over the world: every rank calls
 * it, in the same order. Ranks with equal colour form a group, numbered in the order of key, then of world rank
 * (pb_topology_colour, pb_topology_index). *out belongs to the caller and must be closed before ctx and world. For a
 * group of one rank *out is NULL. On the plan backend *out only knows rank and size. EUNSUPPORTED: this build lacks MPI
 * or NCCL. Fails on all ranks if it fails on one. `role` is not copied and must outlive the communicator. */
pb_status pb_comm_open(pb_world *w, pb_ctx *ctx, const char *role, int colour, int key, pb_comm **out);
/* A communicator of the plan backend, for `rank` of `size` ranks; it needs no world. */
pb_status pb_comm_open_plan(pb_ctx *ctx, const char *role, int rank, int size, pb_comm **out);
/* Frees it, after waiting for its collectives unless it has failed or was aborted. Free the graphs that contain its
 * collectives first: NCCL waits for them. comm may be NULL. */
void pb_comm_close(pb_comm *comm);

/* Memory for the buffers of large all_reduce calls between GPUs, for pb_alloc_from and pb_arena_begin_in. It is
 * registered as windows of NCCL 2.28. A sum with ordered = false whose x and y lie in it, of 1 MiB or more, is made by
 * NCCL's symmetric kernels, which need few SMs. bytes_per_flop, the bytes that are summed per FLOP of the work that
 * runs next to the sums, determines how many; after the first allocation from the source it has no effect, until the
 * communicator is closed. From such a sum with overlap = true until the next wait, matrix products and the backward
 * pass of attention divide their work among the SMs that it leaves free (pb_ctx, busy_sms), but not with
 * ctx->deterministic.
 *
 * Returns NULL, and all_reduce works as without it, where PB_NCCL_WINDOWS is not in the environment or 0, on a CPU, for
 * one rank, for ranks on several hosts, on the plan backend, and with NCCL before 2.28. PB_NCCL_WINDOWS=1: as many CTAs
 * as described; 2 to 64: at most so many, whatever bytes_per_flop is.
 *
 * EUNSUPPORTED: all_to_all, an ordered sum or an uneven reduce_scatter of this memory. Where GPUs are not connected by
 * NVLink the sums are correct but slow, because NCCL then uses its ring kernels with these few SMs. When a rank is lost
 * during such a sum, pb_comm_abort may not end, and the process then ends 10 s after pb_comm_abandon.
 * Allocating is collective: all ranks of the group allocate the same sizes in the same order; if one fails before it
 * does, the others wait until the monitor ends the job. Free the memory before the communicator. EINVAL of
 * pb_comm_open: PB_NCCL_WINDOWS is none of these numbers, or differs between the ranks. */
const pb_memory_source *pb_comm_window_memory(const pb_comm *comm, double bytes_per_flop);

int pb_comm_rank(const pb_comm *comm); /* 0 for NULL */
int pb_comm_size(const pb_comm *comm); /* 1 for NULL */
const char *pb_comm_role(const pb_comm *comm);
/* The first error of a collective that has ended, without waiting; PB_OK for NULL. */
pb_status pb_comm_status(pb_comm *comm);

/* The collective that this communicator has begun and not ended, for messages of a watchdog: "all_reduce of 1048576
 * f32, number 17" or "" if none. On a GPU: the last one that was enqueued. May be called from any thread. */
void pb_comm_current(pb_comm *comm, char *out, size_t n);
/* Writes the name and version of the library, for example "Open MPI v4.1.4" or "NCCL 2.28.3". "": comm is NULL, of the
 * plan backend, or the library does not say. */
void pb_comm_library(const pb_comm *comm, char *out, size_t n);

/* Ends a communicator whose collectives may never complete, because a rank is gone. May be called from any thread and
 * returns at once: a helper thread calls ncclCommAbort, which waits for every captured graph that holds the
 * communicator, so the owner must free those graphs now. Calls that wait for a collective return EDEVICE. */
void pb_comm_abort(pb_comm *comm);
/* Ends the process after a failure of another rank: aborts the n communicators, calls free_graphs(self) on this thread,
 * waits at most 10 seconds for the aborts, and calls _exit(code) in every case. Nothing is flushed: the caller has
 * written what must be kept. free_graphs may be NULL. */
void pb_comm_abandon(pb_comm *const *comms, int n, void (*free_graphs)(void *self), void *self, int code)
    __attribute__((noreturn));

/* For measuring only, and never for training, because all results are then wrong: with on = true, collectives of this
 * communicator do nothing, and their outputs keep what they held. The difference to the same work with its collectives
 * is the time that it waits for them. All ranks switch at the same point, after they have waited for the collectives
 * enqueued so far; a graph keeps what it recorded. comm may be NULL. */
void pb_comm_skip(pb_comm *comm, bool on);

typedef enum pb_comm_op { PB_COMM_SUM, PB_COMM_MAX, PB_COMM_NOPS } pb_comm_op;

typedef struct pb_comm_all_reduce_args {
    pb_comm *comm; /* NULL: one rank */
    const void *x; /* [count] */
    void *y;       /* [count], out; may equal x */
    size_t count;
    pb_dtype dtype; /* f32 or bf16 */
    pb_comm_op op;
    bool ordered, overlap;
} pb_comm_all_reduce_args;

typedef struct pb_comm_reduce_scatter_args {
    pb_comm *comm;
    const void *x;        /* [total] */
    void *y;              /* [counts[rank]], out */
    size_t count;         /* elements per rank if counts is NULL, so total = count * N; otherwise unused */
    const size_t *counts; /* [N] in host memory, equal on all ranks, valid as long as a recording; NULL: `count` each */
    pb_dtype dtype;       /* f32 or bf16 */
    pb_comm_op op;
    bool ordered, overlap;
} pb_comm_reduce_scatter_args;

typedef struct pb_comm_all_gather_args {
    pb_comm *comm;
    const void *x;        /* [counts[rank]] */
    void *y;              /* [total], out */
    size_t count;         /* as in reduce_scatter */
    const size_t *counts; /* as in reduce_scatter */
    pb_dtype dtype;       /* any */
    bool overlap;
} pb_comm_all_gather_args;

typedef struct pb_comm_all_to_all_args {
    pb_comm *comm;
    const void *x; /* [sum of send]: block s goes to rank s */
    void *y;       /* [sum of receive], out: block s comes from rank s */
    size_t count;  /* elements per block if send is NULL; otherwise unused */
    /* [N] in host memory, valid as long as a recording: elements to and from each rank; send[s] on rank r equals
     * receive[r] on rank s. Both NULL: `count` each. */
    const size_t *send, *receive;
    pb_dtype dtype; /* any */
    bool overlap;
} pb_comm_all_to_all_args;

typedef struct pb_comm_broadcast_args {
    pb_comm *comm;
    const void *x; /* [count]; read on the root only */
    void *y;       /* [count], out on every rank; may equal x */
    size_t count;
    pb_dtype dtype; /* any */
    int root;       /* 0..N-1 */
    bool overlap;
} pb_comm_broadcast_args;

typedef struct pb_comm_agree_args {
    pb_comm *comm;
    const void *x; /* [count] */
    void *y;       /* [count], out: 0 or 1; may equal x */
    size_t count;
    pb_dtype dtype; /* f32 or i32 */
    bool overlap;
} pb_comm_agree_args;

typedef struct pb_comm_wait_args {
    pb_comm *comm;
} pb_comm_wait_args;

PB_DECLARE_OP(comm, all_reduce)
PB_DECLARE_OP(comm, reduce_scatter)
PB_DECLARE_OP(comm, all_gather)
PB_DECLARE_OP(comm, all_to_all)
PB_DECLARE_OP(comm, broadcast)
PB_DECLARE_OP(comm, agree)
PB_DECLARE_OP(comm, wait)
#ifdef __cplusplus
}
#endif
#endif
