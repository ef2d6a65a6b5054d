/* copy_async.cuh - asynchronous copies into shared memory (sm_80), and single instructions on packed registers. */
#ifndef PB_COPY_ASYNC_CUH
#define PB_COPY_ASYNC_CUH
#include "kernels/core/cuda.cuh"

__device__ static inline uint32_t smem_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Starts to copy 16 bytes to shared memory, both aligned to 16, or to clear them without reading `src` when !there. */
__device__ static inline void copy_async(void *dst, const void *src, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(dst)), "l"(src), "r"(there ? 16 : 0)
                 : "memory");
}
/* Ends a group: the copies that this thread has started since the last one. */
__device__ static inline void copy_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
/* Until at most N of this thread's groups are under way. It sees its own copies; others need a barrier. */
template <int N> __device__ static inline void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
/* The same of rows that many blocks read: they stay in the L2 cache as long as they can, which fetches 256 bytes around
 * what is asked. `policy` is kept_in_l2()'s. */
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
/* Always 16 bytes, for data read once: the memory cache fetches 128 bytes around it. Or 4 bytes. */
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
/* Byte i of the result is byte s of the eight bytes low, high, s being nibble i of `select`, whose bit 3 is 0. */
__device__ static inline uint32_t bytes_of(uint32_t low, uint32_t high, uint32_t select)
{
    uint32_t r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(low), "r"(high), "r"(select));
    return r;
}
#endif
