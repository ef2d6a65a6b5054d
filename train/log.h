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

enum { PB_LOG_WHY = 400 }; /* bytes of the message of an error, with NUL */

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
/* Finds the errors of pb_log_open, but for those of a full disk, and changes no file. */
pb_status pb_log_check(const char *path, long after);
/* EIO: the disk is full, for example; the file then ends with the row before. */
pb_status pb_log_write(pb_log *l, const pb_log_row *r);
pb_status pb_log_close(pb_log *l); /* {0} is allowed */
#endif
