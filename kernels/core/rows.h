/* rows.h - sharing rows among threads, and adding up what each thread summed, in an order that does not
 * depend on the number of threads.
 *
 * A column sum over rows (dw of a norm, dbias) is cut into at most PB_DW_PARTS runs of consecutive rows;
 * each run is summed into its own row of a workspace and the runs are added in order. */
#ifndef PB_ROWS_H
#define PB_ROWS_H
#include <stddef.h>
#include <string.h>

enum { PB_DW_PARTS = 64 };

/* Runs for a sum over `rows` rows: one per 32 rows, at most PB_DW_PARTS, at least 1. */
static inline int pb_dw_parts(size_t rows)
{
    size_t parts = (rows + 31) / 32;
    return (int)(parts < 1 ? 1 : parts > PB_DW_PARTS ? PB_DW_PARTS : parts);
}
static inline size_t pb_dw_workspace(size_t rows, int D)
{
    return (size_t)pb_dw_parts(rows) * (size_t)D * sizeof(float);
}
/* Rows [first, end) of run i. */
static inline size_t pb_dw_first(size_t rows, int parts, int i) { return rows * (size_t)i / (size_t)parts; }

/* sum[d] = the parts' rows added in order, onto what is there when accumulate. */
static inline void pb_dw_finish(float *sum, const float *parts, int n, int D, int accumulate)
{
    enum { W = 256 }; /* columns at a time, so that the parts are read along their rows */
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
