/* tile.h - small f32 tiles for attention_fast.c: the matrix product that both passes consist of, transposing a tile,
 * and reading a tile from a strided tensor of f32 or bf16. */
#ifndef PB_ATTENTION_TILE_H
#define PB_ATTENTION_TILE_H
#include <stdbool.h>

#include "kernels/cpu/simd.h"

/* A product keeps ROWS x COLS vectors of its result in registers: enough independent sums to hide the latency of fma on
 * two ports, and fewer loads than multiplications per step. */
enum { ROWS = PB_VLEN == 8 ? 6 : 4, COLS = PB_VLEN == 16 ? 4 : 2 };

/* A product of tiles: c[m][n] (+)= sum_k A(m,k) b[k][n], where A(m,k) = a[m*lda + k], or a[k*lda + m] when
 * `transposed`. `add`: add to c instead of overwriting it. N is a multiple of PB_VLEN, M and K are any size. */
typedef struct product {
    int M, N, K;
    const float *a, *b;
    float *c;
    size_t lda, ldb, ldc;
    bool transposed, add;
} product;

PB_INLINE void micro(const product *p, const int rows, const int cols, const bool transposed, size_t m, size_t n)
{
    const size_t row = transposed ? 1 : p->lda, step = transposed ? p->lda : 1;
    const float *a = p->a + m * row, *b = p->b + n;
    float *c = p->c + m * p->ldc + n;
    vf sum[ROWS][COLS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < cols; v++) sum[r][v] = p->add ? vf_load(c, r * p->ldc + v * PB_VLEN, PB_F32) : (vf){0};
    for (int k = 0; k < p->K; k++, a += step, b += p->ldb) {
        vf x[COLS];
        for (int v = 0; v < cols; v++) x[v] = vf_load(b, v * PB_VLEN, PB_F32);
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < cols; v++) sum[r][v] += x[v] * a[r * row];
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < cols; v++) vf_store(c, r * p->ldc + v * PB_VLEN, PB_F32, sum[r][v]);
}

PB_INLINE void strip(const product *p, const int cols, const bool transposed, size_t n)
{
    int m = 0;
    for (; m + ROWS <= p->M; m += ROWS) micro(p, ROWS, cols, transposed, m, n);
    for (; m + 4 <= p->M; m += 4) micro(p, 4, cols, transposed, m, n);
    for (; m < p->M; m++) micro(p, 1, cols, transposed, m, n);
}

PB_INLINE void strips(const product *p, const bool transposed)
{
    for (int n = 0; n < p->N; n += COLS * PB_VLEN) switch ((p->N - n) / PB_VLEN) {
        case 1: strip(p, 1, transposed, n); break;
#if defined(__AVX512F__)
        case 2: strip(p, 2, transposed, n); break;
        case 3: strip(p, 3, transposed, n); break;
#endif
        default: strip(p, COLS, transposed, n);
        }
}

static void multiply(const product *p)
{
    if (p->transposed) strips(p, true);
    else strips(p, false);
}

/* Like multiply, with the same order of sums, but a weight of 0 contributes nothing, not even 0 * NaN. It is needed for
 * tiles in which a masked key holds a NaN or an infinity. The weights are b when `transposed`, else A. */
static inline void multiply_unmasked(const product *p)
{
    const size_t row = p->transposed ? 1 : p->lda, step = p->transposed ? p->lda : 1;
    for (int m = 0; m < p->M; m++)
        for (int n = 0; n < p->N; n += PB_VLEN) {
            vf sum = p->add ? vf_load(p->c, m * p->ldc + n, PB_F32) : (vf){0};
            for (int k = 0; k < p->K; k++) {
                const float a = p->a[m * row + k * step];
                const vf b = vf_load(p->b, k * p->ldb + n, PB_F32);
                vf weight = b;
                if (!p->transposed) weight = vf_set(a);
                sum = vf_select(weight != 0.0f, sum + b * a, sum);
            }
            vf_store(p->c, m * p->ldc + n, PB_F32, sum);
        }
}

/* ---- transposing PB_VLEN vectors of PB_VLEN floats: log2(PB_VLEN) stages that swap w-wide halves --------------- */

