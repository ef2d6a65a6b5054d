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

enum { PB_BLAS_SHORT_SUM = 2048 };                /* terms: with longer sums too, whole steps did not get faster */
static const double pb_blas_worth_choosing = 2e9; /* FLOPs: smaller products are left to the heuristic */
static const double pb_blas_cooperative_share =
    0.93; /* time of the best ping-pong kernel over the heuristic's, large products */

/* Returns the share of the SMs' time in which they compute elements of a rows x cols output, if each of `sms` SMs
 * computes one tile after the other and all tiles take the same time. */
static inline double pb_blas_busy(int rows, int cols, int tile_rows, int tile_cols, int sms)
{
    const long down = (rows + tile_rows - 1) / tile_rows, across = (cols + tile_cols - 1) / tile_cols;
    const long rounds = (down * across + sms - 1) / sms;
    return (double)rows * cols / ((double)rounds * sms * tile_rows * tile_cols);
}

/* Returns the rate of a ping-pong kernel over that of the best one, measured on products of many tiles: small tiles
 * read each operand more often. 0: not measured. */
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
    double score = pb_blas_cooperative_share;
    if (terms > PB_BLAS_SHORT_SUM || 2.0 * rows * cols * terms < pb_blas_worth_choosing || offers[0].split_k) return 0;
    for (int i = 0; i < n; i++) {
        if (offers[i].rows < 1 || offers[i].cols < 1) continue;
        const double s = pb_blas_rate(&offers[i]) * pb_blas_busy(rows, cols, offers[i].rows, offers[i].cols, sms);
        if (s > score) score = s, best = i;
    }
    return best;
}
#endif
