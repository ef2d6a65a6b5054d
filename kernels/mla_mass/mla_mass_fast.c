/* mla_mass_fast.c - the attention mass of listed slots on the CPU: the lanes of a vector are up to 64 heads of a token,
 * rows of kv are processed 64 at a time.
 *
 * As in the forward pass of sparse_mla_fast.c, masked slots are skipped before a tile is filled, and all matrix
 * products use tile.h. With more than 64 heads, each further group of 64 adds to the masses of the first. Limit: fma
 * throughput. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "kernels/attention/tile.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"
#include "kernels/mla_mass/problem.h"

/* Adds the masses of up to HEADS heads from h on. room: q transposed [D][HEADS], rows [KEYS][width], scores
 * [KEYS][HEADS]. */
static void add_heads(const pb_mla *p, const pb_mla_keys *keys, size_t token, int h, float *room, float *mass)
{
    const size_t width = pb_mla_width(p->D), at = token * p->H + h, b = token / p->S;
    const int n = p->H - h < HEADS ? p->H - h : HEADS, wide = (n + 15) / 16 * 16;
    float *q = room, *tile = q + p->D * HEADS, *s = tile + KEYS * width, lse[HEADS];
    const rows x = {p->q, at * p->D, (size_t)p->D, p->dtype};
    int slot[KEYS];
    load_transposed(q, HEADS, wide, &x, n, p->D, p->scale);
    for (int i = 0; i < HEADS; i++) lse[i] = i < n && p->lse[at + i] != -INFINITY ? p->lse[at + i] : INFINITY;
    for (int w = 0, m = 0; w < keys->n; m = 0) {
        for (; w < keys->n && m < KEYS; w++) {
            const int r = pb_mla_row(p, keys, w);
            if (r < 0) continue;
            const rows kv = {p->kv, (b * p->S_kv + r) * p->D, (size_t)p->D, p->dtype};
            load_rows(tile + m * width, width, 1, &kv, 1, p->D);
            slot[m++] = w;
        }
        multiply(&(product){
            .M = m, .N = wide, .K = p->D, .a = tile, .lda = width, .b = q, .ldb = HEADS, .c = s, .ldc = HEADS});
        for (int k = 0; k < m; k++) {
            vf sum = {0};
            for (int i = 0; i < wide; i += PB_VLEN)
                sum += vf_exp(vf_load(s, (size_t)k * HEADS + i, PB_F32) - vf_load(lse, i, PB_F32));
            mass[slot[k]] += vf_sum(sum);
        }
    }
}

pb_status PB_FAST(pb_mla_mass_fwd)(pb_ctx *ctx, const void *args)
{
    const pb_mla_mass_fwd_args *a = args;
    const pb_mla p = pb_mla_mass_problem(args);
    const size_t each = pb_mla_mass_tiles(p.D), tokens = (size_t)p.B * p.S;
#pragma omp parallel for schedule(dynamic) num_threads(pb_threads_for(ctx, 0, each))
    for (size_t t = 0; t < tokens; t++) {
        const pb_mla_keys keys = pb_mla_mass_keys(&p, (int)(t / p.S), (int)(t % p.S), a->from, a->n);
        for (int j = 0; j < a->n; j++) a->mass[t * a->n + j] = 0;
        for (int h = 0; h < p.H; h += HEADS)
            add_heads(&p, &keys, t, h, (float *)ctx->scratch + omp_get_thread_num() * each, a->mass + t * a->n);
    }
    return PB_OK;
}
