/* attention_requirements.c - requirements on attention: finite outputs, and their deviation from double precision. */
#include "bench/suites/attention_requirements.h"

#include <math.h>
#include <stdio.h>

#include "bench/derived/derived.h"

/* True for the shape on which public kernels have produced gradients that are not finite. */
static bool applies(const pb_attn *a)
{
    return a->variant != PB_VARIANT_DENSE && a->list == PB_LIST_RANDOM && a->dtype == PB_BF16 && a->S == 1280 &&
           a->H == 64 && a->D == 512 && a->W == 640;
}

pb_status pb_attn_requirements(pb_emitter *emitter, const pb_case *c, const pb_attn *a, const pb_attn_error *e)
{
    char how[200];
    pb_case at = *c;
    if (!applies(a)) return PB_OK;
    PB_TRY(pb_case_set(&at, "pass", c->name));
    snprintf(how, sizeof how, "all elements of %s%s%s", a->backward ? "dq, dkv and dsink" : "o and lse",
             e->bad > 0 ? "; the first in " : "", e->bad > 0 ? e->bad_in : "");
    PB_TRY(pb_requirement_emit(emitter, "MLA-FINITE", at.axes, at.n, e->bad, true, how));
    const double q = pb_deviation_rel_diff(&e->of[0]);
    snprintf(how, sizeof how, "%s: %.3g, of %.0f sampled elements", e->name[0], q, e->of[0].n);
    PB_TRY(pb_requirement_emit(emitter, "MLA-REL-DIFF-Q", at.axes, at.n, q, true, how));
    if (!a->backward) return PB_OK;
    const double kv = pb_deviation_rel_diff(&e->of[1]), s = pb_deviation_rel_diff(&e->of[2]);
    snprintf(how, sizeof how, "dkv: %.3g, of %.0f sampled elements; dsink: %.3g, of all", kv, e->of[1].n, s);
    return pb_requirement_emit(emitter, "MLA-REL-DIFF-KV", at.axes, at.n, isnan(kv) || kv > s ? kv : s, true, how);
}
