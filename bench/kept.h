/* kept.h - what stays of results.csv and samples.csv when a run goes on: their first bytes. Checked before anything is
 * cut off, because what is cut off is lost. */
#ifndef PB_KEPT_H
#define PB_KEPT_H
#include "os/status.h"

typedef struct pb_kept {
    long long results, samples; /* bytes */
} pb_kept;

/* The sizes of the two files in the folder `dir`. EPATH, EIO. */
pb_status pb_kept_sizes(const char *dir, pb_kept *out);
/* EINVAL unless both files are as long and a line ends there, the rows up to there can be read, and all are of launches
 * below `launches`. EPATH, EIO, ENOMEM. Changes nothing. */
pb_status pb_kept_check(const char *dir, const pb_kept *k, int launches);
/* Cuts both files. EPATH, EIO. */
pb_status pb_kept_cut(const char *dir, const pb_kept *k);
#endif
