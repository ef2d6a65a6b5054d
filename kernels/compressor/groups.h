/* groups.h - index arithmetic of the compressor (softmax-gated pooling of tokens): its rows, the candidates of each
 * row, and tokens that no row pools. */
#ifndef PB_COMPRESSOR_GROUPS_H
#define PB_COMPRESSOR_GROUPS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef PB_COMPRESSOR_FN /* compressor.cu defines it to add __host__ __device__ */
#define PB_COMPRESSOR_FN static inline
#endif

typedef struct pb_groups {
    size_t rows; /* B G */
    int S, D, C; /* tokens per sequence; channels; columns of a and z */
    /* G: groups per sequence. ratio: tokens per group. n: candidates per row; with overlap the first `ratio` of them
     * are the previous group's. */
    int G, ratio, n;
    bool overlap;
} pb_groups;

PB_COMPRESSOR_FN pb_groups pb_groups_of(int B, int S, int D, int ratio, bool overlap)
{
    pb_groups s = {0};
    s.S = S, s.D = D, s.ratio = ratio, s.overlap = overlap;
    s.C = overlap ? 2 * D : D, s.n = overlap ? 2 * ratio : ratio;
    s.G = S / ratio, s.rows = (size_t)B * (size_t)s.G;
    return s;
}

/* Returns the first candidate of row (b,g) that is not masked: 0 or `ratio`. */
PB_COMPRESSOR_FN int pb_group_from(const pb_groups *s, const int32_t *start, int b, int g)
{
    if (!s->overlap) return 0;
    if (g == 0) return s->ratio;
    return start && (g - 1) * s->ratio < start[(size_t)b * (size_t)s->S + (size_t)g * (size_t)s->ratio] ? s->ratio : 0;
}

/* pb_group_first_used returns true if some row pools the first D columns of the tokens of group g, pb_group_second_used
 * if some row pools the other D columns, which exist with overlap only. g = G means the tokens after the last group. */
PB_COMPRESSOR_FN bool pb_group_first_used(const pb_groups *s, const int32_t *start, int b, int g)
{
    return s->overlap ? g + 1 < s->G && pb_group_from(s, start, b, g + 1) == 0 : g < s->G;
}
PB_COMPRESSOR_FN bool pb_group_second_used(const pb_groups *s, int g) { return s->overlap && g < s->G; }

#endif
