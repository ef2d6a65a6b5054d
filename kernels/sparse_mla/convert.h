/* convert.h - converts the arguments of sparse_mla and dense_mla to a pb_mla, the struct that their implementations
 * use, and back. */
#ifndef PB_MLA_CONVERT_H
#define PB_MLA_CONVERT_H
#include "kernels/sparse_mla/mla.h"
#include "kernels/sparse_mla/mla_args.h"

/* Copies the fields that pb_mla and the arguments of both passes share. */
#define PB_MLA_COPY(to, from)                                                                                          \
    do {                                                                                                               \
        (to)->q = (from)->q, (to)->kv = (from)->kv, (to)->idx = (from)->idx, (to)->sink = (from)->sink;                \
        (to)->B = (from)->B, (to)->S = (from)->S, (to)->S_kv = (from)->S_kv;                                           \
        (to)->H = (from)->H, (to)->D = (from)->D, (to)->V = (from)->V, (to)->W = (from)->W;                            \
        (to)->window = (from)->window, (to)->causal = (from)->causal;                                                  \
        (to)->scale = (from)->scale, (to)->dtype = (from)->dtype;                                                      \
    } while (0)

static inline pb_mla pb_mla_fwd_problem(const void *args)
{
    const pb_mla_fwd_args *a = (const pb_mla_fwd_args *)args;
    pb_mla p = {0};
    PB_MLA_COPY(&p, a);
    p.o = a->o, p.lse = a->lse;
    if (!p.idx) p.W = pb_mla_dense_slots(p.S_kv, p.window);
    return p;
}
static inline pb_mla_fwd_args pb_mla_fwd_of(const pb_mla *p)
{
    pb_mla_fwd_args a = {0};
    PB_MLA_COPY(&a, p);
    a.o = p->o, a.lse = p->lse;
    if (!a.idx) a.W = 0;
    return a;
}

static inline pb_mla pb_mla_bwd_problem(const void *args)
{
    const pb_mla_bwd_args *a = (const pb_mla_bwd_args *)args;
    pb_mla p = {0};
    PB_MLA_COPY(&p, a);
    p.o = (void *)a->o, p.lse = (float *)a->lse;
    p.dO = a->dO, p.dq = a->dq, p.dkv = a->dkv, p.dsink = a->dsink, p.backward = true, p.wide = a->wide;
    if (!p.idx) p.W = pb_mla_dense_slots(p.S_kv, p.window);
    return p;
}
static inline pb_mla_bwd_args pb_mla_bwd_of(const pb_mla *p)
{
    pb_mla_bwd_args a = {0};
    PB_MLA_COPY(&a, p);
    a.o = p->o, a.lse = p->lse;
    a.dO = p->dO, a.dq = p->dq, a.dkv = p->dkv, a.dsink = p->dsink, a.wide = p->wide;
    if (!a.idx) a.W = 0;
    return a;
}
#endif
