/* controls.h - control cases: cases that a run measures again in each process, so that it shows its own noise. */
#ifndef PB_CONTROLS_H
#define PB_CONTROLS_H
#include "bench/suites/plan.h"

/* PB_CONTROL_CASES: at most so many cases are controls; PB_CONTROL_SHARE: the most time that measuring each of them
 * twice more may add, as a share of the expected time of the plan's own cases */
enum { PB_CONTROL_CASES = 2 };
#define PB_CONTROL_SHARE 0.1

/* Adds the control cases to the plan. They are copies of its PB_CONTROL_CASES shortest cases (by pb_plan_expect; of
 * equal ones those that come first), which pb_plan_order() shuffles with the others. Other cases keep their keys.
 *
 *   the copies of each case                when
 *   -------------------------------------  ------------------------------------------------------------
 *   control=first and control=second       the four copies take PB_CONTROL_SHARE at most
 *   control=second; the case itself is     they would take more. A plan of one case has one such copy
 *   the first measurement
 *   none                                   suite ceiling; PB_CONTROLS=no in the environment; no case of the plan
 *                                          measures a time (pb_suite.untimed and timed)
 *
 * Comparisons of executables set PB_CONTROLS=no: they measure pairs, and need no controls. p->controls is the number of
 * copies. A case whose key has no room for the axis gets no copy. ENOMEM. */
pb_status pb_controls_add(pb_plan *p);
/* Writes one line: how many control cases the plan has, how often they are measured, and by how much they make the run
 * longer if that is more than PB_CONTROL_SHARE; or why it has none. "": the suite has none, or they are off. */
void pb_controls_text(const pb_plan *p, char *out, size_t n);
#endif
