/* stored_rule.c - implements the rule whose table is in stored_rule.h. */
#include "bench/compare/stored_rule.h"
#include "bench/stats/stats.h"

#include <math.h>

static const double slack = 1e-9; /* so that a change of exactly the limit is within it, despite rounding */

void pb_stored_weigh(double *x, int k, double y, pb_evidence *out)
{
    const pb_sample s = pb_sample_of(x, k);
    const bool spread = k >= PB_MIN_SESSIONS;
    out->sessions = k;
    out->sd = s.sd;
    out->since_oldest = y - x[0];
    out->centre = spread ? s.mean : pb_median(x, k);
    out->change = y - out->centre;
    out->p = out->p_adjusted = pb_prediction_test(&s, s.mean + fabs(out->change)); /* T is symmetric */
}

double pb_stored_detects(const pb_evidence *e, int m)
{
    if (e->sessions < PB_MIN_SESSIONS) return HUGE_VAL;
    const pb_sample s = {e->sessions, 0, e->sd};
    return fmax(pb_prediction_bound(&s, PB_STORED_ALPHA / m), log1p(PB_STORED_MIN_EFFECT));
}

double pb_stored_notable(double limit) { return log1p(limit / 3) + slack; }

pb_verdict_id pb_stored_verdict(const pb_evidence *e, double limit)
{
    const pb_verdict_id unclaimed = fabs(e->change) <= pb_stored_notable(limit) ? PB_VERDICT_SAME : PB_VERDICT_SUSPECT;
    if (e->sessions < PB_MIN_SESSIONS) return unclaimed;
    const bool enough = fabs(e->change) >= log1p(PB_STORED_MIN_EFFECT);
    if (enough && e->p_adjusted <= PB_STORED_ALPHA) return e->change > 0 ? PB_VERDICT_REGRESSED : PB_VERDICT_IMPROVED;
    if (enough && e->p <= PB_STORED_ALPHA) return PB_VERDICT_SUSPECT;
    return e->detects <= log1p(limit) + slack ? unclaimed : PB_VERDICT_SUSPECT;
}
