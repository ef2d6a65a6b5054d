/* skips.h - decides whether a step is skipped, by the rule of adamw.h, for all CPU implementations. */
#ifndef PB_ADAMW_SKIPS_H
#define PB_ADAMW_SKIPS_H
#include <math.h>

#include "kernels/adamw/adamw.h"

static inline bool pb_adamw_skips(const pb_adamw_step_args *a)
{
    if (a->loss && !isfinite(*a->loss)) return true;
    for (int i = 0; i < a->nclip; i++)
        if (a->clip[i].skip != 0) return true;
    return false;
}
#endif
