/* simulate_files.h - `bench compare --simulate`: applies the rule to recorded results. simulate.h describes the method.
 *
 * Each argument is of one of three kinds:
 *
 *   folder of pairs  One session. base/ and cand/ are run folders, whose column `process` is the number of the pair.
 *   run              One session: a run folder or results CSV of many processes of one program. Sorted by `process`,
 *                    the first and second form a pair, then the third and fourth, and so on; an odd last process
 *                    is ignored.
 *   stored pairs     A CSV of one or more sessions of pairs (stored_pairs.h). It gives the figures that its folders of
 *                    pairs would give.
 *
 * The rows that gate by gates.csv are judged as one family. If none gates, every row with more than one sample per
 * process is judged as a comparison of its own. A row that some process of any session lacks is left out and counted.
 *
 * Prints what was recorded, the rates, the rows with the largest detectable change (`all`: every row), notes on what
 * the figures do not cover, and as the last line (wrapped here)
 *
 *   bench: processes=48 pairs=24 rows=58 recorded=58 recorded_alarms=0 recorded_undecided=2 recorded_min=0
 *   recorded_max=0.0504 ... exit=0
 *
 * There, recorded is the number of recorded comparisons and recorded_undecided the number of those with an INCONCLUSIVE
 * row. recorded_min and recorded_max each bound the share of comparisons with an alarm, with 95 % confidence. If the
 * candidate had an injected delay and both sides are said to be the same code, that share is the detection rate.
 *
 * PB_EXIT_USAGE and PB_EXIT_HARNESS: nothing is printed, and pb_error() holds the reason in one line. Reasons include
 * fewer processes than the first look needs, and sessions from several machines or versions. */
#ifndef PB_SIMULATE_FILES_H
#define PB_SIMULATE_FILES_H
#include <stdio.h>

#include "bench/pairs/process_values.h"
#include "bench/pairs/simulate.h"
#include "bench/pairs/stored_pairs.h"

typedef struct pb_simulate_opts {
    const char *gates, *baselines; /* path and folder; see pb_compare_opts */
    double inject;                 /* injected change as a share; negative: the default, 0.02 */
    /* pairs: first look, <= 0: default; max_pairs: second look, <= 0: twice the first; trials: as in pb_sim_opts. */
    long pairs, max_pairs, trials;
    bool same_code, all; /* same_code: as in pb_sim_opts; all: print every row */
} pb_simulate_opts;

/* Reads the sessions, simulates and prints. Returns the exit code described above. */
pb_exit pb_simulate_files(const char *const *paths, int n, const pb_simulate_opts *o, FILE *out);

/* ---- shared by simulate_files.c and simulate_print.c --------------------------------------------- */

typedef struct pb_sim_recorded {
    pb_process_values *file; /* [nfiles] results read; with `stored` they own the strings used below */
    pb_stored_pairs *stored; /* [nstored] stored pairs read */
    int nfiles, nstored;
    const pb_row *first;    /* the first row read, whose machine and version all others have */
    const char *first_path; /* the file of that row */
    pb_sim_session *sessions;
    int nsessions, pairs, processes;
    int paired; /* number of sessions that are comparisons */
    pb_sim_row *rows;
    double *log_ratio;  /* [n][pairs] storage of rows[].log_ratio */
    size_t n, left_out; /* rows used, and rows that some process lacks */
    bool family;        /* some row gates, so `rows` holds only gating ones */
} pb_sim_recorded;

/* Reads n sessions; free with pb_sim_free. On failure *out holds nothing that needs freeing. */
pb_status pb_sim_read(const char *const *paths, int n, const pb_gates *gates, pb_sim_recorded *out);
void pb_sim_free(pb_sim_recorded *r);
/* Prints the result of a simulation. ENOMEM. */
pb_status pb_sim_print(const pb_sim_recorded *r, const pb_sim_opts *o, const pb_sim_found *found,
                       const pb_simulation *sum, bool all, FILE *out);
#endif
