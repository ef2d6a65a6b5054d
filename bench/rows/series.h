/* series.h - joins the rows of a table over processes and sessions, into one series per key and metric.
 *
 * A session is one run: all rows with one run_id. A results.csv holds one session, a stored baseline several. */
#ifndef PB_SERIES_H
#define PB_SERIES_H
#include <string.h>

#include "bench/rows/read.h"

/* The least processes for a verdict or a baseline: fewer do not show how much values differ between processes. */
enum { PB_ENOUGH_PROCESSES = 3 };

/* A session's value: the median over its processes. */
typedef struct pb_session {
    const char *run_id;
    double value;
    const char *host; /* of the session's first row: who measured it (bench/machine/host_identity.h) */
    bool kept;        /* a kept session, not one of the baseline (bench/compare/kept_sessions.h) */
} pb_session;

/* All rows of one key and metric. The strings belong to the table, `session` to the pb_series_set. Rows with status
 * throttled are used only if all rows are throttled. */
typedef struct pb_series {
    const char *key, *metric, *unit, *better;
    const char *machine_id, *host, *bench_version, *run_id; /* the values in the first row */
    pb_row_status status;      /* the most severe of its processes; of a stored baseline, the newest session's.
                                  PB_ROW_THROTTLED: all rows are throttled */
    const char *note;          /* the note of the row that has this status */
    bool mixed;                /* rows differ in machine, bench_version or unit, so they cannot be compared */
    bool refuted;              /* a row with status ok is impossible or wrong: a time or rate <= 0, or a value outside
                                  its absolute bound (metric.h). status is then PB_ROW_WRONG, note gives the reason */
    int processes;             /* processes with a value and status ok, pass or fail, or throttled if all rows are;
                                  stored: summed over sessions */
    int throttled;             /* throttled rows that were left out */
    int sessions;              /* sessions with at least one value */
    const pb_session *session; /* [sessions], oldest first: run_ids begin with the time */
    double median, min, max;   /* over all processes; stored: over the sessions. NaN: no value */
    double scatter; /* variance of the logarithms over the processes of a run. NaN: the rows are stored, of several
                       sessions or of one process, or a value is <= 0 */
    double trend;   /* fraction by which the first third of the samples is slower than the last third (trend.h), the
                     median over processes: 0 unless at least half of them have a trend */
} pb_series;

typedef struct pb_series_set {
    pb_series *s; /* sorted by key, then metric */
    size_t n;
    pb_session *sessions; /* the array that every pb_series.session points into */
    size_t controls; /* number of series of control cases (pb_key_is_control). They follow in s[n..n + controls), in
                             the same order, so that no table, verdict or stored session takes them for cases. A
                             control that is wrong or failed is among the others: that counts */
} pb_series_set;

/* Joins the rows of t, which must outlive *out. Free *out with pb_series_free(); on failure it needs no free. EINVAL: a
 * stored session has two rows with one key and metric. */
pb_status pb_series_make(const pb_table *t, pb_series_set *out);
void pb_series_free(pb_series_set *set);
/* NULL: the set has no such series. Does not look among the controls; pb_series_find_control() looks only there. */
const pb_series *pb_series_find(const pb_series_set *set, const char *key, const char *metric);
const pb_series *pb_series_find_control(const pb_series_set *set, const char *key, const char *metric);
/* The sort order of a set: < 0, 0 or > 0 as strcmp(). */
static inline int pb_series_order(const char *key_a, const char *metric_a, const char *key_b, const char *metric_b)
{
    int by_key = strcmp(key_a, key_b);
    return by_key ? by_key : strcmp(metric_a, metric_b);
}

static inline bool pb_series_ok(const pb_series *s) { return s->status == PB_ROW_OK; }
static inline bool pb_series_throttled(const pb_series *s) { return s->status == PB_ROW_THROTTLED; }
/* The number of bytes of the suite's name, with which every key begins. */
static inline size_t pb_suite_length(const char *key) { return strcspn(key, "/"); }
/* True if the key is one of this suite. */
static inline bool pb_key_of(const char *key, const char *suite)
{
    return strlen(suite) == pb_suite_length(key) && !strncmp(key, suite, strlen(suite));
}

/* The index after the last series of the suite whose series begin at index `from`. */
size_t pb_suite_end(const pb_series_set *set, size_t from);

/* The run_id of the newest session that has a value in those of the series [from, to) that are of as many ranks as
 * `key`, kept sessions excepted: these hold only rows that the candidate has, so they do not show which rows the
 * candidate lacks. "": none of these series has a value. */
const char *pb_newest_session(const pb_series_set *set, size_t from, size_t to, const char *key);

/* The run_id of every row of a stored baseline begins with this prefix. A stored baseline has one row per key, metric
 * and session; its column `process` is the number of processes that the value is the median of. */
#define PB_BASELINE_RUN "baseline:"
static inline bool pb_stored(const char *run_id) { return !strncmp(run_id, PB_BASELINE_RUN, strlen(PB_BASELINE_RUN)); }
#endif
