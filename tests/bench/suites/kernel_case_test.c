/* kernel_case_test.c - the cases of suite kernels: what a key must contain, and the estimated seconds of a case. */
#include "bench/suites/kernel_case.h"

#include <math.h>

#include "bench/suites/suites.h"
#include "tests/test.h"

static pb_case case_of(const char *key)
{
    pb_case c;
    CHECK_OK(pb_case_parse(key, &c));
    return c;
}

static void a_key_names_an_op_its_dtype_and_all_its_sizes(void **state)
{
    static const struct {
        const char *key, *why;
    } bad[] = {
        {"kernels/nosuch_fwd?dtype=f32&impl=ref&shape=B1", "there is no op 'nosuch_fwd'"},
        {"kernels/swiglu_fwd?dtype=f64&impl=ref&shape=B1.S2.I3.y0", "dtype f64"},
        {"kernels/swiglu_fwd?impl=ref&shape=B1.S2.I3.y0", "dtype is missing"},
        {"kernels/swiglu_fwd?dtype=f32&impl=ref", "does not fit its axes BSIy"},
        {"kernels/swiglu_fwd?dtype=f32&impl=ref&shape=B1.S2.I3", "does not fit its axes BSIy"},
        {"kernels/swiglu_fwd?dtype=f32&impl=ref&shape=B1.S2.Ix.y0", "does not fit its axes BSIy"},
        {"kernels/swiglu_fwd?dtype=f32&impl=ref&shape=B1.S2.I3.y0.z4", "has more fields than its axes BSIy"},
    };
    pb_kernel_case k;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const pb_case c = case_of(bad[i].key);
        assert_int_equal(pb_kernel_case_of(&c, &k), PB_EINVAL);
        if (!strstr(pb_error(), bad[i].why)) fail_msg("%s: %s", bad[i].key, pb_error());
        assert_true(pb_kernel_case_seconds(&c, false) == 0);
    }
    const pb_case c = case_of("kernels/swiglu_fwd?dtype=bf16&impl=ref&shape=B1.S22.I333.y0");
    CHECK_OK(pb_kernel_case_of(&c, &k));
    assert_string_equal(k.op->name, "swiglu_fwd");
    assert_int_equal(k.dtype, PB_BF16);
    assert_true(k.dim[0] == 1 && k.dim[1] == 22 && k.dim[2] == 333 && k.dim[3] == 0);
}

static pb_status check_estimate(void *user, const pb_case *c)
{
    int *n = user;
    for (int device = 0; device < 2; device++) {
        const double seconds = pb_kernel_case_seconds(c, device);
        if (!(seconds > 0.1 && seconds < 600)) fail_msg("%s: %g s (device %d)", c->key, seconds, device);
    }
    ++*n;
    return PB_OK;
}

static void every_case_has_an_estimate(void **state)
{
    pb_ctx ctx;
    int n = 0;
    (void)state;
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    CHECK_OK(pb_kernel_cases(&ctx, true, check_estimate, &n));
    pb_ctx_close(&ctx);
    assert_true(n > 500);
    assert_non_null(pb_suite_find("kernels")->expect);
    assert_non_null(pb_suite_find("kernels")->device_expect);
}

/* The work of a case counts: 64 times the FLOPs, where they take longer than the least time of a measurement. */
static void more_work_takes_longer(void **state)
{
    (void)state;
    const pb_case small = case_of("kernels/linear_fwd?dtype=f32&impl=omp&shape=B4.S512.N2048.K1536.b0.a0");
    const pb_case large = case_of("kernels/linear_fwd?dtype=f32&impl=omp&shape=B16.S2048.N8192.K1536.b0.a0");
    const double cpu = pb_kernel_case_seconds(&large, false) / pb_kernel_case_seconds(&small, false);
    const double gpu = pb_kernel_case_seconds(&large, true) / pb_kernel_case_seconds(&small, true);
    assert_true(cpu > 40 && cpu < 64);
    assert_true(gpu > 1.5 && gpu < 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_names_an_op_its_dtype_and_all_its_sizes),
        cmocka_unit_test(every_case_has_an_estimate),
        cmocka_unit_test(more_work_takes_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
