/* emit.h - the emitter: writes what a suite measured into results.csv and samples.csv, and remembers it. */
#ifndef PB_EMIT_H
#define PB_EMIT_H
#include "bench/measure/timing.h"
#include "bench/rows/rows.h"

/* The files that rows are appended to, the identity that every row carries, and the values that were emitted. Every
 * call appends its row to the file at once, by one write(2). */
typedef struct pb_emitter {
    int results, samples; /* descriptors of results.csv and samples.csv, opened with O_APPEND; -1: closed */
    const char *run_id, *machine_id, *commit, *host;
    int process;                  /* index of this process within the run, from 0 */
    struct pb_measured *measured; /* [n], allocated for `room`: the rows emitted with status ok */
    int n, room;
    struct pb_long_check *checks; /* [n_checks]: what pb_emitter_checked() was given */
    int n_checks;
    /* The process records a trace: rows get the status profiled in place of a figure or a verdict, and have no value,
     * only a note; no samples are written. */
    bool profiled;
    /* The case that is measured is a control case (bench/suites/controls.h): its rows show noise, and judge no
     * requirement. */
    bool control;
    /* write_failed: a row could not be written; truncated: a row of status truncated was emitted */
    bool write_failed, truncated;
} pb_emitter;

/* Opens dir/results.csv and dir/samples.csv for appending. The caller then fills run_id, machine_id, commit, host and
 * process, and closes *out. EPATH: a file cannot be opened. */
pb_status pb_emitter_open(const char *dir, pb_emitter *out);
/* An emitter of a rank that writes nothing: its rows are only remembered. EPATH. */
pb_status pb_emitter_open_silent(pb_emitter *out);
void pb_emitter_close(pb_emitter *e);
/* Remembers a row of results.csv as if this process had emitted it. When a process hangs or crashes, its successor
 * takes over its index and restores its rows. EINVAL: metrics.def does not have the metric. ENOMEM. */
pb_status pb_emitter_restore(pb_emitter *e, const pb_row *r);
/* Remembers that process `process`, an earlier one of this run, found `error` in the check of the case `key`, which took
 * `seconds`. ENOMEM. */
pb_status pb_emitter_checked(pb_emitter *e, const char *key, double error, int process, double seconds);

/* ---- rows; each function may fail with EIO (a row cannot be written) or ENOMEM ----------------- */

/* Bytes of a note with its final NUL; a longer one is cut off. */
enum { PB_NOTE_TEXT = 8192 };
/* Appends one row. The unit and the better direction come from metrics.def. A value that is not finite turns status ok
 * into failed. EINVAL: metrics.def does not have the metric. */
pb_status pb_emit(pb_emitter *e, const pb_case *c, const char *metric, double value, int samples, pb_row_status status,
                  const char *note);
/* Emits the median of the timing as `metric`, and appends its samples to samples.csv. If the samples still got faster
 * while they were taken, the note says so (trend.h). After an interrupt the status is truncated. */
pb_status pb_emit_timing(pb_emitter *e, const pb_case *c, const char *metric, const pb_timing *t, const char *note);
/* Emits work / median time as `metric`, and appends work / time of every sample to samples.csv. */
pb_status pb_emit_rate(pb_emitter *e, const pb_case *c, const char *metric, double work, const pb_timing *t,
                       const char *note);
/* Emits record_time of a timing that was measured as a graph. */
pb_status pb_emit_graph(pb_emitter *e, const pb_case *c, const pb_timing *t);
/* Emits the injected delay that was achieved (pb_timing.slowed) as the metric `slowdown`, once per case. Share 0: emits
 * nothing. */
pb_status pb_emit_slowed(pb_emitter *e, const pb_case *c, double share);
/* Emits the row of a case that has no values: the metric "outcome", with a status and a note that say why. */
pb_status pb_emit_outcome(pb_emitter *e, const pb_case *c, pb_row_status status, const char *note);

/* ---- looking up rows that were emitted or restored with status ok ------------------------------ */

/* Finds the value of a key and metric. False: no such row. */
bool pb_emitted_value(const pb_emitter *e, const char *key, const char *metric, double *value);
/* Finds the check of a case in an earlier process. False: pb_emitter_checked() was given none of this key. */
bool pb_checked_earlier(const pb_emitter *e, const char *key, double *error, int *process, double *seconds);
/* Returns the key of the i-th case, control cases apart, that has an emitted or restored row of status ok, i = 0, 1,
 * ... Each key comes once, in the order of first rows. NULL: no more keys. */
const char *pb_emitted_key(const pb_emitter *e, int i);
/* The first value of a metric among the cases of a suite. False: no such row. */
bool pb_emitted_by_suite(const pb_emitter *e, const char *suite, const char *metric, double *value);
#endif
