/* soft_differences.h - what may explain a difference between two runs: the soft parts and the environments of their
 * fingerprints (fingerprint.h), side by side. */
#ifndef PB_SOFT_DIFFERENCES_H
#define PB_SOFT_DIFFERENCES_H
#include <stdio.h>

/* One line "note: driver differs: 570.1 -> 580.2" for each, from run.json beside the two results. Nothing where a side
 * has none, as a stored baseline or a lone CSV. */
void pb_soft_differences(const char *base, const char *cand, FILE *out);
#endif
