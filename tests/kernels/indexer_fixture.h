/* indexer_fixture.h - PyTorch's results for a small lightning indexer (scripts/fixtures/indexer_fixtures.py), for
 * the tests of the indexer's ops. */
#ifndef PB_INDEXER_FIXTURE_H
#define PB_INDEXER_FIXTURE_H
#include "tests/test.h"

static inline void *room(size_t bytes)
{
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    memset(p, 0xff, bytes + 1); /* every float is NaN */
    return p;
}
static inline float *draw(uint64_t seed, size_t n)
{
    float *x = room(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)(4 * pb_uniform(seed, i) - 2);
    return x;
}

/* Reads the n values that scripts/fixtures/indexer_fixtures.py wrote for `name`. The caller frees them. */
static inline float *fixture(const char *name, size_t n)
{
    float *x = room(n * sizeof *x);
    char *line = NULL, head[32];
    size_t size = 0, found = 0;
    FILE *f = fopen("tests/fixtures/indexer.csv", "r");
    if (!f) fail_msg("tests/fixtures/indexer.csv does not open: run from the root of the sources");
    snprintf(head, sizeof head, "%s,", name);
    while (getline(&line, &size, f) > 0) {
        if (strncmp(line, head, strlen(head)) != 0) continue;
        char *at = line + strlen(head) - 1;
        for (; *at == ','; found++) {
            const float v = strtof(at + 1, &at);
            if (found < n) x[found] = v;
        }
    }
    free(line);
    (void)fclose(f);
    if (found != n) fail_msg("%s: %zu values in the fixture, want %zu", name, found, n);
    return x;
}
/* Checks `got` against the fixture: non-finite elements must be equal, the others within a relative L2 error of
 * `tol`. */
static inline void matches(const char *name, const float *got, size_t n, double tol)
{
    float *want = fixture(name, n), *mine = room(n * sizeof *mine);
    for (size_t i = 0; i < n; i++) {
        mine[i] = got[i];
        if (isfinite(want[i])) continue;
        if (got[i] != want[i]) fail_msg("%s[%zu] = %g, want %g", name, i, (double)got[i], (double)want[i]);
        mine[i] = want[i] = 0;
    }
    const pb_diff d = pb_diff_arrays(want, mine, n, PB_F32);
    if (!pb_diff_ok(&d, tol)) fail_msg("%s: %g from PyTorch", name, d.rel);
    free(want), free(mine);
}
#endif
