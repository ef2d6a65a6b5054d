/* attention_case.c - sizes, key lists and amount of work of a case of suite attention. */
#include "bench/suites/attention_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mla_index/mla_index.h"

/* ---- parsing the axes of a case ------------------------------------------------------------------------ */

static pb_status word(const pb_case *c, const char *axis, const char *const *words, int *out)
{
    const char *v = pb_case_get(c, axis);
    char all[PB_AXIS_TEXT] = "";
    for (int i = 0; words[i]; i++) {
        const size_t used = strlen(all);
        if (v && strcmp(v, words[i]) == 0) {
            *out = i;
            return PB_OK;
        }
        snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", words[i]);
    }
    return pb_fail(PB_EINVAL, "axis %s: '%s' is not one of %s", axis, v ? v : "", all);
}

static pb_status number(const pb_case *c, const char *axis, long least, long most, int *out)
{
    long v;
    PB_TRY(pb_case_int(c, axis, &v));
    if (v < least || v > most) return pb_fail(PB_EINVAL, "axis %s: %ld is outside %ld..%ld", axis, v, least, most);
    *out = (int)v;
    return PB_OK;
}

bool pb_attn_is_gqa(const pb_attn *a) { return a->variant == PB_VARIANT_DYNMASK || a->variant == PB_VARIANT_DENSE_GQA; }

static bool is_dense(const pb_attn *a) { return a->variant == PB_VARIANT_DENSE || a->variant == PB_VARIANT_DENSE_GQA; }

/* Rejects combinations of values that no op computes. */
static pb_status consistent(const pb_attn *a)
{
    const bool own_lists = a->list == PB_LIST_UNION || a->list == PB_LIST_EXACT;
    if (is_dense(a) && a->list != PB_LIST_CAUSAL)
        return pb_fail(PB_EINVAL, "a dense variant has no key lists: use list=causal");
    if (a->masked && a->list != PB_LIST_RANDOM) return pb_fail(PB_EINVAL, "masked=%d needs list=random", a->masked);
    if (own_lists != (a->variant == PB_VARIANT_DYNMASK))
        return pb_fail(PB_EINVAL, "list=union and list=exact are those of variant=dynmask, which has no others");
    if (a->bias != PB_BIAS_RANDOM && a->variant != PB_VARIANT_DYNMASK)
        return pb_fail(PB_EINVAL, "only the keys of variant=dynmask have biases");
    if (!pb_attn_is_gqa(a)) return PB_OK;
    if (a->H % PB_GQA_GROUP || a->D > 256)
        return pb_fail(PB_EINVAL, "heads=%d qk=%d: grouped-query attention needs a multiple of %d heads, and qk <= 256",
                       a->H, a->D, PB_GQA_GROUP);
    if (a->variant == PB_VARIANT_DENSE_GQA && a->W)
        return pb_fail(PB_EINVAL, "topk=%d: variant=dense_gqa attends to all keys, use topk=0", a->W);
    return PB_OK;
}

/* Reads how many ranks share the row, and how they divide it. A group of 4 tokens that list=v4 compresses lies in one
 * slice. */
static pb_status read_context(const pb_case *c, pb_attn *a)
{
    static const char *const slicings[] = {"contiguous", "zigzag", NULL};
    pb_context *x = &a->context;
    int ranks = 1, slicing = 0;
    *x = (pb_context){.ranks = 1, .align = a->list == PB_LIST_V4 ? PB_V4_RATIO : 1};
    if (pb_case_get(c, "ranks")) PB_TRY(number(c, "ranks", 1, 1 << 16, &ranks));
    if (pb_case_get(c, "cp")) PB_TRY(number(c, "cp", 1, 1 << 16, &x->ranks));
    if (pb_case_get(c, "slices")) PB_TRY(word(c, "slices", slicings, &slicing));
    x->zigzag = slicing == 1;
    if (x->ranks != ranks)
        return pb_fail(PB_EINVAL, "cp=%d, ranks=%d: in suite attention all ranks share each row: --ranks N --cp N",
                       x->ranks, ranks);
    if (x->zigzag && (x->ranks == 1 || a->variant != PB_VARIANT_DENSE))
        return pb_fail(PB_EINVAL, "slices=zigzag needs variant=dense, and ranks that share rows: --ranks N --cp N");
    if (x->ranks > 1 && pb_attn_is_gqa(a))
        return pb_fail(PB_EINVAL,
                       "cp=%d: the rows of variant=%s are not divided here, but in suite throughput, with "
                       "--model",
                       x->ranks, pb_case_get(c, "variant"));
    return x->ranks == 1 || a->S % pb_context_unit(x) == 0
               ? PB_OK
               : pb_fail(PB_EINVAL, "seq=%d: %d ranks share the row, so it needs a multiple of %d", a->S, x->ranks,
                         pb_context_unit(x));
}

