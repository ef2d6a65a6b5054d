/* backend.h - what a communication library must implement: comm_mpi.c and nccl.cu do. Used in kernels/comm only. */
#ifndef PB_COMM_BACKEND_H
#define PB_COMM_BACKEND_H
#include "kernels/comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum pb_comm_kind {
    PB_COMM_ALL_REDUCE,
    PB_COMM_REDUCE_SCATTER,
    PB_COMM_ALL_GATHER,
    PB_COMM_ALL_TO_ALL,
    PB_COMM_BROADCAST,
    PB_COMM_AGREE,
    PB_COMM_NKINDS
} pb_comm_kind;

/* A collective of any kind: the arguments of its op. */
typedef struct pb_comm_call {
    pb_comm_kind kind;
    const void *x;
    void *y;
    size_t count; /* as in comm.h */
    const size_t *send,
        *receive; /* all_to_all; the counts of reduce_scatter are in `send`, of all_gather in `receive` */
    pb_dtype dtype;
    pb_comm_op op;
    int root;
    bool ordered, overlap;
} pb_comm_call;

/* The steps that pb_comm_perform builds collectives from. Each call enqueues in the communicator's order (NCCL), or has
 * finished when it returns (MPI, on its thread). Counts are elements; NULL means `count` for each rank. */
typedef struct pb_comm_steps {
    pb_status (*reduce)(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, pb_comm_op op);
    /* y gets this rank's block of `count`. MPI: NULL, the blocks are exchanged and added instead. */
    pb_status (*reduce_scatter)(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, pb_comm_op op);
    pb_status (*gather)(pb_comm *c, const void *x, void *y, size_t count, const size_t *counts, pb_dtype t);
    /* send and receive may be NULL one by one: `count` elements to, or from, each rank. */
    pb_status (*exchange)(pb_comm *c, const void *x, void *y, size_t count, const size_t *send, const size_t *receive,
                          pb_dtype t);
    pb_status (*broadcast)(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, int root);
    /* Local: y[i] = x[0][i] + x[1][i] + ... (or max) over size blocks of `count`, in this order, in f32. */
    pb_status (*add_blocks)(pb_comm *c, const void *x, void *y, size_t count, pb_dtype t, pb_comm_op op);
    /* Local: y[i] = x[i] != 0 as 0 or 1. */
    pb_status (*flags)(pb_comm *c, const void *x, pb_dtype xt, void *y, pb_dtype yt, size_t count);
} pb_comm_steps;

typedef struct pb_comm_backend {
    const char *name;
    const pb_comm_steps *steps;
    /* Fills c->priv; members[c->size] are the world ranks of the group, in the order of its ranks. w may be NULL for a
     * group of one rank. Every rank of the world calls it at the same time. */
    pb_status (*open)(pb_comm *c, pb_world *w, const int *members);
    void (*close)(pb_comm *c); /* also after a failed open */
    pb_status (*enqueue)(pb_ctx *ctx, pb_comm *c, const pb_comm_call *call);
    pb_status (*wait)(pb_ctx *ctx, pb_comm *c);
    pb_status (*status)(pb_comm *c);
    void (*abort)(pb_comm *c);
    bool (*aborted)(pb_comm *c); /* true if abort has finished */
    void (*current)(pb_comm *c, char *out, size_t n);
    void (*library)(char *out, size_t n); /* name and version; NULL: none */
    /* The source that pb_comm_window_memory returns, or NULL. */
    const pb_memory_source *(*window_memory)(const pb_comm *c, double bytes_per_flop);
} pb_comm_backend;
extern const pb_comm_backend pb_comm_mpi, pb_comm_nccl; /* open fails with EUNSUPPORTED if not in this build */

struct pb_comm {
    const pb_comm_backend *be; /* NULL: of the plan backend */
    pb_ctx *ctx;
    const char *role;
    const char
        *group; /* the role and, if not all ranks of the world are in it, the number of the group: "dp", "cp#1" */
    int rank, size;
    void *scratch; /* see pb_comm_memory */
    size_t scratch_bytes;
    void *blocks; /* all scratch blocks: a recording may still use an old one */
    bool skips;   /* see pb_comm_skip */
    void *priv;   /* owned by the backend */
};

/* Opens a communicator of this process alone, whose collectives the library runs nevertheless. For tests. */
pb_status pb_comm_open_self(pb_ctx *ctx, const char *role, pb_comm **out);

/* An all_reduce that adds in the order of the ranks is made in chunks of at most this many bytes, which bounds its
 * scratch. Tests change it. */
extern size_t pb_comm_chunk;
/* Bytes of c->scratch that a collective needs. */
size_t pb_comm_memory(const pb_comm *c, const pb_comm_call *call);
pb_status pb_comm_reserve(pb_ctx *ctx, pb_comm *c, size_t bytes);
/* Runs a collective as a sequence of steps. */
pb_status pb_comm_perform(pb_comm *c, const pb_comm_call *call);
/* Elements before the block of `rank`; rank = size gives the total. */
size_t pb_comm_offset(const size_t *counts, size_t count, int rank);
const char *pb_comm_kind_name(pb_comm_kind kind);
/* Begins the range of a collective, the communicator's `number`th; pb_range_pop() ends it. Its bytes are those of the
 * larger of the two buffers of this rank. */
void pb_comm_range_push(const pb_comm *c, const pb_comm_call *call, uint64_t number);
/* Writes, for example, "all_reduce of 4 f32". */
void pb_comm_call_text(const pb_comm_call *call, char *out, size_t n);

/* The implementations of the ops with several ranks, and with one. */
bool pb_comm_is_live(const void *args);
bool pb_comm_is_alone(const void *args);
#define PB_COMM_PASSES(X) X(all_reduce) X(reduce_scatter) X(all_gather) X(all_to_all) X(broadcast) X(agree) X(wait)
#define X(pass)                                                                                                        \
    pb_status pb_comm_run_##pass(pb_ctx *ctx, const void *args);                                                       \
    pb_status pb_comm_reserve_##pass(pb_ctx *ctx, const void *args);                                                   \
    pb_status pb_comm_copy_##pass(pb_ctx *ctx, const void *args); /* not of agree */
PB_COMM_PASSES(X)
#undef X
#ifdef __cplusplus
}
#endif
#endif
