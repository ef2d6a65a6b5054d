/* wgmma.cuh - instructions of sm_90a: matrix products of a warpgroup (wgmma), TMA copies, the mbarriers on which these
 * copies complete, and redistribution of registers between warpgroups.
 *
 * A tile in shared memory is one or two halves of [rows][64] bf16; a row is 128 bytes. TMA and wgmma both use the
 * 128-byte swizzle: 16-byte chunk c of row r is stored at chunk c ^ r%8. Halves begin at multiples of 1024 bytes.
 * Accumulators [N/8][4] have the layout of C in mma.cuh; warp w of the warpgroup holds rows 16w .. 16w+15. */
#ifndef PB_WGMMA_CUH
#define PB_WGMMA_CUH
#include <cuda.h>

#include "kernels/cuda/copy_async.cuh"

/* PB_SM90_CODE guards code that only sm_90a can run. For other architectures these kernels compile to empty functions,
 * and pb_cuda_has_sm90 prevents their selection. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PB_SM90_CODE
#endif

/* ---- wgmma: matrix products of a warpgroup ------------------------------------------------------------------- */

/* The low word of wgmma's matrix descriptor: the address of an operand in shared memory. The high word is one constant
 * for all operands: groups of eight rows are 1024 bytes apart, with 128-byte swizzle.
 *     k_major_desc   K-major: tile row i is index i of M (or N), and its elements are consecutive indices of K
 *     mn_major_desc  MN-major: tile row k is index k of K, and its elements are consecutive indices of M (or N);
 *                    `half`: bytes from indices 0..63 of M (or N) to indices 64..127
 * A kernel computes a descriptor once. advance_desc() moves it by a constant number of bytes: one addition between two
 * products. */
typedef uint32_t operand_desc;
__device__ static inline operand_desc k_major_desc(const void *at)
{
    return (smem_address(at) >> 4 & 0x3fff) | 1u << 16;
}
__device__ static inline operand_desc mn_major_desc(const void *at, uint32_t half)
{
    return (smem_address(at) >> 4 & 0x3fff) | (half >> 4) << 16;
}
__device__ static inline operand_desc advance_desc(operand_desc desc, uint32_t bytes) { return desc + (bytes >> 4); }

/* Call before the first wgmma and after writing to its registers: makes these writes visible to the products. */
__device__ static inline void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static inline void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until at most N groups of products are pending. */
template <int N> __device__ static inline void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* Call after wgmma_wait: prevents the compiler from moving reads of accumulators, or writes to operand registers, to
 * before the wait. */
