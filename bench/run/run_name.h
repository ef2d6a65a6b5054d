/* run_name.h - what a new run is called: its time, an identity, and its folder. */
#ifndef PB_RUN_NAME_H
#define PB_RUN_NAME_H
#include <stdint.h>

#include "os/status.h"

enum { PB_RUN_DIR_TEXT = 1024 };
typedef struct pb_run_name {
    char time_utc[32];         /* "2026-01-31T12:00:00Z" */
    char run_id[128];          /* "20260131T120000Z-kernels-1a2b" */
    char dir[PB_RUN_DIR_TEXT]; /* as asked for, or runs/20260131T120000Z-kernels */
    uint32_t mark;             /* random */
} pb_run_name;

/* `what` is the suite or tool; `dir` NULL: one of runs/. */
void pb_run_name_new(const char *what, const char *dir, pb_run_name *out);
/* mkdir -p. EINVAL: too long; EPATH, EIO. */
pb_status pb_run_make_folder(const char *dir);
#endif
