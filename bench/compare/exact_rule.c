/* exact_rule.c - the rule for exact counters. */
#include "bench/compare/exact_rule.h"

pb_exact_number pb_exact_number_of(const pb_series *s)
{
    const pb_session *newest = s->sessions ? &s->session[s->sessions - 1] : NULL;
    if (newest && pb_stored(newest->run_id)) return (pb_exact_number){newest->value, false};
    return (pb_exact_number){s->median, s->max > s->min};
}

pb_verdict_id pb_exact_verdict(const pb_series *base, const pb_series *cand, bool listed, bool comparable)
{
    const pb_exact_number b = pb_exact_number_of(base), c = pb_exact_number_of(cand);
    if (b.varies || c.varies) return PB_VERDICT_INCONCLUSIVE;
    if (!(c.value > b.value) && !(c.value < b.value)) return PB_VERDICT_SAME;
    if (!comparable) return PB_VERDICT_REFERENCE;
    if (listed) return PB_VERDICT_SUSPECT;
    return c.value > b.value ? PB_VERDICT_REGRESSED : PB_VERDICT_IMPROVED;
}
