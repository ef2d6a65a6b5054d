/* simulate.h - estimates the false alarm rate and the detection rate of the rule of pair_rule.h on one machine, from
 * results recorded there. Pure and deterministic: arrays in, rates out.
 *
 * Input. A session is one recorded run or comparison. For every row (a key and metric) it gives a difference d = ln x -
 * ln y for each pair of processes that were measured one after the other:
 *
 *   run               Processes 1 and 2, 3 and 4, ... are pairs. As the order within a pair would be drawn by a coin,
 *                     the sign of d is drawn.
 *   comparison        d = candidate - base, as recorded. Unless both sides are said to be the same code, d is centred:
 *                     the session's mean is subtracted in each row, which leaves the noise whatever the effect was.
 *                     The rest is multiplied by sqrt(n/(n-1)), to restore the spread that centring removes.
 *
 * Method. Two sets of comparisons without a true difference (A/A tests) are built from the input:
 *
 *   recorded    Each session is cut, in order, into comparisons of look[1] pairs. The remainder is one more if it has
 *               look[0] pairs. Each process is used once. These comparisons are few, but drift and order are as they
 *               happened. Comparisons cut from one centred session are not independent: they share its mean.
 *   resampled   A comparison consists of blocks of PB_SIM_BLOCK consecutive pairs of a session. A block starts at any
 *               pair and wraps around at the session's end (circular block bootstrap, Politis and Romano 1992), so
 *               that effects lasting several processes stay together. All rows use the same pairs and so stay
 *               dependent. The sign of each pair is drawn, as the order is in a real comparison.
 *
 * Each comparison goes through the whole rule, with both looks and the joint sign flips of all rows. A false alarm is a
 * comparison with any REGRESSED row. For the detection rate, ln(1 + inject) is added to one row at a time of the
 * resampled comparisons; the other rows have the noise of the same pairs, and no change.
 *
 * Signs are drawn by a fair coin, under which the sign-flip test is exact. So the false alarm rate of resampled
 * comparisons is at most alpha whatever was recorded: it shows how conservative the rule is on this noise, and is no
 * evidence that alarms on this machine are rare. That evidence is `recorded`.
 *
 * Assumptions. Future sessions resemble the recorded ones, and pairs further apart than a block are independent.
 *
 * Limits. The simulation cannot show what was not recorded, such as load at other hours or another build's memory
 * layout. The confidence bounds of resampled rates cover the randomness of resampling, not that of the recording. */
#ifndef PB_SIMULATE_H
#define PB_SIMULATE_H
#include "bench/pairs/pair_rule.h"

enum { PB_SIM_BLOCK = 4 };

typedef struct pb_sim_session {
    int pairs;
    bool paired; /* the session is a paired comparison; false: a run of one program */
} pb_sim_session;

typedef struct pb_sim_row {
    const char *key, *metric;
    bool higher;             /* a higher value is better */
    const double *log_ratio; /* [pairs of all sessions, in session order], finite */
} pb_sim_row;

typedef struct pb_sim_opts {
    pb_pair_opts rule;
    bool family;    /* the rows gate together, in one family; false: each row is a comparison of its own */
    bool same_code; /* both sides of every comparison are the same code, so nothing is centred */
    double inject;  /* injected change as a share: 0.02 makes the row 2 % worse */
    int trials;     /* number of resampled comparisons; for each row if `family` is false */
} pb_sim_opts;

typedef struct pb_sim_count {
    int comparisons;
    int alarms;       /* comparisons with a REGRESSED row */
    int improvements; /* comparisons with an IMPROVED row */
    int undecided;    /* comparisons with an INCONCLUSIVE row after the last look */
    int early;        /* comparisons whose rows were all decided at the first look */
} pb_sim_count;

typedef struct pb_sim_found {
    double sd;        /* standard deviation of the pairs' differences, over all sessions */
    int found, early; /* trials, of o->trials, in which the injected change was found; found at the first look */
    /* Smallest change, as a logarithm, that a share rule.power of PB_SIM_SEARCH trials finds, within 3 %; +inf: not
     * even a factor of e^5 is found. */
    double detectable;
} pb_sim_found;
enum { PB_SIM_SEARCH = 200 }; /* at most o->trials */

typedef struct pb_simulation {
    pb_sim_count recorded, resampled;
    int injected, found, early; /* trials, summed over the rows */
    double detectable;          /* median over the rows */
    int pairs;                  /* recorded pairs, over all sessions */
} pb_simulation;

/* Fills found[0..n), in the order of the rows, and *out. EINVAL: no rows; a difference is not finite; an option is out
 * of range; a session has no pair (or only one, if it is centred); all sessions together have fewer pairs than the
 * first look. ENOMEM. Takes about 0.1 ms per trial and row, twice that if the second look is needed, plus 0.2 s per row
 * and, in a family, per pair of rows. */
pb_status pb_simulate(const pb_sim_row *rows, size_t n, const pb_sim_session *sessions, int nsessions,
                      const pb_sim_opts *o, pb_sim_found *found, pb_simulation *out);
#endif
