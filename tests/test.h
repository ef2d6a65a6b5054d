/* test.h - included by every test file: includes cmocka, opens a CPU context, and defines checks of statuses and
 * numbers. Checks of numbers fail on NaN. */
#ifndef PB_TEST_H
#define PB_TEST_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the standard headers above */
#include <cmocka.h>

#include "kernels/engine/op.h"

/* 1 in a build with AddressSanitizer. Tests then repeat less often what they repeat with other numbers only: a
 * sanitizer looks at which memory is used, and its loops take three to ten times as long. */
#ifdef __SANITIZE_ADDRESS__
enum { TEST_SANITIZED = 1 };
#else
enum { TEST_SANITIZED = 0 };
#endif

/* expr must return PB_OK; otherwise the test fails and shows the error message. */
#define CHECK_OK(expr)                                                                                                 \
    do {                                                                                                               \
        pb_status check_ok_ = (expr);                                                                                  \
        if (check_ok_ != PB_OK) fail_msg("%s: %s: %s", #expr, pb_status_name(check_ok_), pb_error());                  \
    } while (0)

/* expr must return the status `want`, and its error message must contain `text`. */
#define CHECK_FAILS(expr, want, text)                                                                                  \
    do {                                                                                                               \
        pb_status check_f_ = (expr);                                                                                   \
        if (check_f_ != (want)) fail_msg("%s: %s, want %s", #expr, pb_status_name(check_f_), pb_status_name(want));    \
        if (!strstr(pb_error(), text)) fail_msg("%s: '%s' does not say '%s'", #expr, pb_error(), text);                \
    } while (0)

/* |a-b| <= tol; NaN fails. */
#define CHECK_NEAR(a, b, tol)                                                                                          \
    do {                                                                                                               \
        double near_a_ = (double)(a), near_b_ = (double)(b);                                                           \
        if (!(fabs(near_a_ - near_b_) <= (double)(tol)))                                                               \
            fail_msg("%s = %.9g, want %.9g within %g", #a, near_a_, near_b_, (double)(tol));                           \
    } while (0)

/* Returns n values in [-1,1) of a float type, aligned for streaming (non-temporal) stores. The caller frees them. */
static inline void *test_values(size_t n, pb_dtype t, uint64_t seed)
{
    void *p = aligned_alloc(256, (n * pb_dtype_size(t) + 255) / 256 * 256);
    assert_non_null(p);
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) pb_store(p, i, t, 2 * pb_uniform(seed, i) - 1);
    return p;
}

static const char *test_impl_name; /* implementation of every op in contexts that tests open; NULL: the fastest one */

static inline int test_open_cpu(void **state)
{
    static pb_ctx ctx;
    if (pb_ctx_open(&ctx, PB_CPU, 0) != PB_OK) return -1;
    ctx.impl = test_impl_name;
    *state = &ctx;
    return 0;
}

/* Opens the CPU backend, or the one that PB_TEST_BACKEND names, so that tests of whole models run on either. */
static inline int test_open_device(void **state)
{
    static pb_ctx ctx;
    const char *name = getenv("PB_TEST_BACKEND");
    pb_backend_id id = PB_CPU;
    if (name && pb_backend_find(name, &id) != PB_OK) return -1;
    if (pb_ctx_open(&ctx, id, 0) != PB_OK) {
        fprintf(stderr, "%s\n", pb_error());
        return -1;
    }
    *state = &ctx;
    return 0;
}

/* Copies n bytes of device memory to new host memory, which the caller frees. */
static inline void *test_fetch(pb_ctx *ctx, const void *device, size_t n)
{
    void *host = malloc(n + 1);
    assert_non_null(host);
    CHECK_OK(pb_download(ctx, host, device, n));
    return host;
}

/* Copies n bytes of host memory to new device memory; x NULL: zeros. The caller frees it with pb_release. */
static inline void *test_on_device(pb_ctx *ctx, const void *x, size_t n)
{
    void *zeros = calloc(1, n), *p = NULL;
    assert_non_null(zeros);
    CHECK_OK(pb_alloc(ctx, n, &p));
    CHECK_OK(pb_upload(ctx, p, x ? x : zeros, n));
    free(zeros);
    return p;
}

static inline int test_close(void **state)
{
    pb_ctx_close(*state);
    return 0;
}

/* Runs the tests once for each CPU implementation of `op` that this machine supports, the reference included. Every
 * op of the family must use the same implementation names. Returns the number of failures. */
static inline int test_every_impl(const pb_op *op, const struct CMUnitTest *tests, size_t n)
{
    int failed = 0;
    for (const pb_impl *i = op->impls[PB_CPU]; i->name; i++) {
        if (i->available && !i->available()) continue;
        test_impl_name = i->name;
        failed += _cmocka_run_group_tests(i->name, tests, n, test_open_cpu, test_close);
    }
    return failed;
}
#endif
