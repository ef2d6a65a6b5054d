/* skips.h - decides whether a step is skipped, by the rule of adamw.h, for all CPU implementations. */
#ifndef PB_ADAMW_SKIPS_H
#define PB_ADAMW_SKIPS_H
#include <math.h>

#include "kernels/adamw/adamw.h"

/* The rule for optimizer steps of any kind. guard NULL: none. */
static inline bool pb_step_skips(const pb_clip_state *clip, int nclip, const float *loss, const float *guard)
{
    if (loss && !isfinite(*loss)) return true;
    if (guard && *guard != 0) return true;
    for (int i = 0; i < nclip; i++)
        if (clip[i].skip != 0) return true;
    return false;
}

static inline bool pb_adamw_skips(const pb_adamw_step_args *a)
{
    return pb_step_skips(a->clip, a->nclip, a->loss, a->guard);
}

/* Counts a skipped step. A step that only the guard skips also counts in `guarded`. */
static inline void pb_adamw_count_skipped(const pb_adamw_step_args *a)
{
    a->state->skipped++;
    if (!pb_step_skips(a->clip, a->nclip, a->loss, NULL)) a->state->guarded++;
}
#endif
