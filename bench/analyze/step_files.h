/* step_files.h - the files stepN-rankR.csv that `train` wrote, one for each recorded step and rank. Private to
 * bench/analyze. */
#ifndef PB_STEP_FILES_H
#define PB_STEP_FILES_H
#include <dirent.h>

#include "os/status.h"

enum { PB_STEP_PATH = 1400 };

typedef struct pb_step_files {
    char folder[PB_STEP_PATH - 300]; /* leaves room for a file's name */
    struct dirent **names;           /* [n], sorted by name */
    int n;
} pb_step_files;

/* Lists the files of RUN/SUB. EINVAL: RUN/SUB has no such file, and the message ends with `advice`; or the path is too
 * long. Free with pb_step_files_free(). */
pb_status pb_step_files_list(const char *run, const char *sub, const char *advice, pb_step_files *out);
/* The path of file number i. */
void pb_step_files_path(const pb_step_files *f, int i, char path[PB_STEP_PATH]);
void pb_step_files_free(pb_step_files *f); /* {0} is allowed */
#endif
