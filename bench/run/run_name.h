/* run_name.h - the name of a new run: its time, its id and its folder. */
#ifndef PB_RUN_NAME_H
#define PB_RUN_NAME_H
#include <stdbool.h>
#include <stdint.h>

#include "os/status.h"

enum { PB_RUN_DIR_TEXT = 1024 };
typedef struct pb_run_name {
    char time_utc[32];         /* UTC, "2026-01-31T12:00:00Z" */
    char run_id[128];          /* "20260131T120000Z-kernels-1a2b" */
    char dir[PB_RUN_DIR_TEXT]; /* as requested, or runs/20260131T120000Z-kernels-1a2b */
    uint32_t mark;             /* random; its upper half ends run_id, so that runs of the same second differ */
} pb_run_name;

/* Fills *out. `what` is the suite or tool that the name contains; `dir` is the folder, NULL: a new folder of runs/. */
void pb_run_name_new(const char *what, const char *dir, pb_run_name *out);
/* The files of a run, in the order in which they are created. */
enum { PB_RUN_FILES = 5 };
extern const char *const pb_run_files[PB_RUN_FILES];
/* True if `path` names one of these files in a folder that is a run. */
bool pb_is_run_file(const char *path);
/* Creates the folder and its parents, as mkdir -p does. EINVAL: the path is too long; EPATH: also a folder that exists and
 * is not empty; EIO. */
pb_status pb_run_make_folder(const char *dir);
#endif
