/* gates.h - which metrics may fail a comparison, and by how much: baselines/gates.csv.
 *
 * Columns: suite,metric,better,stored_limit,ceiling,gating
 *
 *   stored_limit  used against stored sessions (stored_rule.h): the largest change, in either direction, that can be
 *                 called SAME. It is not a threshold of REGRESSED, which the noise sets
 *   ceiling       the metric of suite `ceiling` that limits this metric; may be empty. A comparison reports how much it
 *                 changed; no value is divided by it
 *   gating        yes: the metric can fail every comparison; no: it cannot; pairs: it can fail a comparison of two
 *                 executables (whose pairs measure the noise), but not one with stored results; stored: the other way
 *                 round, because two builds place the same code at different addresses, which the stored sessions of
 *                 several builds show and pairs of two builds do not
 *
 * A metric without a line has stored_limit 0.15 and no ceiling, and does not gate. */
#ifndef PB_GATES_H
#define PB_GATES_H
#include "bench/rows/rows.h"
#include <stddef.h>

enum { PB_MAX_GATES = 256 };
#define PB_DEFAULT_LIMIT 0.15

typedef struct pb_gate {
    char suite[PB_AXIS_TEXT], metric[PB_AXIS_TEXT], ceiling[PB_AXIS_TEXT];
    double stored_limit;
    bool gating, gating_pairs; /* can fail comparisons with stored results; of two executables */
} pb_gate;

typedef struct pb_gates {
    int n;
    pb_gate gate[PB_MAX_GATES];
} pb_gates;

/* Reads gates.csv. EPATH: the file does not exist or cannot be opened; EIO: reading failed; EINVAL, with file and line:
 * an unknown metric or ceiling, a direction that differs from the metric's, a limit outside (0,10), a second line for a
 * metric, a control character, or more than 64 KiB. */
pb_status pb_gates_read(const char *path, pb_gates *out);
/* Parses n bytes in memory as pb_gates_read() parses a file. `name` is the file name for messages. */
pb_status pb_gates_parse(const char *name, const char *bytes, size_t n, pb_gates *out);
/* Reads gates.csv for a comparison of two executables: the `gating` of each gate becomes its own `gating_pairs`. */
pb_status pb_gates_read_for_pairs(const char *path, pb_gates *out);
/* The gate of a metric in the key's suite. If no line names it, a default gate that does not gate. Never NULL. */
const pb_gate *pb_gates_find(const pb_gates *g, const char *key, const char *metric);
/* True if a gate names this metric as its ceiling. */
bool pb_gates_name(const pb_gates *g, const char *metric);
#endif
