/* progress.h - progress.csv of a run's folder: how far the run is, for `bench run --resume`.
 *
 * Columns launch,case,results,samples: what is to be measured next (a case by its place in the launch's order; behind
 * the last one come the conclusions) and how many bytes of results.csv and samples.csv belong to what came before. A
 * line is written when a case is whole, so that whatever lies behind the last line's lengths is a part of one. */
#ifndef PB_PROGRESS_H
#define PB_PROGRESS_H
#include "bench/run/kept.h"

typedef struct pb_place {
    int launch, next;
} pb_place;

/* A line of progress.csv: what is next, what of the other files came before, and where the line ends. */
typedef struct pb_progress_line {
    pb_place next;
    pb_kept kept;
    long long end; /* byte of progress.csv */
} pb_progress_line;

/* Makes progress.csv with the line "launch 0, case 0 is next". EPATH: it exists, or cannot be made; EIO. */
pb_status pb_progress_create(const char *dir);
/* Appends "this is next, and the files are as long as they are now". */
pb_status pb_progress_mark(const char *dir, pb_place next);
/* The last line that results.csv and samples.csv are long enough for. Changes nothing. EINVAL: there is none; a line is
 * malformed, or its place is beyond launch most.launch or case most.next; or what would stay of the other files fails
 * pb_kept_check. EPATH, EIO, ENOMEM. */
pb_status pb_progress_read(const char *dir, pb_place most, pb_progress_line *out);
/* Cuts all three files back to that line. */
pb_status pb_progress_cut(const char *dir, const pb_progress_line *to);
/* Cuts progress.csv, then results.csv back to where the launch began, for whoever appends its rows again. EINVAL: no
 * line says where that is. */
pb_status pb_progress_rewind(const char *dir, int launch);
/* Keeps other processes from resuming the run until this one and its children have ended, or close *fd. EINVAL: the run
 * is still being measured, ten seconds later. */
pb_status pb_progress_lock(const char *dir, int *fd);
#endif
