/* v4_fixture.h - PyTorch's results for the ops before and after DeepSeek-V4's attention (tests/fixtures/v4.csv), and
 * their input tensors. */
#ifndef PB_V4_FIXTURE_H
#define PB_V4_FIXTURE_H
#include "tests/test.h"

/* Draws the same values as scripts/fixtures/v4_fixtures.py. The caller frees them. */
static inline float *v4_draw(uint64_t seed, size_t n)
{
    float *x = malloc(n * sizeof *x + 1);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(4 * pb_uniform(seed, i) - 2);
    return x;
}

/* Reads PyTorch's n values for a tensor of the case `which`. The caller frees them. */
static inline float *v4_expected(const char *which, const char *tensor, size_t n)
{
    char head[40], *line = NULL, *at;
    size_t room = 0, found = 0;
    float *want = malloc(n * sizeof *want + 1);
    FILE *f = fopen("tests/fixtures/v4.csv", "r");
    assert_non_null(want);
    if (!f) fail_msg("tests/fixtures/v4.csv does not open: run from the root of the sources");
    snprintf(head, sizeof head, "%s,%s,", which, tensor);
    while (!found && getline(&line, &room, f) > 0) {
        if (strncmp(line, head, strlen(head)) != 0) continue;
        at = line + strlen(head) - 1;
        for (; found < n && *at == ','; found++) want[found] = strtof(at + 1, &at);
        if (*at != '\n') fail_msg("%s %s: more than %zu values", which, tensor, n);
    }
    free(line);
    (void)fclose(f);
    if (found != n) fail_msg("%s %s: %zu values, want %zu", which, tensor, found, n);
    return want;
}

/* Fails when the relative L2 error of `got` against PyTorch's values exceeds tol. */
static inline void v4_matches(const char *which, const char *tensor, const float *got, size_t n, double tol)
{
    float *want = v4_expected(which, tensor, n);
    const pb_diff d = pb_diff_arrays(want, got, n, PB_F32);
    free(want);
    if (!pb_diff_ok(&d, tol)) fail_msg("%s %s: %g from PyTorch, want %g", which, tensor, d.rel, tol);
}
#endif
