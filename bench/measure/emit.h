/* emit.h - the sink through which a suite writes what it measured, into results.csv and samples.csv. */
#ifndef PB_EMIT_H
#define PB_EMIT_H
#include "bench/measure/measure.h"
#include "bench/rows/rows.h"

/* Where a suite puts what it measured. Every call writes at once (one row, one write). */
typedef struct pb_sink pb_sink;
/* unit and better follow from the metric by bench/rows/metrics.def. */
pb_status pb_emit(pb_sink *s, const pb_case *c, const char *metric, double value, int samples, const char *status,
                  const char *note);
/* The median of the timing as `metric`, and its samples into samples.csv. Samples that still got faster add to the note
 * (trend.h). */
pb_status pb_emit_timing(pb_sink *s, const pb_case *c, const char *metric, const pb_timing *t, const char *note);

/* The value this launch emitted for a key and metric with status ok. */
bool pb_sink_value(const pb_sink *s, const char *key, const char *metric, double *value);
/* Walks the keys of cases this launch has measured: i = 0, 1, ...; NULL behind the last. */
const char *pb_sink_key(const pb_sink *s, int i);

struct pb_sink {
    int results, samples; /* file descriptors, O_APPEND */
    const char *run_id, *machine_id;
    int launch;
    pb_measure_opts measure;      /* what the command line asks for; 0 or -1: it does not say. And `pulse` */
    struct pb_measured *measured; /* what this launch emitted with status ok; freed by pb_sink_close */
    int n, room;
    /* what happened so far */
    bool write_failed, truncated;
};

/* Opens them for appending. The caller fills the fields from run_id on. */
pb_status pb_sink_open(const char *dir, pb_sink *out);
void pb_sink_close(pb_sink *s);
/* As if this process had emitted the row: one that an earlier process of the same launch has written. */
pb_status pb_sink_restore(pb_sink *s, const pb_row *r);

/* ---- what suites call besides pb_emit and pb_emit_timing ---- */

/* The suite's own options with the warm-up, samples and time that the command line asks for in their place. */
pb_measure_opts pb_sink_measure(const pb_sink *s, pb_measure_opts suite);
/* The usual ones: a warm-up call, 5 samples or more until they add up to 0.2 s. */
#define PB_MEASURE_USUAL .warmup = 1, .min_samples = 5, .max_samples = PB_MAX_SAMPLES, .min_time = 0.2
/* A ceiling measured earlier in this launch: copy_rate or matmul_rate; 0: there is none. */
double pb_sink_ceiling(const pb_sink *s, const char *metric);
/* work over time as `metric`: the median, and every sample into samples.csv. */
pb_status pb_emit_rate(pb_sink *s, const pb_case *c, const char *metric, double work, const pb_timing *t,
                       const char *note);
/* graph_nodes and record_time of a timing that was measured as a graph. */
pb_status pb_emit_graph(pb_sink *s, const pb_case *c, const pb_timing *t);
/* The row that says by how much the case was slowed down on purpose (pb_timing's `slowed`), once a case; 0: none. */
pb_status pb_emit_slowed(pb_sink *s, const pb_case *c, double share);
/* The row of a case that gave no figures: metric "outcome". */
pb_status pb_emit_outcome(pb_sink *s, const pb_case *c, const char *status, const char *note);
#endif
