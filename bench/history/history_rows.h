/* history_rows.h - the rows of a history: values by session, read from stored baselines or run folders. */
#ifndef PB_HISTORY_ROWS_H
#define PB_HISTORY_ROWS_H
#include "bench/history/history_command.h"
#include "bench/rows/rows.h"

/* The value of a row in one session. */
typedef struct pb_history_value {
    const char *machine_id, *key, *metric, *unit, *better, *bench_version;
    const char *run_id; /* without PB_BASELINE_RUN */
    const char *commit; /* "": not known */
    double value;
} pb_history_value;

typedef struct pb_history_row {
    const pb_history_value *v; /* [n], oldest first; all members but run_id, commit and value are equal */
    int n;
    const pb_change_point *change; /* [changes], oldest first */
    int changes;
} pb_history_row;

typedef struct pb_history_rows {
    pb_history_row *row; /* [n], sorted by machine, key and metric */
    int n;
    int other_version; /* values left out because of their bench_version */
    /* Owned; the rows point to these. */
    pb_history_value *value;
    size_t values, room;
    pb_change_point *change;
    pb_table *table;
    int tables;
    pb_strings *strings;
} pb_history_rows;

/* Reads the sessions, selects the rows that `o` asks for and finds their change points. Call pb_history_rows_free()
 * also after a failure. EPATH, EIO: a file cannot be read; EINVAL: a file is wrong, two folders hold one run, or no row
 * remains; ENOMEM. */
pb_status pb_history_rows_read(const pb_history_opts *o, pb_history_rows *out);
void pb_history_rows_free(pb_history_rows *h);

enum { PB_HISTORY_TIME = 40 };
/* Writes the time of a session, "2026-01-31T12:00:00Z". False: its run_id does not begin with a time, and is written. */
bool pb_history_time(const char *run_id, char out[PB_HISTORY_TIME]);
/* The larger p-value of both tests. */
static inline double pb_history_p(const pb_change_point *c) { return c->p_shuffle > c->p_t ? c->p_shuffle : c->p_t; }
/* Writes the commits that may have brought a change, as git log takes them: "1234..5678" from the commit of the session
 * before to that of the first one after; "1234" if both are equal; "unknown" if one of them is. */
enum { PB_HISTORY_COMMITS = 160 };
void pb_history_commits(const pb_history_row *r, const pb_change_point *c, char out[PB_HISTORY_COMMITS]);
#endif
