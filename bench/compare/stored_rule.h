/* stored_rule.h - what K stored sessions say of a new one. Pure: arrays in, a verdict out.
 *
 * x_i = ln of session i's figure as measured, negated where higher is better, so that larger is worse; y the
 * candidate's. L = the gate's stored_limit, m the number of rows that gate.
 *
 *   K < PB_MIN_SESSIONS: too few for a spread, so nothing is claimed, in either direction.  change = y - median(x)
 *     SAME       |change| <= ln(1 + L/3)
 *     SUSPECT    else: it became worse or better by more than one would overlook
 *
 *   K >= PB_MIN_SESSIONS: change = y - mean(x), p = P(T_{K-1} > change / (sd sqrt(1 + 1/K))). That is, y lies beyond
 *   pb_prediction_bound (stats.h) of a level a exactly where p < a.
 *     REGRESSED  p, adjusted by Holm over the m gating rows, <= alpha, and change >= ln(1 + min_effect)
 *     IMPROVED   the same of -change
 *     SUSPECT    p <= alpha for this row alone;
 *                or |change| > ln(1 + L/3);
 *                or the prediction bound lies beyond ln(1 + L): the sessions scatter too much to show anything
 *     SAME       else
 *
 * min_effect is there because sessions that happen to be equal to the last digit stored have no spread at all. A change
 * of exactly a limit is not beyond it.
 *
 * Why few sessions claim nothing: the noise between runs of one program is a property of the machine. A constant that
 * suits one machine is one standard deviation of another, and the more rows there are the surer one of them is beyond
 * it. What few sessions cannot tell is measured by `bench compare` of two executables.
 *
 * Why figures are not divided by the ceilings of their run: a ceiling is measured once a run, by a kernel that other
 * things limit. Its own noise would be added to every figure of the run. */
#ifndef PB_STORED_RULE_H
#define PB_STORED_RULE_H
#include "bench/compare/verdict.h"
#include "bench/stats/stats.h"

#define PB_STORED_ALPHA      0.01
#define PB_STORED_MIN_EFFECT 0.01

/* Fills sessions, centre, sd, change, since_oldest and p from x[k], oldest first, which is reordered, and y; all
 * finite, k >= 1. p_adjusted becomes p. */
void pb_stored_weigh(double *x, int k, double y, pb_evidence *out);
/* The least change that is REGRESSED among m gating rows (1 for one that does not gate); +inf: none is. */
double pb_stored_detects(const pb_evidence *e, int m);
/* The least change, in either direction, that is more than SAME whatever the spread: ln(1 + L/3). */
double pb_stored_notable(double limit);
/* The verdict, with e->p_adjusted as Holm left it, and e->detects. */
pb_verdict_id pb_stored_verdict(const pb_evidence *e, double limit);
#endif
