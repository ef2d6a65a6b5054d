/* lists.c - makes the key lists of tests and benchmarks of dynmask_attention with dynmask_keys, and plants NaN. */
#include "kernels/dynmask_attention/lists.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/dynmask_keys/dynmask_keys.h"

int pb_dynmask_lists_size(enum pb_dynmask_lists kind, int S_kv, int keep)
{
    return kind == PB_LISTS_UNION && keep < S_kv ? keep : S_kv;
}

/* Starts of three conversations, which begin elsewhere in each batch row. */
static void packed_starts(int B, int S, int32_t *start)
{
    for (int b = 0; b < B; b++) {
        const int second = (S / 3 + 5 * b) % S, third = second + (S - second) / 2;
        for (int j = 0; j < S; j++) start[(size_t)b * S + j] = j >= third ? third : j >= second ? second : 0;
    }
}

static void cut_to_blocks(int32_t *list, int32_t *until, size_t n)
{
    enum { BLOCK = 64 };
    for (size_t i = 0; i < n; i++) {
        const int end = (list[i] / BLOCK + 1) * BLOCK;
        if (list[i] < 0) continue;
        if (list[i] / BLOCK % 2 == 0) list[i] = -1, until[i] = 0;
        else if (until[i] > end) until[i] = end;
    }
}

static void make_holes(int32_t *list, int32_t *until, size_t n, int L, int S_kv)
{
    static const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, -7};
    for (size_t i = 0; i < n; i++) {
        if (i / L % 3 != 1 && pb_uniform(8, i) >= 0.25) continue;
        list[i] = i % 5 ? outside[i % 4] : S_kv;
        if (i % 2) until[i] = INT32_MAX; /* the slot is unused whatever `until` says */
    }
}

static pb_status build(enum pb_dynmask_lists kind, pb_dynmask_keys_build_args *a)
{
    pb_ctx cpu;
    PB_TRY(pb_ctx_open(&cpu, PB_CPU, 0));
    const pb_status s = pb_dynmask_keys_build(&cpu, a);
    pb_ctx_close(&cpu);
    const size_t n = (size_t)a->B * a->K * a->L;
    if (s == PB_OK && kind == PB_LISTS_BLOCKS) cut_to_blocks(a->list, a->until, n);
    if (s == PB_OK && kind == PB_LISTS_HOLES) make_holes(a->list, a->until, n, a->L, a->S);
    return s;
}

pb_status pb_dynmask_lists_fill(enum pb_dynmask_lists kind, int B, int S_kv, int K, int keep, int32_t *list,
                                int32_t *until)
{
    const size_t n = (size_t)B * K * S_kv;
    float *bias = malloc(n * sizeof *bias);
    int32_t *start = malloc((size_t)B * S_kv * sizeof *start);
    pb_status s = bias && start ? PB_OK : pb_fail(PB_ENOMEM, "dynmask_attention: no host memory for %zu biases", n);
    for (size_t i = 0; s == PB_OK && i < n; i++) bias[i] = (float)pb_uniform(7, i);
    if (s == PB_OK) {
        packed_starts(B, S_kv, start);
        s = build(kind, &(pb_dynmask_keys_build_args){.bias = bias,
                                                      .start = kind == PB_LISTS_PACKED ? start : NULL,
                                                      .list = list,
                                                      .until = until,
                                                      .B = B,
                                                      .S = S_kv,
                                                      .K = K,
                                                      .L = pb_dynmask_lists_size(kind, S_kv, keep),
                                                      .keep = keep,
                                                      .exact = kind != PB_LISTS_UNION});
    }
    free(bias);
    free(start);
    return s;
}

/* Writes NaN and infinities to one key of a kv head. */
static void plant_key(const pb_dynmask_attention_fwd_args *a, size_t head, int j)
{
    const size_t token = head / a->K * a->S_kv + j, at = head % a->K * a->D;
    const double bad = (double)(j % 2 ? INFINITY : NAN);
    for (int d = 0; d < a->D; d++) {
        pb_store((void *)a->k, token * a->ldk + at + d, a->dtype, bad);
        pb_store((void *)a->v, token * a->ldv + at + d, a->dtype, bad);
    }
    ((float *)a->bias)[head * a->S_kv + j] = (float)bad;
}

pb_status pb_dynmask_plant(const pb_dynmask_attention_fwd_args *a)
{
    bool *seen = malloc((size_t)a->S_kv * sizeof *seen);
    if (!seen) return pb_fail(PB_ENOMEM, "dynmask_attention: no host memory for %d flags", a->S_kv);
    for (size_t head = 0; head < (size_t)a->B * a->K; head++) {
        for (int j = 0; j < a->S_kv; j++) seen[j] = false;
        for (int l = 0; l < a->L; l++) {
            const int32_t j = a->list[head * a->L + l], first = a->S_kv - a->S;
            if (j < 0 || j >= a->S_kv) continue;
            seen[j] = (j > first ? j : first) < a->until[head * a->L + l];
        }
        for (int j = 0; j < a->S_kv; j++)
            if (!seen[j]) plant_key(a, head, j);
    }
    free(seen);
    return PB_OK;
}
