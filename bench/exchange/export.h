/* export.h - `bench export`: the rows of a run in the formats of other tools.
 *
 * Figures are those of rows with status ok. Times, which are seconds in results.csv, become nanoseconds, as these tools
 * have them (mllog: seconds, and says so); everything else keeps its SI unit. A row without a figure (wrong,
 * unsupported, failed, truncated) is never a zero: gbench says error_occurred with the reason, the others leave it out.
 * Contracts are verdicts, not measurements, and are left out. How many rows were, and why, is said on `notes`.
 *
 *   gbench    one family a key and time metric, named key/metric: one repetition a launch, then mean, median, stddev
 *             (n - 1) and cv over them when there are several. cpu_time repeats real_time, because bench does not
 *             measure it. What the same launch measured of the same key in other units are counters; a case without a
 *             time has no place. An error is an entry of run_type aggregate and aggregate_name error without times:
 *             compare.py averages the times of all others.
 *   gab       [{name, unit, value, range, extra}], one direction a file; the median over launches.
 *   bmf       {key: {metric-slug: {value, lower_value, upper_value}}}; the median, least and largest launch.
 *   benchfmt  one line a key and launch: BenchmarkSuite/case/axis=value N value unit ...; "Unit" lines say which
 *             direction is better.
 *   mllog     one tracked_stats event a key and launch, global_batch_size and max_sequence_length before it where the
 *             key has them; time_ms is the run's. It is no submission: those belong to a training run. */
#ifndef PB_EXPORT_H
#define PB_EXPORT_H
#include <stdio.h>
#include <time.h>

#include "bench/rows/series.h"

typedef struct pb_export_format {
    const char *name, *what; /* a NULL name ends the table */
} pb_export_format;
extern const pb_export_format pb_export_formats[]; /* formats.def */

typedef struct pb_export_opts {
    const char *to;     /* a name of formats.def */
    const char *runs;   /* where the newest run is looked for; NULL: "runs" */
    const char *better; /* gab: "lower" or "higher", which it must say; the others take every row */
} pb_export_opts;

/* Writes the run (a folder, a CSV, a stored baseline; NULL: the newest) to `out`, and what it left out to `notes`, a
 * line each. EINVAL: no such format, or text that is not UTF-8;
 * EFORMAT: no figure that the format could hold; EPATH, EIO: cannot be read. Then neither holds anything. */
pb_status pb_export(const char *run, const pb_export_opts *o, FILE *out, FILE *notes);

/* ---- what a format is given ---------------------------------------------------------------------- */

enum { PB_EXPORT_REASONS = 4 };
typedef struct pb_export_page {
    const char *path;         /* of the CSV */
    const pb_row *const *row; /* without contracts, in the format's order */
    size_t n;
    const pb_series_set *set; /* the same joined over launches; with contracts */
    const char *better;
    FILE *out;
    size_t written; /* figures */
    struct {
        const char *why; /* static */
        size_t n;
    } left_out[PB_EXPORT_REASONS];
} pb_export_page;

#define FORMAT(name, order, what) pb_status pb_export_##name(pb_export_page *p);
#include "bench/exchange/formats.def"
#undef FORMAT

#define PB_NO_FIGURE "have no figure (wrong, unsupported, failed or cut short)"
/* Counts a row that the format has no place for. */
void pb_export_leave_out(pb_export_page *p, const char *why);
/* Whether a row has a figure that may be shown. */
bool pb_row_ok(const pb_row *r);
/* Seconds as nanoseconds; another unit as it is. */
double pb_export_value(double value, const char *unit);
const char *pb_export_unit(const char *unit);
/* The end of the rows [from, end) that have the key, or also the metric, of the first. */
size_t pb_export_key_end(const pb_export_page *p, size_t from);
/* Rows of one key and metric: by run, then launch. */
int pb_launch_order(const pb_row *x, const pb_row *y);
/* When the run began, which its name says. False: it does not. */
bool pb_export_time(const char *run_id, struct tm *utc);
#endif
