/* cuda_async.cuh - copies of 16 bytes from global to shared memory that a thread starts now and waits for later. */
#ifndef PB_CUDA_ASYNC_CUH
#define PB_CUDA_ASYNC_CUH
#include <cuda_runtime.h>
#include <stdint.h>

/* Both pointers aligned to 16 bytes; zeros unless `there`, and nothing is read. */
__device__ static inline void pb_copy16_start(void *to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
/* Ends a batch: the copies started since the last one. */
__device__ static inline void pb_copy16_batch(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Until at most N of this thread's batches are on their way. It sees its own copies; others need a barrier. */
template <int N> __device__ static inline void pb_copy16_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif
