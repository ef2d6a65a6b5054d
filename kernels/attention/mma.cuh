/* mma.cuh - the instructions of sm_80 that the attention kernels use, one function each: tensor-core products of
 * 16 x 8 x 16 and matrix loads from shared memory.
 *
 * Fragments (PTX ISA, "Matrix fragments for mma.m16n8k16"), with g = lane/4 and t = lane%4:
 *     C[16 x 8]:  c0 c1 = row g, columns 2t 2t+1;  c2 c3 = the same of row g+8
 *     A[16 x 16]: a0 = row g, columns 2t 2t+1;  a1 = row g+8;  a2 a3 = the same rows, columns 2t+8 2t+9
 *     B[16 x 8]:  b0 = rows 2t 2t+1, column g;  b1 = rows 2t+8 2t+9
 * so two neighbouring C tiles, rounded to bf16, are an A tile. */
#ifndef PB_ATTENTION_MMA_CUH
#define PB_ATTENTION_MMA_CUH
#include "kernels/core/copy_async.cuh"

/* Four 8 x 8 matrices; lane l gives the address of row l%8 of matrix l/8. */
__device__ static inline void ldmatrix(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row)));
}
__device__ static inline void ldmatrix_transposed(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(smem_address(row)));
}

/* c += a b */
__device__ static inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 2^x to 2 ulp; 0 for -inf. */
__device__ static inline float exp2_fast(float x)
{
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
#endif
