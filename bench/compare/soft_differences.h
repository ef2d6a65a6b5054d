/* soft_differences.h - prints what may explain a difference between two runs: how the soft parts and the environments
 * of their fingerprints (fingerprint.h) differ. */
#ifndef PB_SOFT_DIFFERENCES_H
#define PB_SOFT_DIFFERENCES_H
#include <jansson.h>
#include <stdio.h>

/* The fingerprint in run.json of a run, which the caller decrefs. `results` is the run folder or its results.csv. NULL:
 * no run.json, or no fingerprint in it. */
json_t *pb_run_fingerprint(const char *results);

/* Prints a line such as "note: driver differs: 570.1 -> 580.2" for each difference. base and cand are run folders or
 * their results.csv. Prints nothing if a side has no run.json, as for a stored baseline or a single CSV file. */
void pb_soft_differences(const char *base, const char *cand, FILE *out);
#endif
