/* mma.cuh - the warp-wide matrix instructions of sm_80 and later: 16 x 8 x 16 products of bf16 with f32 sums, and
 * ldmatrix loads of their operands from shared memory.
 *
 * The fragments of a lane, with g = lane / 4 (its quad) and t = lane % 4 (its index in the quad). A register of A or B
 * holds two bf16.
 *     A [16,16]  register 0: row g,   columns 2t, 2t+1       register 2: row g,   columns 2t+8, 2t+9
 *                register 1: row g+8, columns 2t, 2t+1       register 3: row g+8, columns 2t+8, 2t+9
 *     B [16,8]   register 0: rows 2t, 2t+1 of column g       register 1: rows 2t+8, 2t+9 of column g
 *     C [16,8]   values 0, 1: row g, columns 2t, 2t+1        values 2, 3: row g+8, columns 2t, 2t+1 */
#ifndef PB_MMA_CUH
#define PB_MMA_CUH
#include "kernels/cuda/copy_async.cuh"

/* Computes c += a b. */
__device__ static inline void pb_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Loads four 8 x 8 matrices of bf16; lane l passes the address of row l%8 of matrix l/8. Register i of lane l gets
 * columns 2t, 2t+1 of row g of matrix i; with `trans`, rows 2t, 2t+1 of column g. */
__device__ static inline void pb_ldmatrix(uint32_t (&r)[4], const __nv_bfloat16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row))
                 : "memory");
}
__device__ static inline void pb_ldmatrix_trans(uint32_t (&r)[4], const __nv_bfloat16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row))
                 : "memory");
}

/* The loads below read fragments from a tile in shared memory. `at` is the fragment's first element; rows are `ld`
 * elements apart, a multiple of 8. */
__device__ static inline int pb_mma_lane() { return (int)threadIdx.x % 32; }
/* Loads an A fragment; A[m][k] is at at[m*ld + k]. */
__device__ static inline void pb_load_a(uint32_t (&a)[4], const __nv_bfloat16 *at, int ld)
{
    const int lane = pb_mma_lane();
    pb_ldmatrix(a, at + (lane % 16) * ld + lane / 16 * 8);
}
/* Loads an A fragment; A[m][k] is at at[k*ld + m]. */
__device__ static inline void pb_load_a_trans(uint32_t (&a)[4], const __nv_bfloat16 *at, int ld)
{
    const int lane = pb_mma_lane();
    pb_ldmatrix_trans(a, at + (lane % 8 + lane / 16 * 8) * ld + lane / 8 % 2 * 8);
}
/* Loads two neighbouring B fragments: columns 0..7 in b[0], b[1] and columns 8..15 in b[2], b[3]. B[k][n] is at at[k*ld
 * + n]. */
__device__ static inline void pb_load_b2(uint32_t (&b)[4], const __nv_bfloat16 *at, int ld)
{
    const int lane = pb_mma_lane();
    pb_ldmatrix_trans(b, at + (lane % 16) * ld + lane / 16 * 8);
}
/* Loads two B fragments of the same 8 columns: rows 0..15 in b[0], b[1] and rows 16..31 in b[2], b[3]. */
__device__ static inline void pb_load_b_deep(uint32_t (&b)[4], const __nv_bfloat16 *at, int ld)
{
    pb_ldmatrix_trans(b, at + pb_mma_lane() * ld);
}

/* ---- converting accumulators to operands, and storing them ------------------------------------------------------- */

/* Converts NT C fragments to NT/2 A fragments in bf16. Each lane already holds the elements that it needs. */
template <int NT> __device__ static inline void as_operand(uint32_t (&a)[NT / 2][4], const float (&c)[NT][4])
{
#pragma unroll
    for (int k = 0; k < NT / 2; k++) {
        a[k][0] = pack_bf16(c[2 * k][0], c[2 * k][1]);
        a[k][1] = pack_bf16(c[2 * k][2], c[2 * k][3]);
        a[k][2] = pack_bf16(c[2 * k + 1][0], c[2 * k + 1][1]);
        a[k][3] = pack_bf16(c[2 * k + 1][2], c[2 * k + 1][3]);
    }
}

/* Transposes 4 x 4 registers in a quad of lanes: x[i] of lane j becomes x[j] of lane i. */
__device__ static inline void transpose_quad(uint32_t (&x)[4])
{
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i + 2], 2);
        if (high) x[i] = got;
        else x[i + 2] = got;
    }
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? x[i] : x[i + 1], 1);
        if (odd) x[i] = got;
        else x[i + 1] = got;
    }
}

/* Stores rows g and g+8 of NT C fragments as bf16: f0 times row g to row0, f8 times row g+8 to row8. A NULL row is not
 * stored. Columns >= D (a multiple of 8) are not stored. */
template <int NT>
__device__ static inline void store_rows(const float (&c)[NT][4], float f0, float f8, __nv_bfloat16 *row0,
                                         __nv_bfloat16 *row8, int D)
{
    static_assert(NT % 4 == 0, "a quad stores four tiles at a time");
    const int in_quad = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < NT; n += 4) {
        uint32_t a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[i] = pack_bf16(f0 * c[n + i][0], f0 * c[n + i][1]);
            b[i] = pack_bf16(f8 * c[n + i][2], f8 * c[n + i][3]);
        }
        transpose_quad(a), transpose_quad(b);
        const int col = (n + in_quad) * 8;
        if (row0 && col < D) *reinterpret_cast<uint4 *>(row0 + col) = make_uint4(a[0], a[1], a[2], a[3]);
        if (row8 && col < D) *reinterpret_cast<uint4 *>(row8 + col) = make_uint4(b[0], b[1], b[2], b[3]);
    }
}

/* The same, as f32: row0 and row8 are aligned to 8 bytes. */
template <int NT>
__device__ static inline void store_rows(const float (&c)[NT][4], float f0, float f8, float *row0, float *row8, int D)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const int col = n * 8 + threadIdx.x % 4 * 2;
        if (row0 && col < D) *reinterpret_cast<float2 *>(row0 + col) = make_float2(f0 * c[n][0], f0 * c[n][1]);
        if (row8 && col < D) *reinterpret_cast<float2 *>(row8 + col) = make_float2(f8 * c[n][2], f8 * c[n][3]);
    }
}
#endif
