/* exact_store.h - stored exact counters: baselines/exact/<suite>.csv holds them for every exact key (exact_key.h).
 *
 * The file has the columns of results.csv, and one row per exact key, case and metric:
 *
 *   run_id      "baseline:" followed by the run_id of the run that gave the number
 *   machine_id  the exact key; not a machine, because the number is the same on every machine with this key
 *   process     the number of processes of that run
 *   note        for kernel_digest the list of kernels; for other metrics the reason why the row was stored
 *
 * Rows are sorted by exact key, case and metric, and a row is replaced only when its number changes. Unlike sessions
 * (baseline.h), one process is enough, and no older values are kept: a counter has no noise. */
#ifndef PB_EXACT_STORE_H
#define PB_EXACT_STORE_H
#include "bench/compare/baseline.h"
#include "bench/compare/exact_key.h"

/* Stores the exact counters of a run, and prints a line per changed number and per file. run NULL: the newest run.
 * A counter with status unsupported, or a number that varies between calls or processes, is left out, and a line says
 * how many are. A number that became worse is stored like any other: the reason is required for that.
 * PB_EXIT_USAGE: no reason; the run cannot be read, has no run.json, has no exact counters, or a broken one.
 * PB_EXIT_HARNESS: the machine failed. pb_error() has the message. */
pb_exit pb_baseline_counters(const char *run, const pb_baseline_opts *o, FILE *out);

/* Stored counters, in two sets: those that are comparable with a run of the exact keys `key`, and all others. */
typedef struct pb_exact_store {
    char path[PB_PATH_TEXT];
    pb_table t;
    pb_series_set same, other;
} pb_exact_store;
/* Reads the file of a suite; one that does not exist gives two empty sets. EINVAL, EIO, ENOMEM. Free *out with
 * pb_exact_store_free(), also after a failure. */
pb_status pb_exact_store_read(const char *baselines, const char *suite, const pb_exact_key *key, pb_exact_store *out);
void pb_exact_store_free(pb_exact_store *s);
#endif
