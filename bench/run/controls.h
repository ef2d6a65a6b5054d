/* controls.h - control cases: cases that a run measures twice more in each process, so that it shows its own noise. */
#ifndef PB_CONTROLS_H
#define PB_CONTROLS_H
#include "bench/run/plan.h"

/* PB_CONTROL_CASES: cases that are measured as controls, each twice; PB_CONTROL_SHARE: the most time that this may add,
 * as a share of the expected time of the plan's own cases */
enum { PB_CONTROL_CASES = 2 };
#define PB_CONTROL_SHARE 0.1

/* Adds to the plan its PB_CONTROL_CASES shortest cases (by pb_plan_expect; of equal ones those that come first), each
 * with axis control=first and once more with control=second: four cases, which pb_plan_order() shuffles with the
 * others. Other cases keep their keys. Adds nothing where the four would take more than PB_CONTROL_SHARE, to suite
 * ceiling, and with PB_CONTROLS=no in the environment, which comparisons of executables set: they measure pairs, and
 * need no controls. p->controls is the number of cases added. EINVAL: a key becomes too long. ENOMEM. */
pb_status pb_controls_add(pb_plan *p);
/* Expected seconds of the plan's own cases in one process, without ceilings and controls. */
double pb_controls_expect(const pb_plan *p);
/* Writes one line: how many control cases the plan has, or that its cases are too few or too long to have any. "": none
 * are wanted. */
void pb_controls_text(const pb_plan *p, char *out, size_t n);
#endif
