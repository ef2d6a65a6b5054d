/* measured.h - reads the measured times that the models are fitted to: collectives by bytes and ranks, and steps by
 * ranks.
 *
 * Collectives are the cases of the suites in sources.def. Cases that differ only in bytes and in the axes `ranks` and
 * `hosts` are points of one curve, which has a fit of its own. Without axis `hosts` all ranks are on one host.
 *
 * Steps are the cases of suite throughput that have the metrics step_time and backward_time. Cases that differ only in
 * the axes `ranks` (without it: one rank) and `hosts` are points of one step. One rank reduces nothing, so its step is
 * also a point of the steps that differ from it in axis `reduce`.
 *
 * A time is the median over its processes (series.h). Left out and counted: times whose status is not ok, collectives
 * of one rank, other collectives, and steps without backward_time, as those of a graph are. */
#ifndef PB_MEASURED_H
#define PB_MEASURED_H
#include <stdbool.h>

#include "bench/project/alpha_beta.h"
#include "bench/rows/rows.h"

typedef struct pb_timed {
    const char *key; /* the case that was measured */
    double bytes;    /* of the collective; 0 for a step */
    pb_place place;
    double seconds, backward; /* backward: backward_time of a step; 0 for a collective */
    bool kept_out;            /* it checks the model of its curve, which is not fitted to it; set by fit.h */
    double model;             /* what the fitted model gives, in seconds; set by fit.h */
} pb_timed;

static inline int pb_place_ranks(pb_place p) { return p.hosts * p.each; }

typedef struct pb_timed_list {
    pb_timed *v; /* [n] */
    int n, room;
} pb_timed_list;

/* The collectives of a curve, or the steps of a case. */
typedef struct pb_curve {
    const char *name;  /* their key without the axes that differ, such as "comm/all_reduce?dtype=f32" */
    pb_case first;     /* one of the cases */
    pb_collective op;  /* PB_NCOLLECTIVES: a step */
    const char *dtype; /* "f32", "bf16", ...; of a step: the type in which its gradients are reduced */
    pb_timed_list points;
} pb_curve;

typedef struct pb_measured {
    pb_curve *curve; /* [n], sorted by name */
    int n;
    int left_out;        /* times of these suites that are not used */
    const char *machine; /* machine_id of the rows; NULL: none was read */
    pb_strings *strings; /* owns the names */
} pb_measured;

typedef struct pb_measured_opts {
    const char *const *filter; /* [nfilter]: reads only keys that match one of these (pb_key_matches); 0: all */
    int nfilter;
    double min_bytes;    /* collectives of fewer bytes are not read */
    bool allow_mismatch; /* rows of several machines are joined */
} pb_measured_opts;

/* Reads n runs (folders, results.csv or stored baselines). Call pb_measured_free() also after a failure. EPATH, EIO: a
 * file cannot be read; EINVAL: a file or a key is wrong, a case is in two runs, or rows are of two machines; ENOMEM. */
pb_status pb_measured_read(const char *const *runs, int n, const pb_measured_opts *o, pb_measured *out);
void pb_measured_free(pb_measured *m);
#endif
