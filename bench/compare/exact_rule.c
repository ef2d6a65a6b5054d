/* exact_rule.c - decides the verdict of an exact counter from its numbers in the base and in the candidate. */
#include "bench/compare/exact_rule.h"

pb_exact_number pb_exact_number_of(const pb_series *s, const pb_exact_counter *counter)
{
    const pb_session *newest = s->sessions ? &s->session[s->sessions - 1] : NULL;
    if (newest && pb_stored(newest->run_id)) return (pb_exact_number){newest->value, false};
    return (pb_exact_number){s->median, !pb_exact_same(counter, s->min, s->max)};
}

pb_verdict_id pb_exact_verdict(const pb_series *base, const pb_series *cand, const pb_exact_counter *counter,
                               bool comparable)
{
    const pb_exact_number b = pb_exact_number_of(base, counter), c = pb_exact_number_of(cand, counter);
    if (b.varies || c.varies) return PB_VERDICT_INCONCLUSIVE;
    if (pb_exact_same(counter, b.value, c.value)) return PB_VERDICT_SAME;
    if (!comparable) return PB_VERDICT_REFERENCE;
    if (counter->listed) return PB_VERDICT_SUSPECT;
    return c.value > b.value ? PB_VERDICT_REGRESSED : PB_VERDICT_IMPROVED;
}
