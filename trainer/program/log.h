/* log.h - the CSV of a run: one row a step, written at once; its columns are log.def, then status and note. */
#ifndef PB_LOG_H
#define PB_LOG_H
#include <stdio.h>

#include "os/status.h"

typedef struct pb_log_row {
#define LOG(name, format, what) double name;
#include "trainer/program/log.def"
#undef LOG
    const char *status, *note; /* "ok" or "skipped", and why; without commas or quotes */
} pb_log_row;

typedef struct pb_log {
    FILE *f; /* NULL: no log */
    const char *path;
} pb_log;

/* path NULL: no log. `after` -1: a new file. `after` > 0: the file may exist; its rows of later steps are cut off, also
 * a half-written one, and the log goes on. `after` 0 (a run resumes without a checkpoint): a file with rows is renamed
 * to PATH.1 (PATH.2, ...), and a new one begins. EPATH: the file exists, cannot be opened, or is no regular file;
 * EINVAL: it is no such log, and stays as it is; EIO. */
pb_status pb_log_open(const char *path, long after, pb_log *out);
pb_status pb_log_write(pb_log *l, const pb_log_row *r);
pb_status pb_log_close(pb_log *l); /* {0} is fine */
#endif