template <int NT> __device__ static inline void wgmma_fence_operand(float (&c)[NT][4])
{
#pragma unroll
    for (int i = 0; i < NT * 4; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}
template <int NT> __device__ static inline void wgmma_fence_operand(uint32_t (&a)[NT][4])
{
#pragma unroll
    for (int i = 0; i < NT * 4; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

#define PB_C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define PB_C32   PB_C4(0), PB_C4(1), PB_C4(2), PB_C4(3), PB_C4(4), PB_C4(5), PB_C4(6), PB_C4(7)
#define PB_C64   PB_C32, PB_C4(8), PB_C4(9), PB_C4(10), PB_C4(11), PB_C4(12), PB_C4(13), PB_C4(14), PB_C4(15)
#define PB_C128                                                                                                        \
    PB_C64, PB_C4(16), PB_C4(17), PB_C4(18), PB_C4(19), PB_C4(20), PB_C4(21), PB_C4(22), PB_C4(23), PB_C4(24),         \
        PB_C4(25), PB_C4(26), PB_C4(27), PB_C4(28), PB_C4(29), PB_C4(30), PB_C4(31)
#define PB_R32                                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PB_R64                                                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                 \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define PB_R128                                                                                                        \
    PB_R64 ", "                                                                                                        \
           "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                          \
           "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                          \
           "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "              \
           "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* Computes c = a b, or c += a b if `add`. a is 64 x 16 and b is 16 x N, both in shared memory; A_MN_MAJOR, B_MN_MAJOR:
 * 1 if MN-major. One overload per N. A, B, ADD, TA and TB are the numbers of the asm operands, which follow the
 * registers of c. */
#define PB_WGMMA(N, SUMS, REGISTERS, A, B, ADD, TA, TB)                                                                \
    template <int A_MN_MAJOR, int B_MN_MAJOR>                                                                          \
    __device__ static inline void wgmma(float(&c)[N / 8][4], operand_desc a, operand_desc b, int add)                  \
    {                                                                                                                  \
        asm volatile("{ .reg .pred p; .reg .b64 a, b; setp.ne.b32 p, %" #ADD ", 0;\n"                                  \
                     "mov.b64 a, {%" #A ", 0x40000040}; mov.b64 b, {%" #B ", 0x40000040};\n"                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS "}, a, b, p, 1, 1, %" #TA  \
                     ", %" #TB "; }"                                                                                   \
                     : SUMS                                                                                            \
                     : "r"(a), "r"(b), "r"(add), "n"(A_MN_MAJOR), "n"(B_MN_MAJOR));                                    \
    }
PB_WGMMA(64, PB_C32, PB_R32, 32, 33, 34, 35, 36)
PB_WGMMA(128, PB_C64, PB_R64, 64, 65, 66, 67, 68)
PB_WGMMA(256, PB_C128, PB_R128, 128, 129, 130, 131, 132)
#undef PB_WGMMA
/* Computes c += a b with a in registers (one A fragment per warp, see mma.cuh) and b in shared memory, MN-major if
 * B_MN_MAJOR. One overload per N; A, B and TB are the numbers of the asm operands, which follow the registers of c. */
#define PB_WGMMA(N, SUMS, REGISTERS, A, B, TB)                                                                         \
    template <int B_MN_MAJOR = 1>                                                                                      \
    __device__ static inline void wgmma(float(&c)[N / 8][4], const uint32_t(&a)[4], operand_desc b)                    \
    {                                                                                                                  \
        asm volatile("{ .reg .b64 b; mov.b64 b, {%" #B ", 0x40000040};\n"                                              \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS "}, {" A                   \
                     "}, b, 1, 1, 1, %" #TB "; }"                                                                      \
                     : SUMS                                                                                            \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(B_MN_MAJOR));                           \
    }
PB_WGMMA(64, PB_C32, PB_R32, "%32, %33, %34, %35", 36, 37)
PB_WGMMA(128, PB_C64, PB_R64, "%64, %65, %66, %67", 68, 69)
PB_WGMMA(256, PB_C128, PB_R128, "%128, %129, %130, %131", 132, 133)
#undef PB_WGMMA
#undef PB_C4
#undef PB_C32
#undef PB_C64
#undef PB_C128
#undef PB_R32
#undef PB_R64
#undef PB_R128

/* Stores an A fragment [16,16] (mma.cuh) to 16 rows of a tile, in the layout that k_major_desc reads. Lane l passes
 * the address of 16 bytes: `row` is the first row + l%16, `chunk` is the first 16-byte chunk + l/16. */
__device__ static inline void store_operand(__nv_bfloat16 *tile, const uint32_t (&a)[4], int row, int chunk)
{
    const __nv_bfloat16 *to = tile + row * 64 + ((chunk ^ (row & 7)) << 3);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(to)), "r"(a[0]),
                 "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
}

/* Stores two 16 x 8 accumulators that are side by side, packed to bf16 in the registers of an A fragment, transposed: to
 * 16 rows (their columns) of a tile. Lane l passes the address of 16 bytes: `row` is the first row + l/16*8 + l%8,
 * `chunk` is the first 16-byte chunk + l/8%2. */
__device__ static inline void store_transposed(__nv_bfloat16 *tile, const uint32_t (&a)[4], int row, int chunk)
{
    const __nv_bfloat16 *to = tile + row * 64 + ((chunk ^ (row & 7)) << 3);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(to)),
                 "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
}

/* Returns the number of this thread's warpgroup. The shuffle tells the compiler that all lanes of a warp get the same
 * number. */
__device__ static inline int warpgroup(void) { return __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0); }

/* ---- mbarriers and named barriers -------------------------------------------------------------------------------- */

__device__ static inline void barrier_init(uint64_t *b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(b)), "r"(arrivals) : "memory");
}
/* Makes the initialised mbarriers visible to TMA. The thread that initialised them calls it; a
 * __syncthreads must follow. */
__device__ static inline void barrier_inits_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ static inline void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(b)) : "memory");
}
/* Arrivals per release(): all 32 lanes arrive. Electing one lane after __syncwarp() is no faster, and racecheck does
 * not accept it as synchronisation. */
enum { WARP_ARRIVES = 32 };
/* Called by a whole warp: arrives at b after all reads and writes of the warp so far. */
__device__ static inline void release(uint64_t *b)
{
    __syncwarp(); /* without it some kernels spill registers */
    barrier_arrive(b);
}
/* Arrives at b when the cp.async copies that this thread has started so far have finished; the thread itself continues.
 * The consumer must call fence_async before wgmma reads the copied data. */
__device__ static inline void barrier_arrive_copied(uint64_t *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(b)) : "memory");
}
/* Arrives at b; its phase then also waits for `bytes` bytes of bulk copies. */
__device__ static inline void barrier_expect(uint64_t *b, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(b)), "r"(bytes)
                 : "memory");
}
/* Spins until the phase with this parity completes. On a fresh mbarrier, parity 1 returns at once. */
__device__ static inline void barrier_wait(uint64_t *b, uint32_t parity)
{
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra over;\n"
                 "bra again;\n"
                 "over: }" ::"r"(smem_address(b)),
                 "r"(parity)
                 : "memory");
}
/* Named barriers 1..15 among `threads` threads, a multiple of 32. named_sync arrives and waits until all threads have
 * arrived; named_arrive only arrives. */
