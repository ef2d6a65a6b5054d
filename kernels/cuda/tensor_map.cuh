/* tensor_map.cuh - makes the TMA descriptor (tensor map) of a matrix or of the heads of attention. It is made on the
 * host and passed to kernels by value, so that a recorded graph contains it. */
#ifndef PB_TENSOR_MAP_CUH
#define PB_TENSOR_MAP_CUH
#include <cuda.h>

#include "kernels/cuda/cuda.cuh"

/* Describes p, bf16 [B,S,heads,D], tokens ld elements apart; D and ld are multiples of 8. A load copies a box of 64
 * columns of one head of `rows` <= 256 tokens. Columns outside [0,D) and tokens outside [0,S) are read as zeros. */
static inline pb_status tensor_map(CUtensorMap *out, const void *p, size_t ld, int B, int S, int heads, int D, int rows)
{
    typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                               const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                               CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const cuuint64_t dim[4] = {(cuuint64_t)D, (cuuint64_t)heads, (cuuint64_t)S, (cuuint64_t)B};
    const cuuint64_t stride[3] = {(cuuint64_t)D * 2, (cuuint64_t)ld * 2, (cuuint64_t)ld * S * 2}; /* bytes; dim 1..3 */
    const cuuint32_t box[4] = {64, 1, (cuuint32_t)rows, 1}, step[4] = {1, 1, 1, 1};
    void *encode = NULL;
    cudaDriverEntryPointQueryResult found;
    PB_CUDA_TRY(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
    if (found != cudaDriverEntryPointSuccess)
        return pb_fail(PB_EUNSUPPORTED, "cuda: the driver lacks cuTensorMapEncodeTiled; update the driver");
    const CUresult r = ((encode_fn *)encode)(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)p, dim, stride, box,
                                             step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r == CUDA_SUCCESS) return PB_OK;
    return pb_fail(PB_EDEVICE,
                   "cuda: cuTensorMapEncodeTiled failed for B=%d S=%d heads=%d D=%d ld=%zu: driver error %d", B, S,
                   heads, D, ld, (int)r);
}
#endif
