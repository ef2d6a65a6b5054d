/* tensor_map.cuh - makes the TMA descriptor (tensor map) of a matrix or of the heads of attention. It is made on the
 * host and passed to kernels by value, so that a recorded graph contains it. */
#ifndef PB_TENSOR_MAP_CUH
#define PB_TENSOR_MAP_CUH
#include <cuda.h>

#include "kernels/cuda/cuda.cuh"

/* Describes p with four dimensions, the innermost first; `stride` are the bytes of one step in dimensions 1 to 3, `box`
 * is what a load copies. Elements outside the dimensions are read as zeros. */
static inline pb_status tensor_map_of(CUtensorMap *out, CUtensorMapDataType type, const void *p,
                                      const cuuint64_t (&dim)[4], const cuuint64_t (&stride)[3],
                                      const cuuint32_t (&box)[4], CUtensorMapSwizzle swizzle)
{
    typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                               const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                               CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const cuuint32_t step[4] = {1, 1, 1, 1};
    void *encode = NULL;
    cudaDriverEntryPointQueryResult found;
    PB_CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
        return pb_fail(PB_EUNSUPPORTED, "cuda: the driver lacks cuTensorMapEncodeTiled; update the driver");
    const CUresult r =
        ((encode_fn *)encode)(out, type, 4, (void *)p, dim, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r == CUDA_SUCCESS) return PB_OK;
    return pb_fail(PB_EDEVICE,
                   "cuda: cuTensorMapEncodeTiled failed for dimensions %llu, %llu, %llu, %llu and stride %llu of "
                   "dimension 2: driver error %d",
                   (unsigned long long)dim[0], (unsigned long long)dim[1], (unsigned long long)dim[2],
                   (unsigned long long)dim[3], (unsigned long long)stride[1], (int)r);
}

/* Describes p, bf16 [B,S,heads,D], tokens ld elements apart; D and ld are multiples of 8. A load copies a box of 64
 * columns of one head of `rows` <= 256 tokens. Columns outside [0,D) and tokens outside [0,S) are read as zeros. */
static inline pb_status tensor_map(CUtensorMap *out, const void *p, size_t ld, int B, int S, int heads, int D, int rows)
{
    return tensor_map_of(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, p,
                         {(cuuint64_t)D, (cuuint64_t)heads, (cuuint64_t)S, (cuuint64_t)B},
                         {(cuuint64_t)D * 2, (cuuint64_t)ld * 2, (cuuint64_t)ld * S * 2}, {64, 1, (cuuint32_t)rows, 1},
                         CU_TENSOR_MAP_SWIZZLE_128B);
}

/* Describes a matrix of bytes [rows,columns]; columns is a multiple of 16. A load copies a box of box_rows <= 256 rows
 * of box_columns bytes, 32 or 64. It swizzles them over units of 16 bytes: unit c of row r is stored at unit c ^ r/4%2
 * of the row with box_columns 32, at c ^ r/2%4 with 64. Bytes outside the matrix are read as zeros. The coordinates of
 * tma_load are (column, 0, row, 0). */
static inline pb_status tensor_map_bytes(CUtensorMap *out, const void *p, int rows, int columns, int box_rows,
                                         int box_columns)
{
    return tensor_map_of(out, CU_TENSOR_MAP_DATA_TYPE_UINT8, p, {(cuuint64_t)columns, 1, (cuuint64_t)rows, 1},
                         {(cuuint64_t)columns, (cuuint64_t)columns, (cuuint64_t)columns * (cuuint64_t)rows},
                         {(cuuint32_t)box_columns, 1, (cuuint32_t)box_rows, 1},
                         box_columns == 32 ? CU_TENSOR_MAP_SWIZZLE_32B : CU_TENSOR_MAP_SWIZZLE_64B);
}
#endif
