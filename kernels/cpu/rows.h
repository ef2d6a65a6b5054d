/* rows.h - column sums over rows (dw of a norm, dbias) whose order of summation does not depend on the number of
 * threads.
 *
 * The rows are divided into at most PB_DW_PARTS ranges of consecutive rows, called parts. Each part is summed into its
 * own row of a workspace [parts, D]. Then the partial sums are added in the order of the parts. */
#ifndef PB_ROWS_H
#define PB_ROWS_H
#include <stddef.h>
#include <string.h>

enum { PB_DW_PARTS = 64 };

/* Returns the number of parts for `rows` rows: one per 32 rows, at least 1, at most PB_DW_PARTS. */
static inline int pb_dw_parts(size_t rows)
{
    const size_t parts = (rows + 31) / 32, most = PB_DW_PARTS;
    return (int)(parts < 1 ? 1 : parts > most ? most : parts);
}
static inline size_t pb_dw_workspace(size_t rows, int D)
{
    return (size_t)pb_dw_parts(rows) * (size_t)D * sizeof(float);
}
/* Returns the first row of part i. Part i ends where part i + 1 begins. */
static inline size_t pb_dw_first(size_t rows, int parts, int i) { return rows * (size_t)i / (size_t)parts; }

/* Adds the partial sums of each column in order: sum[d] = their sum; with `accumulate`, sum[d] += their sum. */
static inline void pb_dw_finish(float *sum, const float *parts, int n, int D, int accumulate)
{
    enum { W = 256 }; /* columns per block, so that reads of `parts` are contiguous */
    for (int d0 = 0; d0 < D; d0 += W) {
        float s[W];
        const int w = D - d0 < W ? D - d0 : W;
        memcpy(s, parts + d0, (size_t)w * sizeof *s);
        for (int i = 1; i < n; i++)
            for (int d = 0; d < w; d++) s[d] += parts[(size_t)i * (size_t)D + (size_t)(d0 + d)];
        for (int d = 0; d < w; d++) sum[d0 + d] = accumulate ? sum[d0 + d] + s[d] : s[d];
    }
}
#endif
