/* wgmma.cuh - the instructions of sm_90a: products by a warpgroup, bulk copies by the
 * tensor engine, the barriers in shared memory that they complete on, and registers moved between warpgroups.
 *
 * A tile in shared memory is one or two halves of [rows][64] bf16, each row 128 bytes, swizzled as the tensor engine
 * and wgmma agree (128-byte swizzle): the 16-byte chunk c of row r lies at chunk c ^ r%8; halves begin at multiples of
 * 1024 bytes. Accumulators [N/8][4] lie as C in mma.cuh, warp w of the warpgroup holding rows 16w .. 16w+15. */
#ifndef PB_WGMMA_CUH
#define PB_WGMMA_CUH
#include <cuda.h>

#include "kernels/core/copy_async.cuh"

/* Guards code that only sm_90a can run; kernels are empty elsewhere, and implementations not `available`. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PB_SM90_CODE
#endif

/* ---- products ------------------------------------------------------------------------------------------------ */

/* Where a factor lies: the low word of wgmma's matrix descriptor; the high word is the same for all (eight rows to the
 * next 1024 bytes, 128-byte swizzle). By rows: row i of the factor's M (or N) is row i of the tile, and what is summed
 * over runs along it, from `at` on. Across: what is summed over runs down the rows, M (or N) along them; `half` bytes
 * separate one run of 64 of them from the next. Computed once; `step` moves it by bytes, a constant, which leaves
 * little between two products.
 */
typedef uint32_t factor;
__device__ static inline factor factor_k_major(const void *at) { return (smem_address(at) >> 4 & 0x3fff) | 1u << 16; }
__device__ static inline factor factor_mn_major(const void *at, uint32_t half)
{
    return (smem_address(at) >> 4 & 0x3fff) | (half >> 4) << 16;
}
__device__ static inline factor step(factor f, uint32_t bytes) { return f + (bytes >> 4); }

/* Registers written before are seen by the products after it. */
__device__ static inline void wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static inline void wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Until at most N groups of products are under way. */
template <int N> __device__ static inline void wgmma_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* After a wait: keeps the compiler from using what the products wrote, or reusing what they read, before it. */
template <int NT> __device__ static inline void settled(float (&c)[NT][4])
{
#pragma unroll
    for (int i = 0; i < NT * 4; i++) asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}
template <int NT> __device__ static inline void settled(uint32_t (&a)[NT][4])
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

/* c = a b, or c += a b when `add`; a is 64 x 16, b 16 x N, both in shared memory; A_MN_MAJOR, B_MN_MAJOR: how they lie.
 * One for each N, whose registers come first; A, B, ADD, TA and TB are the numbers of the operands behind them. */
#define PB_WGMMA(N, SUMS, REGISTERS, A, B, ADD, TA, TB)                                                                \
    template <int A_MN_MAJOR, int B_MN_MAJOR>                                                                          \
    __device__ static inline void wgmma(float(&c)[N / 8][4], factor a, factor b, int add)                              \
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
/* c += a b with a in registers, b across. */
__device__ static inline void wgmma(float (&c)[8][4], const uint32_t (&a)[4], factor b)
{
    asm volatile("{ .reg .b64 b; mov.b64 b, {%36, 0x40000040};\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" PB_R32
                 "}, {%32, %33, %34, %35}, b, 1, 1, 1, 1; }"
                 : PB_C32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
__device__ static inline void wgmma(float (&c)[16][4], const uint32_t (&a)[4], factor b)
{
    asm volatile("{ .reg .b64 b; mov.b64 b, {%68, 0x40000040};\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" PB_R64
                 "}, {%64, %65, %66, %67}, b, 1, 1, 1, 1; }"
                 : PB_C64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
__device__ static inline void wgmma(float (&c)[32][4], const uint32_t (&a)[4], factor b)
{
    asm volatile("{ .reg .b64 b; mov.b64 b, {%132, 0x40000040};\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" PB_R128
                 "}, {%128, %129, %130, %131}, b, 1, 1, 1, 1; }"
                 : PB_C128
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
}
#undef PB_C4
#undef PB_C32
#undef PB_C64
#undef PB_C128
#undef PB_R32
#undef PB_R64
#undef PB_R128

/* Operand A of 16 columns to 16 rows of a tile, as factor_k_major reads it: `row` and `chunk` are those of the 16 bytes
 * that this lane names, row l%16 of the 16 and the columns' first chunk + l/16. */
__device__ static inline void store_operand(__nv_bfloat16 *tile, const uint32_t (&a)[4], int row, int chunk)
{
    const __nv_bfloat16 *to = tile + row * 64 + ((chunk ^ (row & 7)) << 3);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address(to)), "r"(a[0]),
                 "r"(a[1]), "r"(a[2]), "r"(a[3])
                 : "memory");
}

/* The number of this thread's warpgroup, which the compiler then knows to be the same in the whole warp. */
__device__ static inline int warpgroup(void) { return __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0); }

/* ---- barriers ------------------------------------------------------------------------------------------------ */

__device__ static inline void barrier_init(uint64_t *b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(b)), "r"(arrivals) : "memory");
}
/* After the inits, by the thread that did them; a __syncthreads follows. */
__device__ static inline void barrier_inits_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ static inline void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(b)) : "memory");
}
/* What one `release` counts at its barrier: every lane arrives by itself. One for its warp would do behind __syncwarp,
 * but is no faster, and racecheck does not take it for order. */
