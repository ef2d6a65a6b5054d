/* range_counts.h - counts hardware events of a GPU in the ranges of one kind (profiles/ranges.h) of work that runs
 * once, such as a step of training.
 *
 *     PB_TRY(pb_range_counts_open(&group, PB_RANGE_phase, &c));
 *     PB_TRY(pb_range_counts_begin(c));
 *     s = the work, in this thread
 *     PB_TRY(pb_range_counts_end(c));
 *     pb_range_counts_head(c, f); pb_range_counts_rows(c, f, step, rank, mode);
 *
 * At the begin and the end of each counted range a host sync leaves the GPU idle: no work of one range overlaps
 * that of another, and the work takes longer than usual. Of ranges of the kind inside each other, the outermost is
 * counted. A range of a recorded graph's replay is not one of its ops or phases: while steps are replayed, only ranges
 * of kind step can be counted. */
#ifndef PB_RANGE_COUNTS_H
#define PB_RANGE_COUNTS_H
#include <stdio.h>

#include "profiles/groups.h"
#include "profiles/ranges.h"

typedef struct pb_range_counts pb_range_counts;

/* The calling thread has the CUDA context, and makes all calls. *g is copied. Returns NULL in *out after an error. The
 * errors of pb_gpu_counters_open_ranges(); ENOMEM. */
pb_status pb_range_counts_open(const pb_counter_group *g, pb_range_kind kind, pb_range_counts **out);
void pb_range_counts_close(pb_range_counts *c); /* NULL: does nothing */

/* Counts the ranges that this thread begins from now on. Nothing is counted after an error. */
pb_status pb_range_counts_begin(pb_range_counts *c);
/* Ends counting. After an error, of this call or of a range, there are no counts; the message is that of the first.
 * EDEVICE also: no range of the kind was begun. */
pb_status pb_range_counts_end(pb_range_counts *c);
/* Gives the counters back until the next begin, so that other tools may use them. */
void pb_range_counts_release(pb_range_counts *c);

/* The counts as CSV: the names of columns, and a row for each range, in the order in which they began.
 *     step,rank,group,mode   of the call
 *     kind,phase,name,layer  the range: its kind, the phase around it, its name, and its value, such as an op's layer;
 *                            empty: none
 *     model_flops,model_bytes  the least work of the ops in it by their models (pb_range_work()); 0: not known, as in a
 *                            replayed graph
 *     the events of the group by name, then its metrics as NAME(UNIT); a metric that is not a number is empty */
void pb_range_counts_head(const pb_range_counts *c, FILE *f);
void pb_range_counts_rows(const pb_range_counts *c, FILE *f, long step, int rank, const char *mode);
#endif
