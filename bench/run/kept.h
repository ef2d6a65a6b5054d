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
/* EINVAL unless each file has at least that many bytes and a line ends there, the rows before that byte can be read, and
 * all of them are of launches below `launches`. EPATH, EIO, ENOMEM. Changes nothing. */
pb_status pb_kept_check(const char *dir, const pb_kept *k, int launches);
/* Cuts dir/name to its first `length` bytes; a shorter file stays as it is. EPATH, EIO. */
pb_status pb_kept_cut_file(const char *dir, const char *name, long long length);
/* Cuts both files. EPATH, EIO. */
pb_status pb_kept_cut(const char *dir, const pb_kept *k);
#endif
