/* topk_fast.c - top-k of a row by radix select: three histograms of 11, 11 and 10 bits find the k-th largest key, then
 * one pass writes the columns in order.
 *
 * The work does not depend on the order of the scores, and nothing is sorted. The keys are computed with SIMD; the
 * scalar updates of the histograms are the bound. */
#include "kernels/topk/topk_fast.h"

#include "kernels/cpu/simd.h"
#include "kernels/cpu/threads.h"
#include "kernels/topk/key.h"
#include "kernels/topk/topk.h"

enum { BINS = 2048 };

/* Computes the keys of a row. Returns how many of them may be selected. */
static int make_keys(const float *score, int G, uint32_t *keys)
{
    int seen = 0;
    for (int g = 0; g < G; g += PB_VLEN) {
        const int n = G - g < PB_VLEN ? G - g : PB_VLEN;
        const vf x = vf_get(score, (size_t)g, PB_F32, n) + 0.0f;
        const vu bits = (vu)x, sign = -(bits >> 31), nan = (vu)((bits & 0x7fffffffu) > 0x7f800000u);
        const vu key = (bits ^ (sign | 0x80000000u)) | nan;
        *(vu *)(keys + g) = key;
        for (int i = 0; i < n; i++) seen += keys[g + i] > PB_TOPK_UNSEEN;
    }
    return seen;
}

/* Considers the keys whose bits above the current digit (`bits` bits from bit `shift` on) equal those of `prefix`, and
 * finds the bin that contains the need-th largest of them. Returns the bin's number << shift; *need becomes the rank
 * within the bin. */
static uint32_t find_bin(const uint32_t *keys, int G, uint32_t prefix, int shift, int bits, int *need)
{
    uint32_t count[BINS] = {0};
    const uint32_t bins = 1u << bits;
    for (int g = 0; g < G; g++)
        if ((uint64_t)keys[g] >> (shift + bits) == (uint64_t)prefix >> (shift + bits))
            count[keys[g] >> shift & (bins - 1)]++;
    uint32_t bin = bins - 1;
    while (*need > (int)count[bin]) *need -= (int)count[bin--];
    return bin << shift;
}

void PB_FAST(pb_topk_row)(const float *score, int G, int k, int32_t *pick, uint32_t *keys)
{
    const int seen = make_keys(score, G, keys);
    uint32_t least = PB_TOPK_UNSEEN;
    int need = 0, n = 0; /* need: how many keys equal to `least` are still to be selected */
    if (seen > k && k > 0) {
        need = k;
        least = find_bin(keys, G, 0, 21, 11, &need);
        least |= find_bin(keys, G, least, 10, 11, &need);
        least |= find_bin(keys, G, least, 0, 10, &need);
    }
    for (int g = 0; g < G && n < k; g++) {
        const bool tie = keys[g] == least && need > 0;
        if (keys[g] > least || tie) pick[n++] = g;
        need -= tie;
    }
    for (; n < k; n++) pick[n] = -1;
}

pb_status PB_FAST(pb_topk_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_topk_fwd_args *a = args;
    const size_t room = pb_topk_row_room(a->G);
#pragma omp parallel for schedule(static) num_threads(pb_threads_for(ctx, 0, room))
    for (size_t r = 0; r < (size_t)a->R; r++) PB_FAST(pb_topk_row)
    (a->score + r * a->G, a->G, a->k, a->pick + r * a->k, (uint32_t *)ctx->scratch + omp_get_thread_num() * room);
    return PB_OK;
}