enum { WARP_ARRIVES = 32 };
/* Of the whole warp, whose reads and writes before come first. */
__device__ static inline void release(uint64_t *b)
{
    __syncwarp(); /* without it some kernels spill */
    barrier_arrive(b);
}
/* Arrives when the copies that this thread has started so far (copy_async.cuh) have happened; the thread goes on. Who
 * waits must fence_async before products read what was copied. */
__device__ static inline void barrier_arrive_copied(uint64_t *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_address(b)) : "memory");
}
/* Arrives, and makes the phase wait for `bytes` of bulk copies too. */
__device__ static inline void barrier_expect(uint64_t *b, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(b)), "r"(bytes)
                 : "memory");
}
/* Until the phase of this parity is over; of a fresh barrier, parity 1 is. */
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
/* Named barriers 1..15 among `threads`, whole warps: wait for all, or only be counted. */
__device__ static inline void named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/* The same where warps of different roles meet, each at an instruction of its own: bar.sync promises that it is one. */
__device__ static inline void named_meet(int id, int threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ static inline void named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- copies -------------------------------------------------------------------------------------------------- */

/* This thread's ordinary accesses to memory come before copies and products that others start after a barrier. */
__device__ static inline void fence_async(void) { asm volatile("fence.proxy.async;" ::: "memory"); }
/* The same for accesses to this block's shared memory alone, which need not wait for memory. */
__device__ static inline void fence_async_shared(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ static inline void tensor_map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
/* The box of `map` at (column, head, token, batch row) to dst; its bytes count on `full`. */
__device__ static inline void tma_load(void *dst, const CUtensorMap *map, uint64_t *full, int col, int head, int token,
                                       int row)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
                 "%6}], [%2];" ::"r"(smem_address(dst)),
                 "l"(map), "r"(smem_address(full)), "r"(col), "r"(head), "r"(token), "r"(row)
                 : "memory");
}
/* The same to the same place of every block of the cluster whose bit of `blocks` is set, on the `full` of each. */
__device__ static inline void tma_load_multicast(uint32_t blocks, void *dst, const CUtensorMap *map, uint64_t *full,
                                                 int col, int head, int token, int row)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(smem_address(dst)),
                 "l"(map), "r"(smem_address(full)), "r"(col), "r"(head), "r"(token), "r"(row),
                 "h"((unsigned short)blocks)
                 : "memory");
}
/* A plain run of bytes, a multiple of 16. */
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
/* Until this thread's stores and additions have read their source; or have happened. */
__device__ static inline void bulk_read_wait(void)
{
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ static inline void bulk_wait(void)
{
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
}

/* Turns that blocks take on a counter in global memory. */
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

/* ---- clusters ------------------------------------------------------------------------------------------------ */

/* This block's number in its cluster; 0 in a launch without clusters. */
__device__ static inline int cluster_rank(void)
{
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return (int)r;
}
/* All threads of the cluster; what they wrote to their shared memory is seen by the others. */
__device__ static inline void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
/* Arrives at the barrier that lies at `own` in this block's shared memory, in that of block `rank` of the cluster. */
__device__ static inline void cluster_arrive(uint64_t *own, int rank)
{
    asm volatile("{ .reg .b32 at; mapa.shared::cluster.u32 at, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [at]; }" ::"r"(smem_address(own)),
                 "r"(rank)
                 : "memory");
}
/* What lies at `own` in this block's shared memory, in the shared memory of block `rank` of the cluster. */
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

/* ---- blocks that stay ---------------------------------------------------------------------------------------- */

/* A block's tile of the round after that of tile t, or one past the last: each round is dealt in the other direction.
 */
__device__ static inline int next_tile(int t)
{
    const int blocks = (int)gridDim.x;
    return t - t % blocks + 2 * blocks - 1 - t % blocks;
}
#endif
