/* schedule.h - the learning rate of every step.
 *
 *     warm-up   lr_i = lr (i+1)/W                                          0 <= i < W
 *     cosine    lr_i = min + (lr-min) (1 + cos(pi (i-W)/(N-W)))/2           W <= i < N, min from N on
 *     constant  lr_i = lr                                                   W <= i
 *
 * Loshchilov & Hutter 2017, arXiv:1608.03983, equation 5, without restarts; linear warm-up as Goyal et al. 2017. It is
 * a function of the step alone, so a resumed run goes on exactly. */
#ifndef PB_SCHEDULE_H
#define PB_SCHEDULE_H
#include "trainer/model.h"

typedef enum pb_schedule_kind { PB_SCHEDULE_COSINE, PB_SCHEDULE_CONSTANT } pb_schedule_kind;

typedef struct pb_schedule {
    pb_schedule_kind kind;
    double lr, min; /* peak, and where the cosine ends */
    long warmup, steps;
} pb_schedule;

/* EINVAL: lr or min negative or not finite, min above lr, a warm-up longer than the run. */
pb_status pb_schedule_check(const pb_schedule *s);
double pb_schedule_lr(const pb_schedule *s, long step); /* step from 0 */

/* The peak for adapters of a rank: 2e-4 up to rank 32, then in inverse proportion (64: 1e-4, 128: 5e-5, 256: 2.5e-5),
 * at least 1e-5; full fine-tuning 1e-5. A larger rank moves the weights further for the same rate. */
double pb_default_lr(pb_tuning tuning, int rank);
/* Whether lr is so far above the default of a high rank (128 and more) that such runs are known to diverge: eight times
 * and more, as 2e-4 at rank 256. */
bool pb_lr_is_high(pb_tuning tuning, int rank, double lr);
#endif
