/* wgmma_tiles.cuh - for the wgmma kernels of attention: TMA loads of tiles, and the two kinds of product, for tiles of any
 * number of rows. The layout of tiles is that of cuda/wgmma.cuh. */
#ifndef PB_ATTENTION_WGMMA_TILES_CUH
#define PB_ATTENTION_WGMMA_TILES_CUH
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/wgmma.cuh"

#ifdef PB_SM90_CODE
/* Position in a ring of stages, with the parity of the mbarrier phase to wait for. */
template <int STAGES> struct stage_ring {
    int stage = 0;
    uint32_t parity = 0;
    __device__ void next(void)
    {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    }
};

/* Starts the TMA load of ROWS tokens from `token` on, all D columns. Its bytes count on mbarrier `full`, which must have
 * been told to expect them. */
template <int D, int ROWS>
__device__ static inline void load_tile(__nv_bfloat16 *to, const CUtensorMap *map, uint64_t *full, int head, int token,
                                        int b)
{
#pragma unroll
    for (int half = 0; half < D / 64; half++) tma_load(to + half * ROWS * 64, map, full, half * 64, head, token, b);
}

/* Starts c = x y^T, or c += x y^T with ADD, as one wgmma group. x: 64 rows of a tile of X_ROWS rows; y: a tile of Y_ROWS
 * rows. Both have D columns and are read K-major. */
template <int D, int X_ROWS, int Y_ROWS, bool ADD = false>
__device__ static inline void start_dots(float (&c)[Y_ROWS / 8][4], operand_desc x, operand_desc y)
{
#pragma unroll
    for (int d = 0; d < D / 16; d++)
        wgmma<0, 0>(c, advance_desc(x, d / 4 * X_ROWS * 128 + d % 4 * 32),
                    advance_desc(y, d / 4 * Y_ROWS * 128 + d % 4 * 32), ADD || d > 0);
    wgmma_commit();
}

/* Starts c += w y as one wgmma group. w: weights in registers; y: a tile of 16 K rows and D columns, read MN-major. */
template <int D, int K>
__device__ static inline void start_weighted_sum(float (&c)[D / 8][4], const uint32_t (&w)[K][4], operand_desc y)
{
#pragma unroll
    for (int k = 0; k < K; k++) wgmma(c, w[k], advance_desc(y, k * 16 * 128));
    wgmma_commit();
}
#endif
#endif