pb_status pb_attn_of(const pb_case *c, pb_attn *out)
{
    static const char *const variants[] = {"sparse", "dense", "deterministic", "dynmask", "dense_gqa", NULL};
    static const char *const lists[] = {"random", "causal", "v4", "union", "exact", NULL};
    static const char *const biases[] = {"random", "clustered", "blocks", NULL};
    static const char *const dtypes[] = {"f32", "bf16", NULL};
    pb_attn a = {.backward = strcmp(c->name, "bwd") == 0};
    int variant, list, dtype, bias = PB_BIAS_RANDOM;
    if (!a.backward && strcmp(c->name, "fwd") != 0)
        return pb_fail(PB_EINVAL, "suite attention has no case '%s', only fwd and bwd", c->name);
    PB_TRY(word(c, "variant", variants, &variant));
    PB_TRY(word(c, "list", lists, &list));
    PB_TRY(word(c, "dtype", dtypes, &dtype));
    if (pb_case_get(c, "bias")) PB_TRY(word(c, "bias", biases, &bias));
    a.variant = (pb_attn_variant)variant, a.list = (pb_attn_list)list, a.dtype = (pb_dtype)dtype;
    a.bias = (pb_attn_bias)bias;
    PB_TRY(number(c, "seq", 1, 1 << 20, &a.S));
    PB_TRY(number(c, "heads", 1, 1 << 10, &a.H));
    PB_TRY(number(c, "qk", 8, 576, &a.D));
    PB_TRY(number(c, "topk", is_dense(&a) ? 0 : 1, 1 << 16, &a.W));
    PB_TRY(number(c, "masked", 0, 100, &a.masked));
    PB_TRY(consistent(&a));
    a.V = a.D < 512 ? a.D : 512;
    a.S_kv = a.list == PB_LIST_V4 ? a.S + a.S / PB_V4_RATIO : a.S;
    PB_TRY(read_context(c, &a));
    *out = a;
    return PB_OK;
}

/* ---- making the key lists ------------------------------------------------------------------------------ */

