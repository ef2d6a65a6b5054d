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
/* The index in said->phases of a phase in which rank `at` lags: its shortest duration of the last three steps exceeds
 * twice the median over the ranks of their middle duration, and that median by 1 ms; -1: none, or a rank is in no
 * training step: in a benchmark rank 0 also runs steps alone, so the ranks' last three steps may be of different cases.
 * *median: in seconds. */
int pb_judge_lag(const pb_rank_view *ranks, int n, int at, double *median);
#endif
