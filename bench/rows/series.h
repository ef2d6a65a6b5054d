/* series.h - the rows of a table joined over launches and sessions: one entry per key and metric. A session is a run:
 * what has one run_id. */
#ifndef PB_SERIES_H
#define PB_SERIES_H
#include <string.h>

#include "bench/rows/read.h"

/* Fewer processes than this show nothing of how figures differ between them: no verdict, and no baseline. */
enum { PB_ENOUGH_LAUNCHES = 3 };

/* One session's figure: the median over its launches. */
typedef struct pb_session {
    const char *run_id;
    double value;
} pb_session;

/* Strings belong to the table. Without such a launch the figures are NaN. */
typedef struct pb_series {
    const char *key, *metric, *unit, *better;
    const char *machine_id, *bench_version, *run_id; /* of its first row */
    const char *status, *note; /* the worst over launches, and its note; of stored sessions, the newest one's;
                                  throttled: all were */
    bool mixed;                /* rows of several machines, versions or units: nothing can be said */
    bool refuted;              /* a row of status ok holds what cannot be right: a time or rate that is not above zero,
                                  a figure beyond its absolute bound (metric.h). status is then wrong, note says it */
    int launches;              /* with a figure of status ok, pass or fail; stored: the sum over sessions */
    int throttled;             /* rows whose figures do not count, because other launches were not throttled */
    int sessions;              /* with such a figure */
    const pb_session *session; /* [sessions], oldest first: run_ids begin with the time */
    double median, min, max;   /* over all launches; stored: over the sessions */
    double trend; /* by which its launches had not warmed up (trend.h), the median over them: 0 unless half of them say
                     so */
} pb_series;

typedef struct pb_series_set {
    pb_series *s; /* sorted by key, then metric */
    size_t n;
    pb_session *sessions; /* what the series point into */
} pb_series_set;

/* EINVAL: a stored session with two rows of a key and metric. */
pb_status pb_series_make(const pb_table *t, pb_series_set *out);
void pb_series_free(pb_series_set *set);
const pb_series *pb_series_find(const pb_series_set *set, const char *key, const char *metric); /* or NULL */
static inline int pb_series_order(const char *key_a, const char *metric_a, const char *key_b, const char *metric_b)
{
    int by_key = strcmp(key_a, key_b);
    return by_key ? by_key : strcmp(metric_a, metric_b);
}

static inline bool pb_series_ok(const pb_series *s) { return !strcmp(s->status, "ok"); }
static inline bool pb_series_throttled(const pb_series *s) { return !strcmp(s->status, "throttled"); }
/* Whether a key belongs to the suite, and the length of a key's suite. */
static inline size_t pb_suite_length(const char *key) { return strcspn(key, "/"); }
static inline bool pb_key_of(const char *key, const char *suite)
{
    return strlen(suite) == pb_suite_length(key) && !strncmp(key, suite, strlen(suite));
}

/* The end of the stretch of one suite's series that begins at `from`. */
size_t pb_suite_end(const pb_series_set *set, size_t from);

/* The newest session that measured anything in the stretch [from, to). */
const char *pb_newest_session(const pb_series_set *set, size_t from, size_t to);

/* A stored baseline is a table with one row per key, metric and session whose run_id begins so; its column
 * `launch` holds the number of launches behind the value. */
#define PB_BASELINE_RUN "baseline:"
static inline bool pb_stored(const char *run_id) { return !strncmp(run_id, PB_BASELINE_RUN, strlen(PB_BASELINE_RUN)); }
#endif
