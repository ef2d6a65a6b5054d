/* log.h - writes the CSV log of a run (--log): one row per step, flushed after each step. The columns are listed in
 * log.def; two more, status and note, follow them. */
#ifndef PB_LOG_H
#define PB_LOG_H
#include <stdio.h>

#include "os/status.h"

typedef struct pb_log_row {
#define LOG(name, format, what) double name;
#include "train/log.def"
#undef LOG
    /* status: "ok" or "skipped". note: why the step was skipped; its commas are written as semicolons; empty: it
     * was not skipped. */
    const char *status, *note;
} pb_log_row;

typedef struct pb_log {
    FILE *f; /* NULL: no log */
    const char *path;
} pb_log;

/* Opens the log. path NULL: no log.
 *
 *     after < 0    a new file
 *     after > 0    continue after step `after`: rows of later steps and an incomplete last row are removed; a missing
 *                  file is created
 *     after = 0    the run resumes without a checkpoint: a file with rows is renamed to PATH.1 (PATH.2, ...), and a new
 *                  one begins
 *
 * EPATH: a new file is requested but the file exists, or it cannot be opened or is not a regular file. EINVAL: the
 * existing file is not a log of `train --log`; it is not changed. EIO. */
pb_status pb_log_open(const char *path, long after, pb_log *out);
/* Makes the checks of pb_log_open without changing a file. A later pb_log_open fails only if writing or renaming does.
 * made: folders that will exist by then, or NULLs; [n] */
pb_status pb_log_check(const char *path, long after, const char *const *made, size_t n);
/* EIO: the disk is full, for example; the file then ends with the row before. */
pb_status pb_log_write(pb_log *l, const pb_log_row *r);
pb_status pb_log_close(pb_log *l); /* {0} is allowed */
#endif
