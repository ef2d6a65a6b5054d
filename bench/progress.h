/* progress.h - progress.csv of a run's folder: how far the run is, for `bench run --resume`.
 *
 * Columns launch,case,results,samples: what is to be measured next (a case by its place in the launch's order; behind
 * the last one come the conclusions) and how many bytes of results.csv and samples.csv belong to what came before. A
 * line is written when a case is whole, so that whatever lies behind the last line's lengths is a part of one. */
#ifndef PB_PROGRESS_H
#define PB_PROGRESS_H
#include "os/status.h"

typedef struct pb_place {
    int launch, next;
} pb_place;

/* Appends "this is next, and the files are as long as they are now"; creates progress.csv with its header line. */
pb_status pb_progress_mark(const char *dir, pb_place next);
/* Cuts the files back to the last line that they are long enough for, and says what comes next. EINVAL: there is none.
 */
pb_status pb_progress_cut(const char *dir, pb_place *next);
/* Cuts progress.csv, then results.csv back to where the launch began, for whoever appends its rows again. EINVAL: no
 * line says where that is. */
pb_status pb_progress_rewind(const char *dir, int launch);
/* Keeps other processes from resuming the run until this one and its children have ended, or close *fd. EINVAL: the run
 * is still being measured, ten seconds later. */
pb_status pb_progress_lock(const char *dir, int *fd);
#endif
