/* copy_async.cuh - asynchronous copies into shared memory (cp.async, sm_80), and two packing instructions. */
#ifndef PB_COPY_ASYNC_CUH
#define PB_COPY_ASYNC_CUH
#include "kernels/cuda/cuda.cuh"

__device__ static inline uint32_t smem_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Copies 16 bytes to shared memory asynchronously; both addresses are aligned to 16. If !there, writes zeros
 * and does not read `src`. */
__device__ static inline void copy_async(void *dst, const void *src, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(dst)), "l"(src), "r"(there ? 16 : 0)
                 : "memory");
}
/* Closes a group: the copies that this thread has started since the previous commit. */
__device__ static inline void copy_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Waits until at most N groups of this thread are pending. The thread then sees its own copies; for other threads'
 * copies, a barrier must follow. */
template <int N> __device__ static inline void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/* kept_in_l2() returns an evict-last cache policy, which keeps data in L2. copy_async_kept is copy_async with this
 * policy and a 256-byte L2 prefetch hint, for rows that many CTAs read. */
__device__ static inline uint64_t kept_in_l2(void)
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ static inline void copy_async_kept(void *dst, const void *src, bool there, uint64_t policy)
{
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], [%1], 16, %2, %3;" ::"r"(smem_address(dst)),
                 "l"(src), "r"(there ? 16 : 0), "l"(policy)
                 : "memory");
}
/* 16-byte cp.async with a 128-byte L2 prefetch hint, for data that is read once. copy_async_word copies 4 bytes. */
__device__ static inline void copy_async_line(void *dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(smem_address(dst)), "l"(src) : "memory");
}
__device__ static inline void copy_async_word(void *dst, const void *src)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(smem_address(dst)), "l"(src) : "memory");
}

__device__ static inline uint32_t pack_bf16(float lo, float hi)
{
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
/* Selects bytes with the instruction prmt: byte i of the result is byte s of the eight bytes low (0..3), high (4..7). s
 * is the low three bits of nibble i of `select`; bit 3 of each nibble must be 0. */
__device__ static inline uint32_t bytes_of(uint32_t low, uint32_t high, uint32_t select)
{
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(select));
    return r;
}
#endif
