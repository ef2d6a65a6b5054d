/* schedule.c - computes the learning rate of a step, and default learning rates. */
#include "trainer/step/schedule.h"

#include <math.h>

pb_status pb_schedule_check(const pb_schedule *s)
{
    if (!(s->lr >= 0) || !isfinite(s->lr)) return pb_fail(PB_EINVAL, "learning rate %g: need at least 0", s->lr);
    if (!(s->min >= 0) || !isfinite(s->min) || (s->kind == PB_SCHEDULE_COSINE && !(s->min <= s->lr)))
        return pb_fail(PB_EINVAL,
                       "minimum learning rate %g: need at least 0 and at most the peak learning rate, which is %g",
                       s->min, s->lr);
    if (s->warmup < 0 || s->warmup > s->steps)
        return pb_fail(PB_EINVAL, "a warm-up of %ld steps is longer than the run of %ld steps", s->warmup, s->steps);
    return PB_OK;
}

double pb_schedule_lr(const pb_schedule *s, long step)
{
    if (step < s->warmup) return s->lr * (double)(step + 1) / (double)s->warmup;
    if (s->kind == PB_SCHEDULE_CONSTANT) return s->lr;
    if (step >= s->steps) return s->min;
    const double share = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    return s->min + (s->lr - s->min) * (1 + cos(acos(-1.0) * share)) / 2;
}

double pb_default_lr(pb_tuning tuning, int rank)
{
    if (tuning == PB_FULL) return 1e-5;
    return fmax(1e-5, rank <= 32 ? 2e-4 : 2e-4 * 32 / rank);
}

bool pb_lr_is_high(pb_tuning tuning, int rank, double lr)
{
    return tuning != PB_FULL && rank >= 128 && lr >= 7.99 * pb_default_lr(tuning, rank);
}
