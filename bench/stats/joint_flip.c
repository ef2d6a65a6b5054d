/* joint_flip.c - the joint sign-flip test of several rows: step-down over the largest statistic of all rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats/inference.h"
#include "kernels/engine/bind.h"

/* The pairs are divided into groups of BITS. For each group and each choice of its signs, table[] holds the
 * contribution to the statistic of every row, so that a choice of all signs needs one addition per group and row. */
enum { BITS = 8, CHOICES = 1 << BITS, GROUPS = (PB_SIGN_FLIP_MAX + BITS - 1) / BITS };
/* Choices of signs: all 2^n for up to ENUMERATED pairs; for more pairs, the observed choice and DRAWS random ones. */
enum { ENUMERATED = 13, DRAWS = 20000, SEED = 0x5f3759df, BINS = 8192 };
static const double rounding = 1e-10; /* statistics that differ by less count as equal; they are within [-1, 1] */

/* Rows are in the order of their observed statistics, the largest first. */
typedef struct family {
    size_t m;
    int pairs;            /* pairs of the row that has the most pairs */
    size_t *row;          /* [m] index of the caller's row */
    double *seen;         /* [m] observed statistic */
    double *u;            /* [m] statistic for the current choice of signs */
    size_t *reached;      /* [m] choices in which the row or a later one reaches its observed statistic */
    double *table;        /* [GROUPS][CHOICES][m] */
    size_t bin[BINS + 1]; /* histogram of the largest statistic, over all choices except the observed one */
} family;

typedef struct ranked {
    double u;
    size_t row;
} ranked;

static int larger_first(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->u > y->u || x->u < y->u) return x->u > y->u ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Writes x[i] = d[i] / sqrt(n sum d^2): their sum is t / sqrt(n - 1 + t^2) for Student's t of d. All 0 if no value
 * differs from 0 or one is not finite. Returns the sum. */
static double unit(const double *d, int n, double x[PB_SIGN_FLIP_MAX])
{
    double most = 0, squares = 0, sum = 0;
    memset(x, 0, PB_SIGN_FLIP_MAX * sizeof *x);
    for (int i = 0; i < n; i++) {
        if (!isfinite(d[i])) return 0;
        most = fmax(most, fabs(d[i]));
    }
    if (!(most > 0)) return 0;
    for (int i = 0; i < n; i++) squares += (d[i] / most) * (d[i] / most);
    for (int i = 0; i < n; i++) sum += x[i] = d[i] / most / sqrt(n * squares);
    return sum;
}

static void fill_table(family *f, size_t k, const double x[PB_SIGN_FLIP_MAX])
{
    for (int g = 0; g < GROUPS; g++) {
        double *t = f->table + (size_t)g * CHOICES * f->m + k;
        t[0] = 0;
        for (int i = 0; i < BITS; i++) t[0] -= x[g * BITS + i];
        for (int c = 1; c < CHOICES; c++) { /* adds the lowest bit of c to the choice without it */
            int low = 0;
            while (!(c >> low & 1)) low++;
            t[(size_t)c * f->m] = t[(size_t)(c & (c - 1)) * f->m] + 2 * x[g * BITS + low];
        }
    }
}

/* Computes the statistics of all rows for one choice of signs: bit i is set if pair i keeps its sign. Returns the
 * largest. */
static double flip(family *f, uint32_t signs)
{
    const double *a = f->table + (size_t)(signs & (CHOICES - 1)) * f->m;
    const double *b = f->table + (size_t)(CHOICES + (signs >> BITS & (CHOICES - 1))) * f->m;
    const double *c = f->table + (size_t)(2 * CHOICES + (signs >> 2 * BITS & (CHOICES - 1))) * f->m;
    for (size_t k = 0; k < f->m; k++) f->u[k] = a[k] + b[k] + c[k];
    double most = -1;
    for (size_t k = f->m; k-- > 0;) {
        if (f->u[k] > most) most = f->u[k]; /* fmax() would be a call for each row; no statistic is NaN */
        f->reached[k] += most >= f->seen[k] - rounding;
    }
    return most;
}
_Static_assert(GROUPS == 3, "flip() adds three groups");

