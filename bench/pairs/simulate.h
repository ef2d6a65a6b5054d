/* simulate.h - how often the rule of pair_rule.h is wrong and right on one machine, from launches recorded there. Pure:
 * arrays in, rates out, the same arrays the same rates.
 *
 * Recorded are differences of pairs of launches that followed each other, d = ln x - ln y, of every row (a key and
 * metric), session by session. Two kinds of session:
 *
 *   neighbours of one run     launches 1 and 2, 3 and 4, ... of the same code. The order within a pair is what a coin
 *                             would have made of it: the sign of d is drawn
 *   sides of a comparison     d = cand - base as recorded. Unless the code of both sides is said to be the same, each
 *                             row's mean of the session is taken off (centring: what is left is noise, whatever the
 *                             effect was) and the rest stretched by sqrt(n/(n-1)), which is what that took of its
 *                             spread
 *
 * Of these, two distributions of comparisons without a difference (A/A):
 *
 *   recorded    every session cut into comparisons of look[1] pairs in their order, and a last one of the rest when it
 *               has look[0]; no launch is in two. Few, but drift, order and modes are as they happened. Exact for A/A;
 *               of centred sessions the comparisons share their mean
 *   resampled   comparisons of look[1] pairs from blocks of PB_SIM_BLOCK consecutive pairs of a session, begun anywhere
 *               in it and going round its end (circular block bootstrap: Politis and Romano 1992), so that modes that
 *               last for some launches stay together; all rows from the same pairs, so that rows stay as dependent as
 *               they are. Every pair's sign is drawn: the coin of a real comparison (sign symmetry holds with it
 *               whatever the noise, so drift changes sign as it would)
 *
 * Each goes through the whole rule: both looks, Holm over the rows. A false alarm is a comparison with any REGRESSED.
 * A change is injected into the resampled comparisons by adding ln(1 + inject) to one row at a time; the other rows
 * stay in the family as tests that find nothing, so that the rate is what is found with no help from them.
 *
 * What it assumes: sessions like these to come, and pairs further apart than a block independent. What it cannot do:
 * show what was not recorded (a neighbour that wakes at night, another build's memory layout), or be more certain than
 * the recorded launches: the bounds of resampled rates hold for more resampling, not for more recording. */
#ifndef PB_SIMULATE_H
#define PB_SIMULATE_H
#include "bench/pairs/pair_rule.h"

enum { PB_SIM_BLOCK = 4 };

typedef struct pb_sim_session {
    int pairs;
    bool sided; /* of a comparison; false: neighbours of one run */
} pb_sim_session;

typedef struct pb_sim_row {
    const char *key, *metric;
    bool higher;             /* more is better */
    const double *log_ratio; /* [pairs of all sessions, one session after the other], finite */
} pb_sim_row;

typedef struct pb_sim_opts {
    pb_pair_opts rule;
    bool family;    /* the rows gate together; false: every row is a comparison of its own */
    bool same_code; /* of both sides of every session: nothing is centred */
    double inject;  /* 0.02: 2 % worse */
    int trials;     /* resampled comparisons, of every row where there is no family */
} pb_sim_opts;

typedef struct pb_sim_count {
    int comparisons;
    int alarms;    /* with a REGRESSED */
    int welcomes;  /* with an IMPROVED */
    int undecided; /* with an INCONCLUSIVE in the end */
    int early;     /* decided, all of it, at the first look */
} pb_sim_count;

typedef struct pb_sim_found {
    double sd;         /* of a pair, over all sessions */
    int found, early;  /* of o->trials with the injected change in this row; at the first look */
    double detectable; /* the least change, as a logarithm, that a share rule.power of PB_SIM_SEARCH trials finds, to 3
                          % of itself; +inf above a factor of e^5 */
} pb_sim_found;
enum { PB_SIM_SEARCH = 200 }; /* or as many trials as there are */

typedef struct pb_simulation {
    pb_sim_count recorded, resampled;
    int injected, found, early; /* sums over the rows */
    double detectable;          /* the median of the rows' */
    int pairs;                  /* recorded, of all sessions */
} pb_simulation;

/* Fills found[0..n), beside the rows, and *out. EINVAL: no rows, a difference that is not finite, an option out of
 * range, a session without pairs (or of one, where it is centred), fewer pairs than the first look. ENOMEM. Takes some
 * 0.1 ms a trial and row, twice that where the noise asks for the second look, and a fifth of a second a row. */
pb_status pb_simulate(const pb_sim_row *rows, size_t n, const pb_sim_session *sessions, int nsessions,
                      const pb_sim_opts *o, pb_sim_found *found, pb_simulation *out);
#endif
