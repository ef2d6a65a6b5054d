/* canary.cuh - guards between the parts of a kernel's shared memory, in builds with the CMake option PB_CANARIES. The
 * CTA fills them when it begins and compares them when it ends, so a write into one is found even where it changes no
 * result. A kernel of one thread, launched after it, prints the overwritten word with the lowest number of CTA, then of
 * guard, then of word, and traps, so that the next call that waits for the GPU fails. Guards are numbered from 0 in the
 * order of the struct. In other builds no guard exists, and the functions do nothing. The option builds the wgmma
 * kernels of dynmask_attention with guards; another kernel needs its source in kernels/CMakeLists.txt.
 *
 *     #define CANARY_KERNEL "axpy"
 *     #include "kernels/cuda/canary.cuh"
 *     struct shared {
 *         float x[N];
 *         CANARY(x)
 *         float y[M];
 *         CANARY(y)
 *         CANARIES(2, &canary_x, &canary_y)
 *     };
 *
 * A guard is 1024 bytes, a multiple of every alignment that TMA and the swizzle patterns need, so the parts after it keep
 * theirs. */
#ifndef PB_CANARY_CUH
#define PB_CANARY_CUH
#include <stdio.h>

#include "kernels/cuda/cuda.cuh"

namespace
{
#ifdef PB_CANARIES
enum { CANARY_WORDS = 256, CANARY_GUARD_BITS = 4, CANARY_WORD_BITS = 8, CANARY_BARRIER = 15 /* a named barrier */ };
struct alignas(8) canary {
    unsigned word[CANARY_WORDS];
};
/* CTA, guard and word as one number; all ones: none. */
__device__ unsigned long long first_overwritten = ~0ull;

__device__ inline unsigned canary_value(int guard, int word)
{
    return 0xca9a57e5u ^ (unsigned)(guard * CANARY_WORDS + word) * 2654435761u;
}

/* Fills the guards. All threads of the CTA call it, and synchronise afterwards. Before, only mbarriers are written. */
template <class S> __device__ inline void canaries_begin(S &sm)
{
    for (int i = 0; i < S::guards; i++)
        for (int w = threadIdx.x; w < CANARY_WORDS; w += blockDim.x) sm.guard(i)->word[w] = canary_value(i, w);
}

/* Compares the guards. `threads` threads with numbers t, all that still use shared memory, call it; it synchronises
 * them. The threads of the producer do not take part: they have too few registers, and all that they loaded has been
 * waited for. */
template <class S> __device__ inline void canaries_end(S &sm, int t, int threads)
{
    named_sync(CANARY_BARRIER, threads);
    for (int i = 0; i < S::guards; i++)
        for (int w = t; w < CANARY_WORDS; w += threads)
            if (sm.guard(i)->word[w] != canary_value(i, w))
                atomicMin(&first_overwritten,
                          ((unsigned long long)blockIdx.x << CANARY_GUARD_BITS | i) << CANARY_WORD_BITS | w);
}

__global__ void canaries_report_kernel(void)
{
    const unsigned long long at = first_overwritten;
    if (at == ~0ull) return;
    printf("%s: CTA %d overwrote a guard in its shared memory: guard %d, word %d\n", CANARY_KERNEL,
           (int)(at >> (CANARY_WORD_BITS + CANARY_GUARD_BITS)),
           (int)(at >> CANARY_WORD_BITS & ((1 << CANARY_GUARD_BITS) - 1)), (int)(at & ((1 << CANARY_WORD_BITS) - 1)));
    __trap();
}

static inline pb_status canaries_report(pb_ctx *ctx)
{
    canaries_report_kernel<<<1, 1, 0, pb_cuda_stream(ctx)>>>();
    return pb_cuda_launched(ctx, CANARY_KERNEL ", canaries");
}

#define CANARY(part) canary canary_##part;
#define CANARIES(count, ...)                                                                                           \
    enum { guards = count };                                                                                           \
    __device__ canary *guard(int i)                                                                                    \
    {                                                                                                                  \
        canary *const all[count] = {__VA_ARGS__};                                                                      \
        return all[i];                                                                                                 \
    }
#else
template <class S> __device__ inline void canaries_begin(S &) {}
template <class S> __device__ inline void canaries_end(S &, int, int) {}
static inline pb_status canaries_report(pb_ctx *) { return PB_OK; }
#define CANARY(part)
#define CANARIES(count, ...)
#endif
} // namespace
#endif
