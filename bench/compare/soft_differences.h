/* soft_differences.h - reads the fingerprints (fingerprint.h) of runs. Prints how the soft parts and environments of
 * two runs differ, which may explain why their values differ. */
#ifndef PB_SOFT_DIFFERENCES_H
#define PB_SOFT_DIFFERENCES_H
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* The fingerprint in run.json of a run, which the caller decrefs. `results` is the run folder or its results.csv. NULL:
 * no run.json, or no fingerprint in it. */
json_t *pb_run_fingerprint(const char *results);

/* Prints a line such as "note: driver differs: 570.1 -> 580.2" for each difference. base and cand are run folders or
 * their results.csv. Prints nothing if a side has no run.json, as for a stored baseline or a single CSV file. */
void pb_soft_differences(const char *base, const char *cand, FILE *out);
/* True if the run, a folder or its results.csv, was measured on a GPU whose clocks bench had locked. False also if
 * there is no run.json. */
bool pb_run_locked_clocks(const char *run);
/* True if the run counted (--counters, --instructions), so that it has no times. False also if there is no run.json. */
bool pb_run_counted(const char *run);
#endif
