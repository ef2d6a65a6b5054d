/* dynmask_oracle.h - dynamic-mask attention as its definition says it, in double precision, with a mask of S x S_kv
 * elements for each kv head and without key lists. It shares no code with the ops: the tests of the dynmask families
 * compare with it. */
#ifndef PB_DYNMASK_ORACLE_H
#define PB_DYNMASK_ORACLE_H
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* ---- which keys a query attends to ------------------------------------------------------------------ */

typedef struct ranked {
    double bias;
    int key;
} ranked;

static int oracle_order(const void *x, const void *y)
{
    const ranked *a = x, *b = y;
    if (a->bias != b->bias) return a->bias > b->bias ? -1 : 1;
    return a->key < b->key ? -1 : 1;
}

/* Fills mask [S][S] of one row and kv head by sorting, for each query, the keys it may choose from. first[i]: the first
 * token of the conversation of token i; NULL: 0. room: [S] */
static inline void oracle_select(const double *bias, const int32_t *first, int S, int keep, bool exact, bool *mask,
                                 ranked *room)
{
    for (int i = 0; i < S; i++) {
        int n = 0;
        for (int j = 0; j < S; j++) {
            const bool same = (first ? first[i] : 0) == (first ? first[j] : 0);
            mask[(size_t)i * S + j] = false;
            if (same && (j <= i || !exact) && bias[j] != (double)-INFINITY) room[n++] = (ranked){bias[j], j};
        }
        qsort(room, (size_t)n, sizeof *room, oracle_order);
        for (int r = 0; r < n && r < keep; r++)
            if (room[r].key <= i) mask[(size_t)i * S + room[r].key] = true;
    }
}

/* ---- attention under a mask -------------------------------------------------------------------------- */

/* All tensors are contiguous: q, dO, o, dq [B,S,H,D]; k, v, dk, dv [B,S_kv,K,D]; bias, dbias [B,K,S_kv]; lse [B,H,S];
 * mask [B,K,S,S_kv]. Elements that the mask hides are not read. */
typedef struct oracle {
    int B, S, S_kv, H, K, D;
    double scale;
    const double *q, *k, *v, *bias, *dO;
    const bool *mask;
    double *o, *lse, *dq, *dk, *dv, *dbias; /* dq NULL: forward pass only */
} oracle;

/* One query of one head. p, dp: scratch arrays [S_kv]. */
static inline void oracle_query(const oracle *a, int b, int h, int i, double *p, double *dp)
{
    const int D = a->D, kv = h / (a->H / a->K);
    const size_t qi = (((size_t)b * a->S + i) * a->H + h) * D, head = (size_t)b * a->K + kv;
    const bool *sees = a->mask + (head * a->S + i) * a->S_kv;
    double top = (double)-INFINITY, sum = 0, delta = 0;
    for (int j = 0; j < a->S_kv; j++) {
        const size_t kj = (((size_t)b * a->S_kv + j) * a->K + kv) * D;
        if (!sees[j]) continue;
        p[j] = a->bias[head * a->S_kv + j];
        for (int d = 0; d < D; d++) p[j] += a->scale * a->q[qi + d] * a->k[kj + d];
        top = fmax(top, p[j]);
    }
    for (int j = 0; j < a->S_kv; j++) sum += sees[j] ? exp(p[j] - top) : 0;
    a->lse[((size_t)b * a->H + h) * a->S + i] = sum > 0 ? top + log(sum) : (double)-INFINITY;
    for (int d = 0; d < D; d++) a->o[qi + d] = 0;
    for (int j = 0; j < a->S_kv; j++) {
        const size_t kj = (((size_t)b * a->S_kv + j) * a->K + kv) * D;
        if (!sees[j]) continue;
        p[j] = exp(p[j] - top) / sum, dp[j] = 0;
        for (int d = 0; d < D; d++) a->o[qi + d] += p[j] * a->v[kj + d];
        for (int d = 0; a->dq && d < D; d++) dp[j] += a->dO[qi + d] * a->v[kj + d];
        delta += p[j] * dp[j];
    }
    for (int j = 0; a->dq && j < a->S_kv; j++) {
        const size_t kj = (((size_t)b * a->S_kv + j) * a->K + kv) * D;
        if (!sees[j]) continue;
        const double ds = p[j] * (dp[j] - delta);
        a->dbias[head * a->S_kv + j] += ds;
        for (int d = 0; d < D; d++) {
            a->dq[qi + d] += a->scale * ds * a->k[kj + d];
            a->dk[kj + d] += a->scale * ds * a->q[qi + d];
            a->dv[kj + d] += p[j] * a->dO[qi + d];
        }
    }
}

/* Computes o and lse, and the gradients if dq is set. */
static inline void oracle_run(const oracle *a)
{
    const size_t queries = (size_t)a->B * a->S * a->H * a->D, keys = (size_t)a->B * a->S_kv * a->K;
    double *room = malloc(2 * (size_t)a->S_kv * sizeof *room);
    if (!room) abort();
    for (size_t e = 0; a->dq && e < queries; e++) a->dq[e] = 0;
    for (size_t e = 0; a->dq && e < keys * a->D; e++) a->dk[e] = a->dv[e] = 0;
    for (size_t e = 0; a->dq && e < keys; e++) a->dbias[e] = 0;
    for (int b = 0; b < a->B; b++)
        for (int h = 0; h < a->H; h++)
            for (int i = 0; i < a->S; i++) oracle_query(a, b, h, i, room, room + a->S_kv);
    free(room);
}
#endif
