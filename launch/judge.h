/* judge.h - which rank is hung, and which one lags: pure functions on what the ranks said last. */
#ifndef PB_JUDGE_H
#define PB_JUDGE_H
#include <stdbool.h>

#include "launch/message.h"

typedef struct pb_rank_view {
    const pb_launch_message *said; /* its last heartbeat */
    double still;                  /* seconds since its progress counter changed */
    bool left;                     /* it has ended by itself; it then counts as having entered no collective */
} pb_rank_view;

/* The rank for which others wait in a collective without progress for `timeout` seconds; -1: none. *all: all
 * ranks wait in the same collective; the result is then 0. */
int pb_judge_hung(const pb_rank_view *ranks, int n, double timeout, bool *all);
/* The index in said->phases of a phase in which rank `at` lags. *median: over the ranks, of each rank's median duration
 * in its last three steps, in seconds. The rank lags if the shortest of its own three exceeds twice *median, and
 * *median by 1 ms. -1: no such phase, or a rank has fewer than three steps, or is outside of training: in a benchmark
 * rank 0 also runs steps alone, so the last three steps of two ranks may be of different cases. */
int pb_judge_lag(const pb_rank_view *ranks, int n, int at, double *median);
#endif
