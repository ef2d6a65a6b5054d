/* embedding_fast.c - vectorised table lookup and its gradient. Limited by memory bandwidth.
 *
 * Forward: each thread copies the rows of its tokens. Backward: thread i owns the table rows v with v % threads == i;
 * neighbouring ids have similar frequency, so the load is balanced. Each thread reads all ids in order and adds the
 * tokens whose row it owns. This needs no atomics, and every row is summed in ascending t for any number of threads. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/threads.h"
#include "kernels/embedding/embedding.h"

static inline bool inside(int32_t id, int V) { return id >= 0 && id < V; }

/* Rows are at random addresses, which the hardware cannot predict. While line i of a row is processed, line i of
 * the next row is prefetched. */
static inline void prefetch(const void *p, size_t byte) { __builtin_prefetch((const unsigned char *)p + byte, 0, 3); }

/* Copies a row of whole vectors with streaming stores. */
static inline void stream_row(void *to, const void *from, const void *next, size_t bytes)
{
    for (size_t i = 0; i < bytes / 4; i += PB_VLEN) {
        prefetch(next, 4 * i);
        vf_stream(to, i, PB_F32, vf_load(from, i, PB_F32));
    }
}

static inline void nan_row(void *y, size_t row, int D, pb_dtype t)
{
    for (int d = 0; d < D; d++) pb_store(y, row + d, t, (double)NAN);
}

pb_status PB_FAST(pb_embedding_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_embedding_fwd_args *a = args;
    const size_t row_bytes = a->D * pb_dtype_size(a->dtype);
    const bool stream = pb_should_stream(a->y, a->T * row_bytes, row_bytes);
    (void)ctx;
#pragma omp parallel if (a->T * row_bytes > 65536)
    {
#pragma omp for schedule(static)
        for (int r = 0; r < a->T; r++) {
            unsigned char *to = (unsigned char *)a->y + (size_t)r * row_bytes;
            const unsigned char *from = (const unsigned char *)a->table + (size_t)a->ids[r] * row_bytes;
            const bool more = r + 1 < a->T && inside(a->ids[r + 1], a->V);
            const void *next = more ? (const unsigned char *)a->table + (size_t)a->ids[r + 1] * row_bytes : from;
            if (!inside(a->ids[r], a->V)) nan_row(a->y, (size_t)r * a->D, a->D, a->dtype);
            else if (stream) stream_row(to, from, next, row_bytes);
            else memcpy(to, from, row_bytes);
        }
        pb_stream_fence();
    }
    return PB_OK;
}

/* Adds a row of dy to a row of f32. */
PB_INLINE void add_row(float *to, const void *dy, size_t row, int D, const void *next, pb_dtype t)
{
    int d = 0;
    for (; d + PB_VLEN <= D; d += PB_VLEN) {
        prefetch(next, (size_t)d * sizeof *to);
        vf_store(to, d, PB_F32, vf_load(to, d, PB_F32) + vf_load(dy, row + d, t));
    }
    if (d < D) vf_put(to, d, PB_F32, vf_get(to, d, PB_F32, D - d) + vf_get(dy, row + d, t, D - d), D - d);
}

/* Returns the first token from t on whose table row this thread owns; T if no further token has one. */
static inline int next_mine(const pb_embedding_bwd_args *a, int t, int threads, int me)
{
    while (t < a->T && !(inside(a->ids[t], a->V) && a->ids[t] % threads == me)) t++;
    return t;
}

/* Adds the tokens of thread `me` to a table in f32. */
static void add_tokens(const pb_embedding_bwd_args *a, int threads, int me)
{
    const size_t D = (size_t)a->D;
    float *table = a->dtable;
    for (int t = next_mine(a, 0, threads, me), after; t < a->T; t = after) {
        after = next_mine(a, t + 1, threads, me);
        const float *next = table + (size_t)a->ids[after < a->T ? after : t] * D;
        PB_PER_DTYPE(a->dtype, add_row, table + (size_t)a->ids[t] * D, a->dy, (size_t)t * D, a->D, next);
    }
}

static bool seen_before(const int32_t *ids, int t)
{
    int u = 0;
    while (ids[u] != ids[t]) u++;
    return u < t;
}

/* Adds the tokens of thread `me` to a table in bf16: all tokens of a row to `sum` [D], which is rounded once. For each
 * row all ids are searched for its tokens, so the time grows with the square of the number of tokens. */
static void add_rows(const pb_embedding_bwd_args *a, int threads, int me, float *sum)
{
    const size_t D = (size_t)a->D;
    for (int t = next_mine(a, 0, threads, me); t < a->T; t = next_mine(a, t + 1, threads, me)) {
        const size_t at = (size_t)a->ids[t] * D;
        if (seen_before(a->ids, t)) continue;
        for (size_t d = 0; d < D; d++) sum[d] = (float)pb_load(a->dtable, at + d, PB_BF16);
        for (int u = t; u < a->T; u++)
            if (a->ids[u] == a->ids[t]) PB_PER_DTYPE(a->dtype, add_row, sum, a->dy, (size_t)u * D, a->D, sum);
        for (size_t d = 0; d < D; d++) pb_store(a->dtable, at + d, PB_BF16, (double)sum[d]);
    }
}

pb_status PB_FAST(pb_embedding_bwd)(pb_ctx *ctx, const void *args)
{
    const pb_embedding_bwd_args *a = args;
    const size_t D = a->D, V = a->V, e = pb_dtype_size(a->table_dtype), each = a->table_dtype == PB_F32 ? 0 : D;
    float *sums = ctx->scratch; /* [threads,D] of a table in bf16 */
#pragma omp parallel num_threads(pb_threads_for(ctx, 0, each)) if ((a->accumulate ? 0 : V * D) + a->T * D > 8192)
    {
        const int threads = omp_get_num_threads(), me = omp_get_thread_num();
        if (!a->accumulate) {
            size_t first = V * me / threads, end = V * (me + 1) / threads;
            memset((unsigned char *)a->dtable + first * D * e, 0, (end - first) * D * e);
#pragma omp barrier
        }
        if (a->table_dtype == PB_F32) add_tokens(a, threads, me);
        else add_rows(a, threads, me, sums + (size_t)me * each);
    }
    return PB_OK;
}
