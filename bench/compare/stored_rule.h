/* stored_rule.h - the rule that compares a candidate with K stored sessions of one row. Pure: no files, no text.
 *
 *   x_i      ln of session i's value, negated if higher is better: a larger x is worse
 *   y        the same for the candidate
 *   L        the gate's stored_limit
 *   change   y - median(x) if K < 10, else y - mean(x); positive: the candidate is worse
 *   sd       the standard deviation of x
 *   p        P(T > |change| / (sd sqrt(1 + 1/K))), Student's t with K - 1 degrees of freedom; one-sided
 *   p_Holm   p adjusted by Holm over all gating rows; p itself if the row does not gate
 *   bound    the detectable change: the change with p = 0.01/m, but at least ln 1.01; m is the number of gating rows
 *
 * The verdict is that of the first line whose conditions hold:
 *
 *   K       conditions                                            verdict
 *   ------  ----------------------------------------------------  ---------------------------------
 *   < 10    |change| <= ln(1 + L/3)                               SAME
 *   < 10    else                                                  SUSPECT
 *   >= 10   p_Holm <= 0.01, |change| >= ln 1.01, change > 0       REGRESSED
 *   >= 10   p_Holm <= 0.01, |change| >= ln 1.01, change < 0       IMPROVED
 *   >= 10   p <= 0.01, |change| >= ln 1.01                        SUSPECT: significant only by itself
 *   >= 10   bound > ln(1 + L)                                     SUSPECT: the sessions scatter too much
 *   >= 10   |change| > ln(1 + L/3)                                SUSPECT: large, yet not significant
 *   >= 10   else                                                  SAME
 *
 * Here 10 is PB_MIN_SESSIONS, 0.01 is PB_STORED_ALPHA and 1.01 is 1 + PB_STORED_MIN_EFFECT. The least effect is needed
 * because sessions that are equal in every stored digit have sd = 0, and then any change is significant.
 *
 * Why fewer than 10 sessions give no REGRESSED and no IMPROVED: how much runs of one program differ depends on the
 * machine. A fixed limit that suits one machine is one standard deviation on another, and with many rows some row would
 * exceed it by chance. `bench compare` of two executables measures the noise and can decide.
 *
 * Why values are not divided by the ceilings of their run: a ceiling is measured once per run, by a kernel with limits
 * of its own. Its noise would be added to every value of the run. */
#ifndef PB_STORED_RULE_H
#define PB_STORED_RULE_H
#include "bench/compare/verdict.h"
#include "bench/stats/stats.h"

#define PB_STORED_ALPHA      0.01 /* significance level: largest p that is significant */
#define PB_STORED_MIN_EFFECT 0.01 /* least relative change that can be REGRESSED or IMPROVED */

/* Fills sessions, centre, sd, change, since_oldest and p of *out; p_adjusted becomes p. x[k] holds the sessions, oldest
 * first, and is reordered; y is the candidate; all are finite, k >= 1. */
void pb_stored_weigh(double *x, int k, double y, pb_evidence *out);
/* The least change that would be REGRESSED among m gating rows; m is 1 for a row that does not gate. +inf: too few
 * sessions. */
double pb_stored_detects(const pb_evidence *e, int m);
/* The largest change, in either direction, that can be SAME: ln(1 + limit/3). */
double pb_stored_notable(double limit);
/* The verdict by the table above. e->p_adjusted and e->detects must be set; limit is the gate's stored_limit. */
pb_verdict_id pb_stored_verdict(const pb_evidence *e, double limit);
#endif
