/* session_file.h - turns a run into a session (baseline.h describes its rows), and writes files of sessions. */
#ifndef PB_SESSION_FILE_H
#define PB_SESSION_FILE_H
#include "bench/compare/gates.h"
#include "bench/rows/rows.h"

/* A session that is to be added to a file. All pointers are borrowed, also by the rows made from it. */
typedef struct pb_new_session {
    const pb_series_set *set; /* the series of the run */
    const char *suite, *run_id, *reason;
    const pb_gates *gates;
    const char *commit; /* the commit that the run measured; stored in every row of the session */
} pb_new_session;

/* Fails if a run cannot become a session: the run is empty, has rows of several runs, machines or versions, a wrong or
 * failed case, or too few processes for a row that is stored (one that gates is), or was measured by a program with
 * sanitizers, coverage counters or without optimisation (build.h). The last is read from run.json next to the results,
 * and not checked without one. EINVAL. */
pb_status pb_session_check(const pb_table *t, const pb_series_set *set, const pb_gates *gates);
/* Allocates the rows of `old` (NULL: none) and of the new session, in the order of a file: by session, oldest first,
 * then by key, then by metric. The caller frees *rows, also on failure. ENOMEM. */
pb_status pb_session_rows(const pb_table *old, const pb_new_session *new, pb_row **rows, size_t *n);

/* Removes from rows[*n] all but the newest `most` values of each key and metric; the order stays. So a session of few
 * cases does not displace an older one of other cases. ENOMEM. */
pb_status pb_session_limit(pb_row *rows, size_t *n, int most);

/* Creates the folder, and locks it, because an update reads a file and writes it again: a concurrent update waits here.
 * Closing *out releases the lock. A file system without locks is used without one. EPATH, EIO. */
pb_status pb_session_lock(const char *folder, int *out);
/* Replaces the file atomically. EPATH, EIO, ENOMEM. */
pb_status pb_session_write(const char *path, const pb_row *rows, size_t n);
#endif
