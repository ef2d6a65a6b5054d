/* schedule.h - the learning rate of every step.
 *
 *     warm-up   lr_i = lr (i+1)/W                                          0 <= i < W
 *     cosine    lr_i = min + (lr-min) (1 + cos(pi (i-W)/(N-W)))/2           W <= i < N, min from N on
 *     constant  lr_i = lr                                                   W <= i
 *
 * The cosine is equation 5 of Loshchilov & Hutter 2017, arXiv:1608.03983, without restarts; the linear
 * warm-up is that of Goyal et al. 2017. The rate depends on the step number only, so a resumed run continues
 * with exactly the same rates. */
#ifndef PB_SCHEDULE_H
#define PB_SCHEDULE_H
#include "trainer/model/model.h"

typedef enum pb_schedule_kind { PB_SCHEDULE_COSINE, PB_SCHEDULE_CONSTANT } pb_schedule_kind;

typedef struct pb_schedule {
    pb_schedule_kind kind;
    double lr, min;     /* lr: peak learning rate; min: learning rate at the end of the cosine */
    long warmup, steps; /* W and N above */
} pb_schedule;

/* Checks a schedule. EINVAL: lr or min negative or not finite, min above lr (cosine only), a warm-up longer than the
 * run. */
pb_status pb_schedule_check(const pb_schedule *s);
double pb_schedule_lr(const pb_schedule *s, long step); /* `step` is i above, from 0 */

/* The default peak learning rate. Adapters: 2e-4 up to rank 32, then inversely proportional to the rank (64: 1e-4, 128:
 * 5e-5, 256: 2.5e-5), but at least 1e-5, because at the same rate a larger rank moves the weights further. Full
 * fine-tuning: 1e-5. */
double pb_default_lr(pb_tuning tuning, int rank);
/* True for adapters of rank 128 or more with lr at least eight times the default (such as 2e-4 at rank 256): such runs
 * are known to diverge. */
bool pb_lr_is_high(pb_tuning tuning, int rank, double lr);
#endif
