/* convert.h - dense_mla's arguments as the problem that both MLA families compute, and back. */
#ifndef PB_DENSE_MLA_CONVERT_H
#define PB_DENSE_MLA_CONVERT_H
#include "kernels/dense_mla/dense_mla.h"
#include "kernels/sparse_mla/mla.h"

static inline pb_mla pb_dense_mla_fwd_problem(const void *args)
{
    const pb_dense_mla_fwd_args *a = (const pb_dense_mla_fwd_args *)args;
    pb_mla p = {0};
    p.q = a->q;
    p.kv = a->kv;
    p.sink = a->sink;
    p.o = a->o, p.lse = a->lse;
    p.B = a->B, p.S = a->S, p.S_kv = a->S_kv, p.H = a->H, p.D = a->D, p.V = a->V;
    p.scale = a->scale, p.dtype = a->dtype;
    p.window = a->window, p.causal = a->causal;
    p.W = pb_mla_dense_slots(a->S_kv, a->window);
    return p;
}
static inline pb_dense_mla_fwd_args pb_dense_mla_fwd_of(const pb_mla *p)
{
    pb_dense_mla_fwd_args a = {0};
    a.q = p->q;
    a.kv = p->kv;
    a.sink = p->sink;
    a.o = p->o, a.lse = p->lse;
    a.B = p->B, a.S = p->S, a.S_kv = p->S_kv, a.H = p->H, a.D = p->D, a.V = p->V;
    a.scale = p->scale, a.dtype = p->dtype;
    a.window = p->window, a.causal = p->causal;
    return a;
}

static inline pb_mla pb_dense_mla_bwd_problem(const void *args)
{
    const pb_dense_mla_bwd_args *a = (const pb_dense_mla_bwd_args *)args;
    pb_mla p = {0};
    p.q = a->q;
    p.kv = a->kv;
    p.sink = a->sink;
    p.o = (void *)a->o, p.lse = (float *)a->lse;
    p.dO = a->dO, p.dq = a->dq, p.dkv = a->dkv, p.dsink = a->dsink, p.backward = true;
    p.B = a->B, p.S = a->S, p.S_kv = a->S_kv, p.H = a->H, p.D = a->D, p.V = a->V;
    p.scale = a->scale, p.dtype = a->dtype;
    p.window = a->window, p.causal = a->causal;
    p.W = pb_mla_dense_slots(a->S_kv, a->window);
    return p;
}
static inline pb_dense_mla_bwd_args pb_dense_mla_bwd_of(const pb_mla *p)
{
    pb_dense_mla_bwd_args a = {0};
    a.q = p->q;
    a.kv = p->kv;
    a.sink = p->sink;
    a.o = p->o, a.lse = p->lse;
    a.dO = p->dO, a.dq = p->dq, a.dkv = p->dkv, a.dsink = p->dsink;
    a.B = p->B, a.S = p->S, a.S_kv = p->S_kv, a.H = p->H, a.D = p->D, a.V = p->V;
    a.scale = p->scale, a.dtype = p->dtype;
    a.window = p->window, a.causal = p->causal;
    return a;
}
#endif
