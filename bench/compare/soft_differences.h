/* soft_differences.h - prints what may explain a difference between two runs: how the soft parts and the environments
 * of their fingerprints (fingerprint.h) differ. */
#ifndef PB_SOFT_DIFFERENCES_H
#define PB_SOFT_DIFFERENCES_H
#include <stdio.h>

/* Prints a line such as "note: driver differs: 570.1 -> 580.2" for each difference. base and cand are run folders or
 * their results.csv. Prints nothing if a side has no run.json, as for a stored baseline or a single CSV file. */
void pb_soft_differences(const char *base, const char *cand, FILE *out);
#endif