/* Goes through the choices of signs and returns their number. */
static size_t flip_all(family *f)
{
    const uint32_t observed = ((uint32_t)1 << f->pairs) - 1, all = observed + 1;
    const bool every = f->pairs <= ENUMERATED;
    flip(f, observed);
    for (uint32_t i = 0; i < (every ? observed : DRAWS); i++) {
        const double most = flip(f, every ? i : (uint32_t)(pb_uniform(SEED, i) * all));
        f->bin[(int)fmin(fmax((most + 1) / 2 * BINS, 0), BINS)]++;
    }
    return (every ? observed : DRAWS) + (size_t)1;
}

/* The least t that a row must reach to be significant at `level` if all other rows are as observed. */
static double threshold(const family *f, size_t choices, double level)
{
    const double most =
        floor(level * (double)choices * (1 + 1e-12)); /* choices that may reach it, the observed one too */
    size_t above = 0;
    int b = BINS;
    if (most < 1) return HUGE_VAL;
    while (b >= 0 && (double)(above + f->bin[b]) <= most - 1) above += f->bin[b--];
    const double u = 2.0 * (b + 1) / BINS - 1;
    return u < 1 ? fmax(u, 0) * sqrt((f->pairs - 1) / (1 - u * u)) : HUGE_VAL;
}

static void start(family *f, const pb_differences *rows, ranked *order)
{
    double x[PB_SIGN_FLIP_MAX];
    for (size_t r = 0; r < f->m; r++) {
        order[r] = (ranked){unit(rows[r].d, rows[r].n, x), r};
        if (rows[r].n > f->pairs) f->pairs = rows[r].n;
    }
    qsort(order, f->m, sizeof *order, larger_first);
    for (size_t k = 0; k < f->m; k++) {
        f->row[k] = order[k].row;
        f->seen[k] = order[k].u;
        unit(rows[order[k].row].d, rows[order[k].row].n, x);
        fill_table(f, k, x);
    }
}

static void adjust(const family *f, size_t choices, double *adjusted)
{
    double worst = 0;
    for (size_t k = 0; k < f->m; k++) {
        worst = fmax(worst, (double)f->reached[k] / (double)choices);
        adjusted[f->row[k]] = worst;
    }
}

pb_status pb_joint_flip(const pb_differences *rows, size_t m, double level, double *adjusted, double *t)
{
    for (size_t r = 0; r < m; r++)
        if (rows[r].n < 0 || rows[r].n > PB_SIGN_FLIP_MAX)
            return pb_fail(PB_EINVAL, "sign flips: %d pairs, need at most %d", rows[r].n, PB_SIGN_FLIP_MAX);
    *t = HUGE_VAL;
    if (!m) return PB_OK;
    if (m == 1) { /* the same test, exact for any number of pairs, because sums can be merged */
        adjusted[0] = pb_sign_flip(rows[0].d, rows[0].n, 0);
        *t = ldexp(1, -rows[0].n) > level ? HUGE_VAL : 0;
        return PB_OK;
    }
    family *f = calloc(1, sizeof *f);
    ranked *order = malloc(m * sizeof *order);
    double *numbers = malloc(m * (2 + (size_t)GROUPS * CHOICES) * sizeof *numbers);
    size_t *counts = calloc(2 * m, sizeof *counts);
    pb_status s = f && order && numbers && counts ? PB_OK : pb_fail(PB_ENOMEM, "sign flips: no memory for %zu rows", m);
    if (s == PB_OK) {
        *f = (family){.m = m, .row = counts, .reached = counts + m};
        f->seen = numbers, f->u = numbers + m, f->table = numbers + 2 * m;
        start(f, rows, order);
        const size_t choices = flip_all(f);
        adjust(f, choices, adjusted);
        *t = threshold(f, choices, level);
    }
    free(f);
    free(order);
    free(numbers);
    free(counts);
    return s;
}
