/* export.h - `bench export`: converts the rows of a run to the formats of other tools.
 *
 * Only rows with status ok are exported as values. Times are seconds in results.csv and become nanoseconds, the unit of
 * these tools (mllog keeps seconds and names the unit); other values keep their SI unit. A row without a value (wrong,
 * unsupported, failed, truncated) is never exported as zero: gbench gets error_occurred with the reason, other formats
 * omit it. Requirements (suite `requirement`) are not measurements and are omitted, and so are control cases
 * (pb_key_is_control). `notes` reports how many rows were omitted, and why.
 *
 *   gbench    A family per key and time metric, named key/metric, with a repetition per process. With several
 *             processes, the aggregates mean, median, stddev (n - 1) and cv follow. cpu_time repeats real_time, because
 *             bench does not measure CPU time. Values in other units become counters of the repetition with the same
 *             key and process; a case without a time is omitted. An error becomes an entry without times with run_type
 *             aggregate and aggregate_name error, because compare.py averages the times of all other entries.
 *   gab       [{name, unit, value, range, extra}]: the median over processes. One direction per file.
 *   bmf       {key: {metric-slug: {value, lower_value, upper_value}}}: median, least and greatest over processes.
 *   benchfmt  A line per key and process: BenchmarkSuite/name/axis=value N value unit ... "Unit" lines give the better
 *             direction of each metric.
 *   mllog     A tracked_stats event per key and process, after global_batch_size and max_sequence_length if the key has
 *             these axes. time_ms is the time of the run. The file is not an MLPerf submission. */
#ifndef PB_EXPORT_H
#define PB_EXPORT_H
#include <stdio.h>
#include <time.h>

#include "bench/rows/rows.h"

typedef struct pb_export_format {
    const char *name, *what; /* a NULL name ends the table */
} pb_export_format;
extern const pb_export_format pb_export_formats[]; /* formats.def */

typedef struct pb_export_opts {
    const char *to;     /* a name of formats.def */
    const char *runs;   /* folder in which the newest run is looked up; NULL: "runs" */
    const char *better; /* required for gab: export only metrics whose better direction is "lower" or "higher"; other
                           formats export all rows */
} pb_export_opts;

/* Writes a run to `out`, and a line per reason for omitted rows to `notes`. run: a run folder, a CSV file or a stored
 * baseline; NULL: the newest run. EINVAL: unknown format, or text that is not UTF-8; EFORMAT: no value that the format
 * can hold; EPATH, EIO: the run cannot be read. On these failures nothing is written to either stream. */
pb_status pb_export(const char *run, const pb_export_opts *o, FILE *out, FILE *notes);

/* ---- for the writers of formats ------------------------------------------------------------------ */

enum { PB_EXPORT_REASONS = 5 };
typedef struct pb_export_page {
    const char *path;         /* path of the CSV file, for messages */
    const pb_row *const *row; /* [n]: the rows in the format's order (formats.def), without requirements */
    size_t n;
    const pb_series_set *set; /* all rows joined over processes, with requirements */
    const char *better;       /* the direction to export; see pb_export_opts */
    FILE *out;
    size_t written; /* number of values written */
    struct {
        const char *why; /* static text */
        size_t n;
    } left_out[PB_EXPORT_REASONS]; /* omitted rows by reason; filled from the front */
} pb_export_page;

#define FORMAT(name, order, what) pb_status pb_export_##name(pb_export_page *p);
#include "bench/exchange/formats.def"
#undef FORMAT

#define PB_NO_FIGURE "have no value (wrong, unsupported, failed or cut short)"
/* Counts a row that is omitted. `why` completes the sentence "N left out: they ..." and must be static. */
void pb_export_leave_out(pb_export_page *p, const char *why);
/* True if the row has status ok and a finite value. */
bool pb_row_ok(const pb_row *r);
/* Convert a value and its unit: seconds to nanoseconds, other units unchanged. */
double pb_export_value(double value, const char *unit);
const char *pb_export_unit(const char *unit);
/* Returns the index after the last of the consecutive rows that begin with row `from` and have its key. */
size_t pb_export_key_end(const pb_export_page *p, size_t from);
/* Compares two rows of one key and metric like strcmp(): by run, then by process. */
int pb_process_order(const pb_row *x, const pb_row *y);
/* Reads the time at which the run began from its run_id (20260131T120000Z...). False: it does not begin with a time. */
bool pb_export_time(const char *run_id, struct tm *utc);
#endif
