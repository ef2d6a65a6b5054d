/* problem.h - the arguments of mla_mass as the problem that both MLA families share. */
#ifndef PB_MLA_MASS_PROBLEM_H
#define PB_MLA_MASS_PROBLEM_H
#include "kernels/mla_mass/mla_mass.h"
#include "kernels/sparse_mla/mla.h"
#include "kernels/sparse_mla/plan.h"

/* Without outputs. V is what no pass here uses. */
static inline pb_mla pb_mla_mass_problem(const void *args)
{
    const pb_mla_mass_fwd_args *a = (const pb_mla_mass_fwd_args *)args;
    pb_mla p = {0};
    p.q = a->q, p.kv = a->kv, p.idx = a->idx, p.lse = (float *)a->lse;
    p.B = a->B, p.S = a->S, p.S_kv = a->S_kv, p.H = a->H, p.D = a->D, p.V = 1, p.W = a->W;
    p.scale = a->scale, p.dtype = a->dtype;
    return p;
}
/* Floats that each thread of the vectorised code needs: q on its side, rows of kv, scores. */
static inline size_t pb_mla_mass_tiles(int D) { return (size_t)D * HEADS + KEYS * (pb_mla_width(D) + HEADS); }
/* The slots of token (b,i) that are wanted. */
PB_MLA_FN pb_mla_keys pb_mla_mass_keys(const pb_mla *p, int b, int i, int from, int n)
{
    pb_mla_keys k = pb_mla_keys_of(p, b, i);
    k.list += from, k.n = n;
    return k;
}
#endif