__device__ static inline void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/* Like named_sync, for warps of different roles that reach the barrier at different instructions: barrier.sync does not
 * require aligned execution, as bar.sync does. */
__device__ static inline void named_meet(int id, int threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ static inline void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- TMA copies, and the fences that order them -------------------------------------------------------------- */

/* Proxy fence: orders this thread's earlier ordinary memory accesses before later TMA copies and wgmma. If another
 * thread starts those, a barrier must follow the fence. */
__device__ static inline void fence_async(void) { asm volatile("fence.proxy.async;" ::: "memory"); }
/* Like fence_async, for this CTA's shared memory only: it does not wait for accesses to global memory. */
__device__ static inline void fence_async_shared(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ static inline void tensor_map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* Copies the box of `map` at (column, head, token, batch row) to dst; its bytes count on mbarrier `full`. */
__device__ static inline void tma_load(void *dst, const CUtensorMap *map, uint64_t *full, int col, int head, int token,
                                       int row)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(smem_address(dst)),
                 "l"(map), "r"(smem_address(full)), "r"(col), "r"(head), "r"(token), "r"(row)
                 : "memory");
}
/* Like tma_load, but with multicast: copies the box to the same offset in the shared memory of every CTA of the cluster
 * whose bit is set in `ctas`. In each of these CTAs the bytes count on the mbarrier at the offset of `full`. */
__device__ static inline void tma_load_multicast(uint32_t ctas, void *dst, const CUtensorMap *map, uint64_t *full,
                                                 int col, int head, int token, int row)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(smem_address(dst)),
                 "l"(map), "r"(smem_address(full)), "r"(col), "r"(head), "r"(token), "r"(row), "h"((unsigned short)ctas)
                 : "memory");
}
/* Start TMA copies of contiguous bytes, a multiple of 16: bulk_load from global to shared memory, bulk_store from
 * shared to global memory; tma_reduce_add adds f32 values to global memory. */
__device__ static inline void bulk_load(void *dst, const void *src, uint64_t *full, uint32_t bytes)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     smem_address(dst)),
                 "l"(src), "r"(bytes), "r"(smem_address(full))
                 : "memory");
}
__device__ static inline void bulk_store(void *dst, const void *src, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(smem_address(src)),
                 "r"(bytes)
                 : "memory");
}
__device__ static inline void tma_reduce_add(float *dst, const void *src, uint32_t bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst),
                 "r"(smem_address(src)), "r"(bytes)
                 : "memory");
}
/* bulk_read_wait waits until this thread's bulk stores and additions have read their source; bulk_wait waits
 * until they have completed. */
__device__ static inline void bulk_read_wait(void)
{
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ static inline void bulk_wait(void)
{
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

/* A ticket lock between CTAs: they execute a section one after the other, in the order of their numbers `turn`. The
 * counter is in global memory. turn_wait spins until the counter equals `turn`; turn_pass increments the counter. */
__device__ static inline void turn_wait(const int *counter, int turn)
{
    int now;
    do asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    while (now != turn);
}
__device__ static inline void turn_pass(int *counter)
{
    asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

/* ---- clusters: barriers and loads between their CTAs --------------------------------------------------------- */

/* Returns the rank of this CTA in its cluster; 0 in a launch without clusters. */
__device__ static inline int cluster_rank(void)
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return (int)r;
}
/* Waits for all threads of the cluster. Each CTA then sees what the others wrote to their shared memory before. */
__device__ static inline void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
/* Arrives at an mbarrier of CTA `rank` of the cluster: the one at the offset that `own` has in this CTA. */
__device__ static inline void cluster_arrive(uint64_t *own, int rank)
{
    asm volatile("{ .reg .b32 at; mapa.shared::cluster.u32 at, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [at]; }" ::"r"(smem_address(own)),
                 "r"(rank)
                 : "memory");
}
/* Loads from the shared memory of CTA `rank` of the cluster, at the offset that `own` has in this CTA. */
__device__ static inline float4 cluster_load(const float *own, int rank)
{
    uint32_t at;
    float4 v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(smem_address(own)), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

template <int N> __device__ static inline void registers_fewer(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ static inline void registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- persistent kernels: the next tile in snake order --------------------------------------------------------- */

/* Returns, in snake order, the tile that this CTA takes after tile t. A round deals gridDim.x tiles, alternately
 * forwards and backwards. The result may be past the last tile. */
__device__ static inline int next_tile(int t)
{
    const int blocks = (int)gridDim.x;
    return t - t % blocks + 2 * blocks - 1 - t % blocks;
}
#endif
