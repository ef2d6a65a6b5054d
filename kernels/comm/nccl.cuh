/* nccl.cuh - what the two files of the NCCL backend share: the loaded library, and the state of a communicator.
 * nccl.cu has the collectives; nccl_windows.cu the memory for large sums. Used in kernels/comm only. */
#ifndef PB_NCCL_CUH
#define PB_NCCL_CUH
#include <nccl.h>
#include <pthread.h>

#include "kernels/comm/backend.h"
#include "kernels/cuda/cuda.cuh"

/* The functions of nccl.def in libnccl.so.2. An optional one that the library lacks is NULL. */
typedef struct pb_nccl_library {
#define NCCL(name)          decltype(&nccl##name) name;
#define NCCL_OPTIONAL(name) decltype(&nccl##name) name;
#include "kernels/comm/nccl.def"
#undef NCCL
#undef NCCL_OPTIONAL
} pb_nccl_library;
extern pb_nccl_library pb_nccl; /* loaded when the first communicator is opened */

/* A block of pb_comm_window_memory. */
typedef struct pb_nccl_window {
    struct pb_nccl_window *next;
    void *p;
    size_t bytes;
    ncclWindow_t registered;
} pb_nccl_window;

typedef struct pb_nccl_state {
    ncclComm_t comm;
    pb_memory_source source; /* what pb_comm_window_memory returns; zeros: it returns NULL */
    pb_nccl_window *windows;
    int asked;       /* pb_nccl_windows_asked */
    int ctas;        /* at most so many CTAs make a sum in `sums` */
    ncclComm_t sums; /* the communicator of large sums in windows; NULL before the first window */
    cudaStream_t stream;
    cudaEvent_t begin, end; /* recorded in the compute stream before a collective; in `stream` after it */
    int device;
    int sms;                      /* SMs of enqueued sums that were not waited for: its part of ctx->busy_sms */
    bool waits;                   /* collectives were enqueued that no wait has followed */
    unsigned long long recording; /* of these collectives: the id of their capture, 0: eager */
    pthread_mutex_t enqueuing;    /* held while this communicator is used, so that abort does not free it meanwhile */
    pthread_mutex_t lock;         /* guards what follows */
    pb_comm_call last;
    unsigned long long number;
    bool aborting, aborted;
} pb_nccl_state;

static inline pb_nccl_state *pb_nccl_state_of(const pb_comm *c) { return (pb_nccl_state *)c->priv; }

/* Fails with EDEVICE and the words of NCCL for the result e of `call`. */
pb_status pb_nccl_failed(const pb_comm *c, ncclResult_t e, const char *call);
bool pb_nccl_is_aborting(pb_nccl_state *s);

#define PB_NCCL_TRY(c, call, ...)                                                                                      \
    do {                                                                                                               \
        const ncclResult_t e_ = pb_nccl.call(__VA_ARGS__);                                                             \
        if (e_ != ncclSuccess) return pb_nccl_failed(c, e_, "nccl" #call);                                             \
    } while (0)

/* Reads PB_NCCL_WINDOWS of the environment. 0 or not set: no windows. 1: windows, and the number of CTAs is computed
 * from bytes_per_flop. 2 to 64: windows, and at most so many CTAs. EINVAL: it is something else. */
pb_status pb_nccl_windows_asked(int *asked);
/* Sets the source if windows are asked for, the library has them, and the group is on one host. */
void pb_nccl_offer_windows(pb_comm *c, const pb_world *w, const int *members, int asked);
const pb_memory_source *pb_nccl_window_memory(const pb_comm *c, double bytes_per_flop);
/* True if p points into a window. */
bool pb_nccl_in_window(const pb_comm *c, const void *p);
/* Returns 0 if the sum of x into y must run in s->comm. Otherwise it must run in s->sums; returns the most CTAs of it. */
int pb_nccl_sum_ctas(const pb_comm *c, const void *x, const void *y, size_t bytes);
#endif
