/* requirements.h - the table requirements.def, and the rows that say whether its requirements hold: suite
 * "requirement", the id as the case's name, metric `requirement`, status pass, fail or unsupported. */
#ifndef PB_REQUIREMENTS_H
#define PB_REQUIREMENTS_H
#include "bench/measure/measure.h"
#include "kernels/engine/op.h"

typedef enum pb_best { PB_BEST_lowest, PB_BEST_highest } pb_best;
typedef enum pb_machine_kind { PB_MACHINE_any_gpu, PB_MACHINE_h200, PB_MACHINES } pb_machine_kind;

/* A case that a requirement judges. key: the suite, name and axes that a measured case must have; words: the case
 * described in English. */
typedef struct pb_judged_case {
    const char *key, *words;
} pb_judged_case;

/* An entry of requirements.def, which explains the fields. */
typedef struct pb_requirement {
    const char *id, *statement, *quantity, *relation;
    double bound;
    const char *where;
    const pb_judged_case *cases; /* terminated by key NULL. NULL: the figure is computed by a suite, and the fields
                                    below have no meaning */
    const char *metric;
    pb_best best;
    pb_machine_kind machine;
} pb_requirement;
extern const pb_requirement pb_requirements[]; /* terminated by id NULL */

/* Emits one row: the value `figure` of requirement `id`, under a key with these axes. While a control case is measured
 * (pb_emitter.control) it emits none: the case itself has the row. applies: false makes the row unsupported. how: text
 * for the row's note. EINVAL: requirements.def has no requirement `id`. EIO: the row cannot be written. */
pb_status pb_requirement_emit(pb_emitter *emitter, const char *id, const pb_axis *axes, int n, double figure,
                              bool applies, const char *how);

/* Emits one row for each judged case of the suite that this process measured. If several measured cases match, the best
 * value counts. omitted: axes of which the suite's keys omit a value, such as "shard=none" (pb_suite.omitted), or NULL;
 * a measured case that has one of them, or `ranks`, matches only a requirement that has it too. Call it on a GPU
 * only. */
pb_status pb_requirements_conclude(pb_emitter *emitter, const char *suite, const char *omitted);

/* Emits the requirements that are ratios of two cases measured earlier by this process: F-GRAPH-BWD-003a and
 * F-GRAPH-BWD-003b, each for LoRA and for QLoRA. */
pb_status pb_requirement_ratios(pb_ctx *ctx, pb_emitter *emitter);
#endif
