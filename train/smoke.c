/* smoke.c - the checks of a rung of the smoke ladder. */
#include "train/smoke.h"

#include <math.h>
#include <stdio.h>

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    return sum / n;
}

/* Returns the index, counted from 1, of the first element of x[n] that is not finite; 0: all are finite. */
static int not_finite(const double *x, int n)
{
    for (int i = 0; i < n; i++)
        if (!isfinite(x[i])) return i + 1;
    return 0;
}

bool pb_smoke_passed(const pb_smoke_rung *r, char *why, size_t n)
{
    const int half = r->steps / 2, loss = not_finite(r->loss, r->steps), norm = not_finite(r->norm, r->steps);
    const double before = mean(r->loss, half), after = mean(r->loss + half, r->steps - half);
    if (r->skipped) snprintf(why, n, "step %d was skipped: %s", r->skipped, r->why);
    else if (loss) snprintf(why, n, "the loss of step %d is not finite", loss);
    else if (norm) snprintf(why, n, "the gradient's norm in step %d is not finite", norm);
    else if (!(after <= r->rise * before))
        snprintf(why, n,
                 "the loss rose from %.6g (mean of steps 1 to %d) to %.6g (%d to %d), by more than a factor of %g",
                 before, half, after, half + 1, r->steps, r->rise);
    else if (!r->resumed)
        snprintf(why, n, "the state after resuming from step %d has other bits than were saved", half);
    else if (r->compares_end && !r->end)
        snprintf(why, n,
                 "the run that resumed from step %d ended with other bits than the run that was not interrupted", half);
    else return true;
    return false;
}
