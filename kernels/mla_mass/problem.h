/* problem.h - converts the arguments of mla_mass to a pb_mla, the arguments of sparse_mla's code, which mla_mass
 * reuses. */
#ifndef PB_MLA_MASS_PROBLEM_H
#define PB_MLA_MASS_PROBLEM_H
#include "kernels/mla_mass/mla_mass.h"
#include "kernels/sparse_mla/mla.h"
#include "kernels/sparse_mla/plan.h"

/* Converts pb_mla_mass_fwd_args to a pb_mla without outputs. V is 1 because no code of mla_mass reads values. */
static inline pb_mla pb_mla_mass_problem(const void *args)
{
    const pb_mla_mass_fwd_args *a = (const pb_mla_mass_fwd_args *)args;
    pb_mla p = {0};
    p.q = a->q, p.kv = a->kv, p.idx = a->idx, p.lse = (float *)a->lse;
    p.B = a->B, p.S = a->S, p.S_kv = a->S_kv, p.H = a->H, p.D = a->D, p.V = 1, p.W = a->W;
    p.scale = a->scale, p.dtype = a->dtype;
    return p;
}
/* Returns the floats of scratch per thread of the vectorised implementation: q transposed, rows of kv, scores. */
static inline size_t pb_mla_mass_tiles(int D) { return (size_t)D * HEADS + KEYS * (pb_mla_width(D) + HEADS); }
/* Returns the slots from .. from + n - 1 of the list of token (b,i). */
PB_MLA_FN pb_mla_keys pb_mla_mass_keys(const pb_mla *p, int b, int i, int from, int n)
{
    pb_mla_keys k = pb_mla_keys_of(p, b, i);
    k.list += from, k.n = n;
    return k;
}
#endif
