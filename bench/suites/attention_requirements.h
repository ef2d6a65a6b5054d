/* attention_requirements.h - the requirements of requirements.def that apply to a case of suite attention. */
#ifndef PB_ATTENTION_REQUIREMENTS_H
#define PB_ATTENTION_REQUIREMENTS_H
#include "bench/measure/measure.h"
#include "bench/suites/attention_check.h"

/* Emits MLA-FINITE, MLA-REL-DIFF-Q and, for a backward case, MLA-REL-DIFF-KV. Emits no row unless the case has the
 * shape of these requirements: bf16, sparse, random lists, 1280 queries and rows, 64 heads of width 512, 640 slots. */
pb_status pb_attn_requirements(pb_emitter *emitter, const pb_case *c, const pb_attn *a, const pb_attn_error *e);
#endif
