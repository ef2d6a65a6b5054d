/* blas_choice.h - which of the algorithms that cuBLASLt offers for a matrix product is taken. The first one is what its
 * heuristic expects to be the fastest. On an H200 at its power limit, kernels with the ping-pong schedule (two groups
 * of warps work on different tiles, so one computes while the other writes) are faster than those with the cooperative
 * schedule (all warps work on one tile) if the sum has few terms, because then a larger part of the time goes into
 * writing the tile. kernels/linear/DESIGN.md has the measurements. */
#ifndef PB_CUDA_BLAS_CHOICE_H
#define PB_CUDA_BLAS_CHOICE_H
#include <stdbool.h>

/* An algorithm that cuBLASLt offers: the tile of the output that a CTA computes. */
typedef struct pb_blas_offer {
    int rows, cols; /* of the tile; 0: a tile that this file has no rate for */
    bool ping_pong;
    bool split_k;
} pb_blas_offer;

/* Products with more terms in a sum, or fewer FLOPs, are left to the heuristic. With more terms, whole training steps
 * did not become faster; smaller products were not tried in steps. */
enum { PB_BLAS_SHORT_SUM = 2048 };
static const double pb_blas_worth_choosing = 2e9;
/* About the rate of the heuristic's cooperative kernel over that of the best ping-pong kernel, in large products. */
static const double pb_blas_cooperative_rate = 0.93;

/* Returns the share of the SMs' time in which they compute elements of a rows x cols output, if each of `sms` SMs
 * computes one tile after the other and all tiles take the same time. */
static inline double pb_blas_busy(int rows, int cols, int tile_rows, int tile_cols, int sms)
{
    const long down = (rows + tile_rows - 1) / tile_rows, across = (cols + tile_cols - 1) / tile_cols;
    const long waves = (down * across + sms - 1) / sms;
    return (double)rows * cols / ((double)waves * sms * tile_rows * tile_cols);
}

/* Returns about the rate of a ping-pong kernel over that of the fastest one, in products of many tiles: small tiles
 * read each operand more often. Estimated from products on one H200. 0: no estimate. */
static inline double pb_blas_rate(const pb_blas_offer *o)
{
    const int area = o->rows * o->cols;
    if (!o->ping_pong || o->split_k || area < 96 * 128) return 0;
    return area >= 128 * 160 ? 1.0 : area >= 128 * 128 ? 0.985 : area >= 112 * 128 ? 0.97 : 0.95;
}

/* Returns the index of the offer to take for an output of rows x cols, sums of `terms` terms and n > 0 offers: a
 * ping-pong kernel if it should be faster than offers[0], else 0. */
static inline int pb_blas_choice(const pb_blas_offer *offers, int n, int rows, int cols, int terms, int sms)
{
    int best = 0;
    double score = pb_blas_cooperative_rate;
    if (terms > PB_BLAS_SHORT_SUM || 2.0 * rows * cols * terms < pb_blas_worth_choosing || offers[0].split_k) return 0;
    for (int i = 0; i < n; i++) {
        if (offers[i].rows < 1 || offers[i].cols < 1) continue;
        const double s = pb_blas_rate(&offers[i]) * pb_blas_busy(rows, cols, offers[i].rows, offers[i].cols, sms);
        if (s > score) score = s, best = i;
    }
    return best;
}
#endif
