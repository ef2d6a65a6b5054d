/* attention_cases.h - builds cases of the suite attention from lines such as "seq=256 topk=128 dtype=f32", the notation
 * of the suite's grid. */
#ifndef PB_ATTENTION_CASES_H
#define PB_ATTENTION_CASES_H
#include "bench/suites/attention_case.h"
#include "bench/suites/plan.h"
#include "tests/test.h"

static inline pb_status add_to(void *user, const pb_case *c)
{
    *(pb_case *)user = *c;
    return PB_OK;
}

static inline pb_case case_of(const char *line)
{
    pb_case c;
    CHECK_OK(pb_grid_expand("attention", pb_suite_attention.axes, line, add_to, &c));
    return c;
}

static inline pb_attn sizes_of(const char *line)
{
    const pb_case c = case_of(line);
    pb_attn a;
    CHECK_OK(pb_attn_of(&c, &a));
    return a;
}
#endif
