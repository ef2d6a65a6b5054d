/* kept.h - how much of results.csv and samples.csv a resumed run keeps: the bytes up to the last completed case. The
 * rest is truncated. Truncation loses data, so callers check both files first. */
#ifndef PB_KEPT_H
#define PB_KEPT_H
#include "os/status.h"

typedef struct pb_kept {
    long long results, samples; /* bytes to keep */
} pb_kept;

/* Sets *out to the current sizes of the two files in folder `dir`. EPATH, EIO. */
pb_status pb_kept_sizes(const char *dir, pb_kept *out);
/* Checks both files without changing them. EINVAL unless each file has at least the bytes in *k and a line ends there,
 * the kept rows of results.csv can be parsed and have process numbers below `processes`, and both files begin with the
 * header that this program writes. EPATH, EIO, ENOMEM. */
pb_status pb_kept_check(const char *dir, const pb_kept *k, int processes);
/* Truncates dir/name to `length` bytes. A shorter file is not changed. EPATH, EIO. */
pb_status pb_kept_cut_file(const char *dir, const char *name, long long length);
/* Truncates both files to the sizes in *k. EPATH, EIO. */
pb_status pb_kept_cut(const char *dir, const pb_kept *k);
#endif