#define LOW(i, w)       ((i) & (w) ? PB_VLEN + (i) - (w) : (i))
#define HIGH(i, w)      ((i) & (w) ? PB_VLEN + (i) : (i) + (w))
#define LANES4(F, i, w) F(i, w), F((i) + 1, w), F((i) + 2, w), F((i) + 3, w)
#if defined(__AVX512F__)
#define LANES(F, w) LANES4(F, 0, w), LANES4(F, 4, w), LANES4(F, 8, w), LANES4(F, 12, w)
#elif defined(__AVX__)
#define LANES(F, w) LANES4(F, 0, w), LANES4(F, 4, w)
#else
#define LANES(F, w) LANES4(F, 0, w)
#endif
#define SWAP(x, w)                                                                                                     \
    for (int i = 0; i < PB_VLEN; i++)                                                                                  \
        if (!(i & (w))) {                                                                                              \
            const vf a = x[i], b = x[i + (w)];                                                                         \
            x[i] = __builtin_shufflevector(a, b, LANES(LOW, w));                                                       \
            x[i + (w)] = __builtin_shufflevector(a, b, LANES(HIGH, w));                                                \
        }

PB_INLINE void turn(vf *x)
{
    SWAP(x, 1)
    SWAP(x, 2)
#if defined(__AVX__)
    SWAP(x, 4)
#endif
#if defined(__AVX512F__)
    SWAP(x, 8)
#endif
}
#undef SWAP
#undef LANES
#undef LANES4
#undef HIGH
#undef LOW

/* Like vf_get and vf_put, but for any n: n <= 0 loads zeros or stores nothing; n > PB_VLEN counts as PB_VLEN. */
PB_INLINE vf load_some(const void *p, size_t i, pb_dtype t, int n)
{
    return n > 0 ? vf_get(p, i, t, n < PB_VLEN ? n : PB_VLEN) : vf_set(0);
}

PB_INLINE void store_some(void *p, size_t i, pb_dtype t, vf v, int n)
{
    if (n > 0) vf_put(p, i, t, v, n < PB_VLEN ? n : PB_VLEN);
}

/* ---- between strided tensors and f32 tiles ------------------------------------------------------------ */

/* Rows of a tensor: element (r,c) is x[at + r*ld + c]. */
typedef struct rows {
    const void *x;
    size_t at, ld;
    pb_dtype dtype;
} rows;

/* Loads rows of x, transposed: to[c][r] = scale * x(r,c) for r < n; 0 for n <= r < wide, a multiple of PB_VLEN. */
static void load_transposed(float *to, size_t ldto, int wide, const rows *x, int n, int D, float scale)
{
    for (int r = 0; r < wide; r += PB_VLEN)
        for (int c = 0; c < D; c += PB_VLEN) {
            vf v[PB_VLEN];
            for (int i = 0; i < PB_VLEN; i++)
                v[i] = load_some(x->x, x->at + (r + i) * x->ld + c, x->dtype, r + i < n ? D - c : 0);
            turn(v);
            for (int i = 0; i < PB_VLEN && c + i < D; i++) vf_store(to, (c + i) * ldto + r, PB_F32, v[i] * scale);
        }
}

/* Stores a transposed tile to rows of x: x(r,c) = from[c][r] * scale[r] for r < n. */
static inline void store_transposed(const float *from, size_t ldfrom, const float *scale, const rows *x, int n, int D)
{
    for (int r = 0; r < n; r += PB_VLEN)
        for (int c = 0; c < D; c += PB_VLEN) {
            vf v[PB_VLEN];
            for (int i = 0; i < PB_VLEN; i++)
                v[i] =
                    load_some(from, (c + i) * ldfrom + r, PB_F32, c + i < D ? PB_VLEN : 0) * vf_load(scale, r, PB_F32);
            turn(v);
            for (int i = 0; i < PB_VLEN && r + i < n; i++)
                store_some((void *)x->x, x->at + (r + i) * x->ld + c, x->dtype, v[i], D - c);
        }
}

/* Loads rows of x: to[r][c] = x(r,c), with zeros for D <= c < ldto, a multiple of PB_VLEN, and for n <= r < high. */
static void load_rows(float *to, size_t ldto, int high, const rows *x, int n, int D)
{
    for (int r = 0; r < high; r++)
        for (int c = 0; c < (int)ldto; c += PB_VLEN)
            vf_store(to, r * ldto + c, PB_F32, load_some(x->x, x->at + r * x->ld + c, x->dtype, r < n ? D - c : 0));
}

/* Returns false if x[n][D] contains a NaN or an infinity. */
static inline bool all_finite(const float *x, size_t ld, int n, int D)
{
    vf sum = {0};
    for (int r = 0; r < n; r++)
        for (int c = 0; c < D; c += PB_VLEN) sum += load_some(x, r * ld + c, PB_F32, D - c) * 0.0f;
    return vf_sum(sum) == 0;
}
#endif
