/* emit.h - the sink through which a suite writes what it measured, into results.csv and samples.csv. */
#ifndef PB_EMIT_H
#define PB_EMIT_H
#include "bench/measure/measure.h"
#include "bench/rows/rows.h"

/* The destination of a suite's results. Every call appends its row to the file at once, by one write(2). */
typedef struct pb_sink pb_sink;
/* Appends one row. The unit and the better direction come from metrics.def. A value that is not finite turns status ok
 * into failed. EINVAL: metrics.def does not have the metric. */
pb_status pb_emit(pb_sink *s, const pb_case *c, const char *metric, double value, int samples, const char *status,
                  const char *note);
/* Emits the median of the timing as `metric`, and appends its samples to samples.csv. If the samples still got faster
 * while they were taken, the note says so (trend.h). After an interrupt the status is truncated. */
pb_status pb_emit_timing(pb_sink *s, const pb_case *c, const char *metric, const pb_timing *t, const char *note);

/* Finds the value that this process emitted for a key and metric with status ok. False: no such row. */
bool pb_sink_value(const pb_sink *s, const char *key, const char *metric, double *value);
/* The key of the i-th case that this process emitted a row with status ok for, i = 0, 1, ...; NULL: no more keys. */
const char *pb_sink_key(const pb_sink *s, int i);

struct pb_sink {
    int results, samples; /* descriptors of results.csv and samples.csv, opened with O_APPEND; -1: closed */
    const char *run_id, *machine_id;
    int process;                  /* index of this process within the run, from 0 */
    pb_measure_opts measure;      /* options of the command line; 0 (min_time: -1): not given. It also holds the
                                     heartbeat and the time slices */
    struct pb_measured *measured; /* [n], allocated for `room`: the rows emitted with status ok */
    int n, room;
    bool write_failed, truncated; /* a write failed; a row with status truncated was emitted */
};

/* Opens dir/results.csv and dir/samples.csv for appending. The caller then fills run_id, machine_id, process and
 * measure. */
pb_status pb_sink_open(const char *dir, pb_sink *out);
void pb_sink_close(pb_sink *s);
/* Remembers a row of results.csv as if this process had emitted it. When a process hangs or crashes, its successor
 * takes over its index and restores its rows. */
pb_status pb_sink_restore(pb_sink *s, const pb_row *r);

/* ---- what suites call besides pb_emit and pb_emit_timing ---- */

/* Returns the suite's options, with warm-up, samples and time replaced where the command line gives them. */
pb_measure_opts pb_sink_measure(const pb_sink *s, pb_measure_opts suite);
/* The default options: a warm-up call, then samples until there are 5 and they add up to 0.2 s; at most
 * PB_MAX_SAMPLES. */
#define PB_MEASURE_USUAL .warmup = 1, .min_samples = 5, .max_samples = PB_MAX_SAMPLES, .min_time = 0.2
/* A ceiling that this process measured earlier, such as copy_rate or matmul_rate. 0: not measured. */
double pb_sink_ceiling(const pb_sink *s, const char *metric);
/* Emits work / median time as `metric`, and appends work / time of every sample to samples.csv. */
pb_status pb_emit_rate(pb_sink *s, const pb_case *c, const char *metric, double work, const pb_timing *t,
                       const char *note);
/* Emits graph_nodes and record_time of a timing that was measured as a graph. */
pb_status pb_emit_graph(pb_sink *s, const pb_case *c, const pb_timing *t);
/* Emits the injected delay that was achieved (pb_timing.slowed) as the metric `slowdown`, once per case. Share 0: emits
 * nothing. */
pb_status pb_emit_slowed(pb_sink *s, const pb_case *c, double share);
/* Emits the row of a case that has no values: the metric "outcome", with a status and a note that say why. */
pb_status pb_emit_outcome(pb_sink *s, const pb_case *c, const char *status, const char *note);
#endif
