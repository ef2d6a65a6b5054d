/* stored_rule.h - what K stored sessions say of a new one. Pure: arrays in, a verdict out.
 *
 * x_i = ln of session i's figure, divided by its own session's ceiling, negated where higher is better, so that larger
 * is worse; y the candidate's. L = the gate's stored_limit, m the number of rows that gate.
 *
 *   K < PB_MIN_SESSIONS: too few for a spread. change = y - median(x).
 *     REGRESSED  change > ln(1+L)
 *     IMPROVED   change < -ln(1+L)
 *     SAME       |change| <= ln(1+L/3)
 *     SUSPECT    else
 *   K >= PB_MIN_SESSIONS: change = y - mean(x), p = P(T_{K-1} > change/(sd sqrt(1+1/K))): y lies beyond
 *   pb_prediction_bound (stats.h) of a level a exactly where p < a.
 *     REGRESSED  p, adjusted by Holm over the m gating rows, <= alpha, and change >= ln(1+min_effect)
 *     IMPROVED   the same of -change
 *     SUSPECT    one of them by its own p; or |change| > ln(1+L/3): it moved as far as would make one look; or the
 * bound lies beyond ln(1+L): sessions that scatter so much show nothing SAME       else
 *
 * min_effect is there because sessions that happen to be equal to the last digit stored have no spread at all. A change
 * of exactly a limit is not beyond it. What one session cannot tell apart is a session that was off as a whole:
 * the ceilings take out what the machine as a whole did; the rest is decided by `bench compare` of two executables. */
#ifndef PB_STORED_RULE_H
#define PB_STORED_RULE_H
#include "bench/stats/stats.h"
#include "bench/verdict.h"

#define PB_STORED_ALPHA      0.01
#define PB_STORED_MIN_EFFECT 0.01

/* Fills sessions, centre, sd, change, since_oldest and p from x[k], oldest first, which is reordered, and y; all
 * finite, k >= 1. p_adjusted becomes p. */
void pb_stored_weigh(double *x, int k, double y, pb_evidence *out);
/* The least change that is REGRESSED among m gating rows (1 for one that does not gate). */
double pb_stored_detects(const pb_evidence *e, double limit, int m);
/* The verdict, with e->p_adjusted as Holm left it, and e->detects. */
pb_verdict_id pb_stored_verdict(const pb_evidence *e, double limit);
#endif
