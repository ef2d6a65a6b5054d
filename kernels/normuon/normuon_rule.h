/* normuon_rule.h - the parts of normuon.h that all CPU implementations share: skipped steps, and factors. */
#ifndef PB_NORMUON_RULE_H
#define PB_NORMUON_RULE_H
#include <math.h>

#include "kernels/adamw/skips.h"
#include "kernels/normuon/normuon.h"

#define PB_NORMUON_EPS 1e-8

static inline bool pb_normuon_skips(const pb_normuon_when *w)
{
    return pb_step_skips(w->clip, w->nclip, w->loss, w->guard);
}

static inline double pb_normuon_scale(const pb_normuon_when *w, int clip)
{
    if (clip < 0) return w->loss_scale ? 1 / (double)w->loss_scale[0] : 1;
    return w->scale_gradients ? (double)w->clip[clip].scale : 1;
}

/* The factor r. */
static inline double pb_normuon_adjust(pb_normuon_adjust_kind kind, int rows, int cols)
{
    if (kind == PB_NORMUON_SPECTRAL) return sqrt((double)rows / cols);
    return kind == PB_NORMUON_RMS ? 0.2 * sqrt((double)(rows > cols ? rows : cols)) : 1;
}
#endif
