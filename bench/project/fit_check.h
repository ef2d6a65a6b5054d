/* fit_check.h - selects the measured points that are kept out of a fit, and compares the model with them (fit.h
 * has the rule). */
#ifndef PB_PROJECT_FIT_CHECK_H
#define PB_PROJECT_FIT_CHECK_H
#include "bench/project/fit.h"

/* Sets kept_out of the n points of one link or step, which are sorted by bytes. `fewest`: the largest number of ranks is
 * kept out if at least so many numbers were measured. */
void pb_keep_out(pb_timed *t, int n, int fewest);
/* Compares the model with the points that were kept out. ENOMEM. */
pb_status pb_check_points(const pb_timed *t, int n, pb_accuracy *out);
#endif
