/* gates.h - which metrics may fail a comparison, and by how much: baselines/gates.csv.
 *
 * Columns: suite,metric,better,stored_limit,ceiling,gating
 *
 *   stored_limit  0.15: against stored sessions (stored_rule.h) a change of more than a third of it, 5 %, in either
 *                 direction is SUSPECT, and sessions that could not show a change of 15 % are too scattered
 *   ceiling       may be empty: the metric of suite `ceiling` that bounds this one. A comparison says when it moved;
 *                 nothing is divided by it
 *   gating        yes, no, or pairs: a metric that fails a comparison of executables, whose pairs show noise for what it
 *                 is, but none with stored results
 *
 * A line for every metric that gates; what no line names has limit 0.15, no ceiling, and does not gate. */
#ifndef PB_GATES_H
#define PB_GATES_H
#include "bench/rows/rows.h"
#include <stddef.h>

enum { PB_MAX_GATES = 256 };
#define PB_DEFAULT_LIMIT 0.15

typedef struct pb_gate {
    char suite[PB_AXIS_TEXT], metric[PB_AXIS_TEXT], ceiling[PB_AXIS_TEXT];
    double stored_limit;
    bool gating, gating_pairs; /* against stored results; in a comparison of executables */
} pb_gate;

typedef struct pb_gates {
    int n;
    pb_gate gate[PB_MAX_GATES];
} pb_gates;

/* EPATH: no file to read; EIO: it cannot be read; EINVAL: file and line, and what is wrong: an unknown metric, a
 * direction that is not the metric's, a limit outside (0,10), a ceiling that is no metric, a second line for a metric, a
 * control character, more than 64 KiB. */
pb_status pb_gates_read(const char *path, pb_gates *out);
/* The same from memory; `name` stands for the file in messages. */
pb_status pb_gates_parse(const char *name, const char *bytes, size_t n, pb_gates *out);
/* The same for a comparison of executables: `gating` is gating_pairs. */
pb_status pb_gates_read_for_pairs(const char *path, pb_gates *out);
/* The gate of a key's suite and a metric; one that does not gate when no line names it. Never NULL. */
const pb_gate *pb_gates_find(const pb_gates *g, const char *key, const char *metric);
/* Whether this metric of suite `ceiling` is some gate's ceiling. */
bool pb_gates_name(const pb_gates *g, const char *metric);
#endif