/* A 32-bit hash, bijective (lowbias32 of C. Wellons' hash-prospector). */
static uint32_t spread(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

static uint32_t key_of(int i, uint32_t which) { return spread(spread((uint32_t)i + 0x9e3779b9u) + which); }

/* A uniform value in [-2,2) for kv head kv, of a stream of values. */
static float uniform(int kv, uint32_t stream, int n)
{
    return (float)spread(key_of(kv, stream) + (uint32_t)n) * 0x1p-30f - 2;
}

void pb_attn_biases(const pb_attn *a, int K, float *bias)
{
    for (int kv = 0; kv < K; kv++)
        for (int j = 0; j < a->S; j++)
            bias[(size_t)kv * (size_t)a->S + (size_t)j] =
                a->bias == PB_BIAS_BLOCKS
                    ? uniform(kv, 4, j / PB_BIAS_BLOCK) * 0.99f - 1e-6f * (float)(j % PB_BIAS_BLOCK)
                    : 0.9f * uniform(kv, 4, j / PB_BIAS_RUN) + 0.1f * uniform(kv, 5, j);
}

/* Applies a bijection on the next power of two (additions, odd multipliers and xor-shifts, all invertible) repeatedly
 * until the result is below n. This cycle walking gives a permutation of 0..n-1, without a table. */
int32_t pb_attn_draw(int i, int n, int w)
{
    const uint32_t k[3] = {key_of(i, 0), key_of(i, 1), key_of(i, 2)};
    uint32_t bits = 1, x = (uint32_t)w;
    while (((uint32_t)1 << bits) < (uint32_t)n) bits++;
    const uint32_t mask = ((uint32_t)1 << bits) - 1, half = (bits + 1) / 2;
    do {
        x = (x + k[0]) & mask;
        for (int round = 1; round < 3; round++) {
            x ^= x >> half;
            x = (x * (k[round] | 1)) & mask;
            x ^= x >> half;
            x = (x + (k[round] >> 16)) & mask;
        }
    } while (x >= (uint32_t)n);
    return (int32_t)x;
}

static bool masked(const pb_attn *a, int i, int w)
{
    return a->masked && spread(key_of(i, 3) + (uint32_t)w) % 100 < (uint32_t)a->masked;
}

static void draw_list(const pb_attn *a, int i, int32_t *list)
{
    const int n = a->list == PB_LIST_CAUSAL ? i + 1 : a->S_kv;
    for (int w = 0; w < a->W; w++) list[w] = w < n && !masked(a, i, w) ? pb_attn_draw(i, n, w) : -1;
}

static pb_status v4_lists(const pb_attn *a, int32_t *idx)
{
    const int window = pb_attn_window(a), T = a->W - window;
    int32_t *pick = malloc(((size_t)a->S * (size_t)T + 1) * sizeof *pick);
    pb_ctx cpu;
    if (!pick) return pb_fail(PB_ENOMEM, "attention: no memory for %d lists of %d", a->S, T);
#pragma omp parallel for
    for (int i = 0; i < a->S; i++) {
        const int n = (i + 1) / PB_V4_RATIO;
        for (int t = 0; t < T; t++) pick[(size_t)i * T + t] = t < n ? pb_attn_draw(i, n, t) : -1;
    }
    pb_status s = pb_ctx_open(&cpu, PB_CPU, 0);
    if (s == PB_OK) {
        s = pb_mla_index_build(&cpu, &(pb_mla_index_build_args){.pick = pick,
                                                                .idx = idx,
                                                                .B = 1,
                                                                .S = a->S,
                                                                .T = T,
                                                                .W = a->W,
                                                                .window = window,
                                                                .ratio = PB_V4_RATIO});
        pb_ctx_close(&cpu);
    }
    free(pick);
    return s;
}

pb_status pb_attn_lists(const pb_attn *a, int32_t *idx)
{
    if (a->list == PB_LIST_V4) return v4_lists(a, idx);
#pragma omp parallel for
    for (int i = 0; i < a->S; i++) draw_list(a, i, idx + (size_t)i * a->W);
    return PB_OK;
}

/* ---- FLOPs and bytes of a case ------------------------------------------------------------------------- */

double pb_attn_pairs(const pb_attn *a, const int32_t *idx)
{
    double n = 0;
    if (is_dense(a)) {
        for (int i = 0; i < a->S; i++) n += a->W && a->W < i + 1 ? a->W : i + 1;
        return n;
    }
#pragma omp parallel for reduction(+ : n)
    for (size_t e = 0; e < (size_t)a->S * a->W; e++) n += idx[e] >= 0 && idx[e] < a->S_kv;
    return n;
}

double pb_attn_listed(const pb_attn *a, const int32_t *idx)
{
    return is_dense(a) ? pb_attn_pairs(a, idx) : (double)a->S * a->W;
}

double pb_attn_flops(const pb_attn *a, double pairs)
{
    return pairs * a->H * (a->backward ? 6.0 * a->D + 4.0 * a->V : 2.0 * (a->D + a->V));
}

double pb_attn_reduced(const pb_attn *a, double valid)
{
    return a->backward && !is_dense(a) && !pb_attn_is_gqa(a) ? 4.0 * a->D * valid : 0;
}

pb_attn_roofline pb_attn_roofline_of(const pb_attn *a, double valid, double bytes, const pb_attn_ceilings *c)
{
    const struct {
        double work, rate;
        const char *bound;
    } floors[] = {{pb_attn_flops(a, valid), c->matmul, "matrix products"},
                  {pb_attn_reduced(a, valid), c->reduce, "reductions in L2"},
                  {bytes, c->copy, "memory"}};
    pb_attn_roofline most = {0, "nothing"};
    for (int i = 0; i < 3; i++)
        if (floors[i].rate > 0 && floors[i].work / floors[i].rate > most.seconds)
            most = (pb_attn_roofline){floors[i].work / floors[i].rate, floors[i].bound};
    return most;
}
