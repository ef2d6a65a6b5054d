/* results.h - writing results.csv and samples.csv, and the sink through which a suite does so.
 *
 * A row is appended by one write(2) the moment it exists; one that does not fit on the disk is taken back
 * whole. Numbers have 9 significant digits and are finite: what is not is an empty field. */
#ifndef PB_RESULTS_H
#define PB_RESULTS_H
#include <stdio.h>

#include "bench/bench.h"

/* The header line and one row of results.csv, fields quoted where RFC 4180 wants it. */
void pb_csv_header(FILE *f);
void pb_csv_row(FILE *f, const pb_row *r);
/* One field, and a number (empty when not finite). */
void pb_csv_text(FILE *f, const char *s);
void pb_csv_number(FILE *f, double v);

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

#define PB_SAMPLES_HEADER "run_id,launch,key,metric,index,value\n"
/* Creates dir/results.csv and dir/samples.csv with their header lines, both or neither. EPATH: they exist, or cannot be
 * made; EIO: the disk is full. */
pb_status pb_results_create(const char *dir);
/* Appends whole rows to dir/results.csv, all of them or none. EPATH, EIO. */
pb_status pb_results_append(const char *dir, const char *rows, size_t n);
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
