/* requirements.h - emits the rows that say whether the requirements of requirements.def hold: suite "requirement", the
 * id as the case's name, metric `requirement`, status pass, fail or unsupported. */
#ifndef PB_REQUIREMENTS_H
#define PB_REQUIREMENTS_H
#include "bench/measure/emit.h"
#include "kernels/engine/op.h"

/* Emits the requirements that are ratios of two cases measured earlier by this process: F-GRAPH-BWD-003a and
 * F-GRAPH-BWD-003b. */
pb_status pb_requirement_ratios(pb_ctx *ctx, pb_sink *sink);

/* Emits one row: the value `figure` of requirement `id`, under a key with these axes. applies: false makes the row
 * unsupported. how: text for the row's note. EINVAL: requirements.def has no requirement `id`. EIO: the row cannot be
 * written. */
pb_status pb_requirement_emit(pb_sink *sink, const char *id, const pb_axis *axes, int n, double figure, bool applies,
                              const char *how);
#endif
