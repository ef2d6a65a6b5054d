/* simulate_files.h - `bench compare --simulate`: recorded launches through the rule (simulate.h has the method).
 *
 * Each argument is one session: a folder of pairs (base/ and cand/ are run folders, their column `launch` the number of
 * the pair), or a run of one code with many launches (a run folder or a results CSV), whose launches are taken in the
 * order of `launch`, two neighbours a pair, an odd one left over. Judged are the rows that gate by gates.csv, as one
 * family; where none of them gates, every row with more than one sample a launch, each as a comparison of its own. A
 * row that a launch of any session lacks is left out, and counted.
 *
 * Prints what was recorded, the rates, the rows that see least (all of them: `all`), what the figures do not say, and
 * as the last line "bench: launches=48 pairs=24 rows=58 recorded=58 recorded_alarms=0 recorded_undecided=2
 * recorded_min=0 recorded_max=0.0504 ... exit=0": recorded_undecided are the comparisons that were too noisy to say,
 * recorded_min and recorded_max bound the share of alarms in the comparisons as they were recorded, each with 95 %
 * confidence; of pairs whose candidate was slowed, said to be the same code, that share is the share found.
 *
 * PB_EXIT_USAGE and PB_EXIT_HARNESS: nothing is printed, and pb_error() holds the one line that says why: also of
 * fewer launches than the first look needs, and of sessions from several machines or versions. */
#ifndef PB_SIMULATE_FILES_H
#define PB_SIMULATE_FILES_H
#include <stdio.h>

#include "bench/pairs/launch_values.h"
#include "bench/pairs/simulate.h"

typedef struct pb_simulate_opts {
    const char *gates, *baselines; /* as in pb_compare_opts */
    double inject;                 /* 0.02; below 0: that */
    long pairs, max_pairs, trials;
    bool same_code, all;
} pb_simulate_opts;

pb_exit pb_simulate_files(const char *const *paths, int n, const pb_simulate_opts *o, FILE *out);

/* ---- between reading and printing ---------------------------------------------------------------- */

typedef struct pb_sim_recorded {
    pb_launch_values *file; /* [nfiles]; strings below are theirs */
    int nfiles;
    pb_sim_session *sessions;
    int nsessions, pairs, launches;
    int sided; /* sessions that are */
    pb_sim_row *rows;
    double *log_ratio; /* [n][pairs] */
    size_t n, left_out;
    bool family;
} pb_sim_recorded;

/* On failure *out holds nothing that needs freeing. */
pb_status pb_sim_read(const char *const *paths, int n, const pb_gates *gates, pb_sim_recorded *out);
void pb_sim_free(pb_sim_recorded *r);
/* ENOMEM. */
pb_status pb_sim_print(const pb_sim_recorded *r, const pb_sim_opts *o, const pb_sim_found *found,
                       const pb_simulation *sum, bool all, FILE *out);
#endif
