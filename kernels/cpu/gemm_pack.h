/* gemm_pack.h - packing: converts a block of an operand (f32, bf16 or NF4, either orientation) to f32 panels [k][width]
 * that an inner kernel reads sequentially.
 *
 * Stores write whole vectors in rising order of k. If a panel's width is not a multiple of a vector, each store
 * overwrites the excess of the previous one. So up to PB_VLEN - 1 floats after a panel's last row are garbage. */
#ifndef PB_GEMM_PACK_H
#define PB_GEMM_PACK_H
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/nf4_decode.h"
#include "kernels/cpu/simd.h"

typedef enum source { FROM_F32, FROM_BF16, FROM_NF4 } source;

static inline source source_of(const pb_mat *m)
{
    return m->nf4 ? FROM_NF4 : m->dtype == PB_BF16 ? FROM_BF16 : FROM_F32;
}

/* ---- reading an operand that is stored as NF4 ------------------------------------------------- */

/* Loads n <= PB_VLEN values, from element e on; the other lanes are 0. */
static inline vf nf4_fetch(const pb_mat *m, size_t e, int n)
{
    const uint8_t *q = m->p;
    const size_t block = (size_t)m->nf4->block; /* a power of two: no division per vector */
    if (n == PB_VLEN && e % 2 == 0 && (e & (block - 1)) + PB_VLEN <= block)
        return pb_nf4_levels(q + e / 2) * pb_nf4_scale(m->nf4, e >> __builtin_ctzll(block));
    vf v = {0};
    for (int i = 0; i < n; i++) v[i] = pb_nf4_value(q, m->nf4, e + i);
    return v;
}

/* ---- loading vectors of any element type, and transposing them -------------------------------- */

/* Loads n <= PB_VLEN consecutive elements of a stored row; the other lanes are 0. */
PB_INLINE vf fetch(source s, const pb_mat *m, size_t row, size_t col, int n)
{
    const size_t e = row * m->ld + col;
    if (s == FROM_NF4) return nf4_fetch(m, e, n);
    const pb_dtype t = s == FROM_BF16 ? PB_BF16 : PB_F32;
    return n == PB_VLEN ? vf_load(m->p, e, t) : vf_load_n(m->p, e, t, (size_t)n);
}

/* Interleave the lower (or the upper) halves of two vectors: a0 b0 a1 b1 ... */
#if defined(__AVX512F__)
#define PB_ZIP_LOW(a, b)  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PB_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif defined(__AVX__)
#define PB_ZIP_LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define PB_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define PB_ZIP_LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define PB_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Transposes PB_VLEN vectors in place. Interleaving vector i with vector i + PB_VLEN/2 rotates the bits of an element's
 * index (row, column) left by one. After log2(PB_VLEN) rounds, row and column are exchanged. */
PB_INLINE void transpose(vf v[PB_VLEN])
{
#pragma GCC unroll 4
    for (int round = 1; round < PB_VLEN; round *= 2) {
        vf t[PB_VLEN];
#pragma GCC unroll 8
        for (int i = 0; i < PB_VLEN / 2; i++) {
            t[2 * i] = PB_ZIP_LOW(v[i], v[i + PB_VLEN / 2]);
            t[2 * i + 1] = PB_ZIP_HIGH(v[i], v[i + PB_VLEN / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < PB_VLEN; i++) v[i] = t[i];
    }
}

/* ---- packing an operand whose stored rows run along K, or across K ----------------------------- */

/* Packs an operand whose stored rows run along K: to[k*ld + r] = m[row + r][col + k] for r < rows <= PB_VLEN, k <
 * cols. */
PB_INLINE void pack_across(source s, float *to, size_t ld, const pb_mat *m, size_t row, int rows, size_t col, int cols)
{
    for (int k = 0; k < cols; k += PB_VLEN) {
        const int n = cols - k < PB_VLEN ? cols - k : PB_VLEN;
        vf v[PB_VLEN];
        if (n == PB_VLEN) {
#pragma GCC unroll 16
            for (int r = 0; r < PB_VLEN; r++) /* lanes r >= rows repeat the last row */
                v[r] = fetch(s, m, row + (r < rows ? r : rows - 1), col + k, PB_VLEN);
        } else {
            for (int r = 0; r < PB_VLEN; r++) v[r] = fetch(s, m, row + (r < rows ? r : rows - 1), col + k, n);
        }
        transpose(v);
        if (n == PB_VLEN) {
#pragma GCC unroll 16
            for (int i = 0; i < PB_VLEN; i++) vf_store(to, (size_t)(k + i) * ld, PB_F32, v[i]);
        } else {
            for (int i = 0; i < n; i++) vf_store(to, (size_t)(k + i) * ld, PB_F32, v[i]);
        }
    }
}

/* A run of up to PB_VLEN rows of A, or columns of B, inside a panel. */
typedef struct lanes {
    float *to; /* element (k, r) goes to to[k*ld + r] */
    size_t ld;
    int first, width; /* index of the first lane in the whole operand; number of lanes */
} lanes;

/* Packs an operand whose stored rows run across K: rows k .. k+kc-1, the columns of n neighbouring runs of lanes. All
 * runs are packed together, so that a stored row is read once, left to right. Software prefetch: rows are too far apart
 * for the hardware prefetcher. `all` is the number of columns of the operand. */
PB_INLINE void pack_along(source s, const lanes *l, int n, const pb_mat *m, int all, int k, int kc)
{
    enum { AHEAD = 16 };
    const size_t bytes = s == FROM_F32 ? 4 : 2;
    for (int i = 0; i < kc; i++)
        for (int v = 0; v < n; v++) {
            const int width = all - l[v].first < PB_VLEN ? l[v].width : PB_VLEN;
            if (s != FROM_NF4)
                __builtin_prefetch((const unsigned char *)m->p +
                                   ((size_t)(k + i + AHEAD) * m->ld + l[v].first) * bytes);
            vf_store(l[v].to, (size_t)i * l[v].ld, PB_F32, fetch(s, m, (size_t)(k + i), (size_t)l[v].first, width));
        }
}

PB_INLINE void pack_from(source s, const lanes *l, int n, const pb_mat *m, bool across, int all, int k, int kc)
{
    if (!across) pack_along(s, l, n, m, all, k, kc);
    else
        for (int v = 0; v < n; v++) pack_across(s, l[v].to, l[v].ld, m, (size_t)l[v].first, l[v].width, (size_t)k, kc);
}

/* Packs n runs of lanes and kc terms of K, from k on. `all` is the number of lanes of the operand. `across`: the stored
 * rows run along K. */
static void pack_lanes(const lanes *l, int n, const pb_mat *m, bool across, int all, int k, int kc)
{
    switch (source_of(m)) {
    case FROM_F32: pack_from(FROM_F32, l, n, m, across, all, k, kc); break;
    case FROM_BF16: pack_from(FROM_BF16, l, n, m, across, all, k, kc); break;
    case FROM_NF4: pack_from(FROM_NF4, l, n, m, across, all, k, kc); break;
    }
}
#endif
