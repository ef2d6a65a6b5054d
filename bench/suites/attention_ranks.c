/* attention_ranks.c - measures attention over a row that several ranks share, and on rank 0 alone. */
#include "bench/suites/attention_ranks.h"

#include <stdlib.h>

#include "bench/stats/stats.h"
#include "bench/suites/attention_shared.h"
#include "bench/suites/rank_samples.h"
#include "os/interrupt.h"

/* Sets *seconds to the time of the whole pass on this rank. */
static pb_status measure_one(pb_ctx *ctx, const pb_attn_ranks *r, double *seconds)
{
    pb_attn_call k;
    pb_measure_opts o = r->opts;
    o.lockstep = NULL;
    pb_timing *t = malloc(sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for samples");
    pb_status s = pb_attn_open(ctx, r->a, &k);
    if (s == PB_OK) {
        s = pb_measure(ctx, pb_attn_run, &k, &o, t);
        if (s == PB_OK && t->n) *seconds = t->median;
        pb_attn_close(&k);
        pb_ctx_release_scratch(ctx);
    }
    free(t);
    return s;
}

/* Runs the divided pass once, and lets rank 0 check it. *wrong is above 0 on every rank if the result is wrong. */
static pb_status check(pb_ctx *ctx, const pb_attn_ranks *r, pb_attn_shared *k, double *wrong)
{
    pb_lockstep *l = r->env->lockstep;
    pb_attn_error e;
    bool right = true;
    pb_status s = pb_attn_shared_run(ctx, k);
    if (s == PB_OK) s = pb_attn_shared_collect(ctx, k);
    if (s == PB_OK) s = pb_sync(ctx);
    PB_TRY(pb_lockstep_meet(l, s));
    if (pb_lockstep_leads(l)) {
        s = pb_attn_check(ctx, &k->whole, &e);
        if (s == PB_OK) s = r->emit_error(r->c, &e, r->env->emitter, &right);
    }
    *wrong = !right;
    PB_TRY(pb_lockstep_meet(l, s));
    return pb_lockstep_sum(l, wrong);
}

static pb_status emit(const pb_attn_ranks *r, const pb_attn_shared *k, const pb_rank_samples *x, double one)
{
    pb_emitter *e = r->env->emitter;
    const double seconds = pb_median_of(x->span[PB_RANK_STEP], x->n), ranks = k->context.ranks;
    PB_TRY(pb_rank_samples_emit(e, r->c, "kernel_time", x->span[PB_RANK_STEP], x->n, ""));
    PB_TRY(pb_rank_samples_emit_exposed(e, r->c, x));
    PB_TRY(pb_emit(e, r->c, "score_imbalance", pb_attn_shared_imbalance(k), 0, PB_ROW_OK, ""));
    if (k->whole.valid > 0)
        PB_TRY(pb_emit(e, r->c, "kernel_flops", pb_attn_flops(r->a, k->whole.valid) / ranks / seconds, 0, PB_ROW_OK,
                       "of valid pairs, per rank"));
    if (!(one > 0)) return PB_OK; /* ranks other than 0, which write nothing */
    PB_TRY(pb_emit(e, r->c, "one_rank_kernel_time", one, 0, PB_ROW_OK, ""));
    return pb_emit(e, r->c, "scaling_efficiency", one / seconds / ranks, 0, PB_ROW_OK, "");
}

static pb_status measure(pb_ctx *ctx, const pb_attn_ranks *r, pb_attn_shared *k, double one)
{
    double wrong = 0;
    PB_TRY(check(ctx, r, k, &wrong));
    if (wrong > 0) return PB_OK;
    const pb_rank_work work = {.run = pb_attn_shared_run, .self = k, .ranks = k->context.ranks, .comms = {k->comm}};
    pb_rank_samples *x = calloc(1, sizeof *x);
    pb_status s = pb_lockstep_meet(r->env->lockstep, x ? PB_OK : pb_fail(PB_ENOMEM, "no memory for samples"));
    if (s == PB_OK && x) s = pb_rank_samples_take(ctx, &r->opts, r->env, &work, x);
    if (s == PB_OK && x && x->n && !pb_interrupted()) s = emit(r, k, x, one);
    free(x);
    return s;
}

pb_status pb_attn_ranks_run(pb_ctx *ctx, const pb_attn_ranks *r)
{
    pb_lockstep *l = r->env->lockstep;
    pb_attn_shared k;
    double one = 0;
    if (r->env->slowdown && r->env->slowdown->share > 0)
        return pb_fail(PB_EUNSUPPORTED, "no delay can be injected into a pass of several ranks");
    PB_TRY(pb_lockstep_meet(l, pb_lockstep_leads(l) ? measure_one(ctx, r, &one) : PB_OK));
    if (pb_interrupted() || !l || l->over) return PB_OK;
    pb_status s = pb_attn_shared_open(ctx, r->a, l->comm, &k);
    const bool open = s == PB_OK;
    s = pb_lockstep_meet(l, s);
    if (s == PB_OK && !l->over) s = measure(ctx, r, &k, one);
    if (open) pb_attn_shared_close(&k);
    return s;
}
