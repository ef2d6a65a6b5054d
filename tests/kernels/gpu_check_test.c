/* gpu_check_test.c - tests of the error messages for a GPU that is missing, too old, too small or lost. The GPU's
 * properties are made up and its loss is simulated on the CPU, so no GPU is needed. */
#include <stdlib.h>

#include "kernels/engine/gpu_check.h"
#include "tests/lose_device.h"
#include "tests/test.h"

static void a_driver_of_the_same_major_version_suffices(void **state)
{
    (void)state;
    CHECK_FAILS(pb_gpu_check_driver(0, 13000), PB_EDEVICE, "cuda: no usable GPU: no NVIDIA driver is installed");
    CHECK_FAILS(pb_gpu_check_driver(12090, 13000), PB_EDEVICE, "runs CUDA up to 12.9, this program needs 13.0");
    CHECK_FAILS(pb_gpu_check_driver(11040, 12080), PB_EDEVICE, "runs CUDA up to 11.4, this program needs 12.0");
    CHECK_OK(pb_gpu_check_driver(13000, 13000));
    CHECK_OK(pb_gpu_check_driver(13000, 13010)); /* minor versions are compatible */
    CHECK_OK(pb_gpu_check_driver(14000, 13010));
}

static void a_device_must_exist(void **state)
{
    (void)state;
    CHECK_FAILS(pb_gpu_check_number(0, 0), PB_EDEVICE, "the driver reports no device");
    CHECK_FAILS(pb_gpu_check_number(2, 2), PB_EDEVICE, "device 2 does not exist, the machine has 2");
    CHECK_FAILS(pb_gpu_check_number(-1, 2), PB_EDEVICE, "device -1 does not exist");
    CHECK_OK(pb_gpu_check_number(1, 2));
}

static void a_device_must_be_recent_enough(void **state)
{
    (void)state;
    CHECK_FAILS(pb_gpu_check_capability(1, "Tesla T4", 75), PB_EDEVICE,
                "cuda: device 1 (Tesla T4) has compute capability 7.5, need 8.0 or above");
    CHECK_OK(pb_gpu_check_capability(0, "A100", 80));
    CHECK_OK(pb_gpu_check_capability(0, "B200", 100));
    CHECK_FAILS(pb_gpu_no_code(0, "A10", 86, "900"), PB_EDEVICE,
                "device 0 (A10) has compute capability 8.6, but this build has code for 900 only");
}

/* The values are those of the CUDA C++ Programming Guide, in KB. */
static void shared_memory_follows_the_capability(void **state)
{
    static const int kb[][2] = {{80, 163}, {86, 99}, {87, 163}, {89, 99}, {90, 227}, {100, 227}, {120, 99}, {121, 99}};
    (void)state;
    for (size_t i = 0; i < sizeof kb / sizeof *kb; i++) assert_int_equal(pb_gpu_shared(kb[i][0]), kb[i][1] * 1024);
    assert_int_equal(pb_gpu_shared(130), PB_GPU_LEAST_SHARED); /* not known yet */
}

static void assume(const char *text, int expected)
{
    int capability = -1;
    assert_int_equal(text ? setenv("PB_CAPABILITY", text, 1) : unsetenv("PB_CAPABILITY"), 0);
    CHECK_OK(pb_gpu_assumed(&capability));
    assert_int_equal(capability, expected);
}

static void a_capability_to_assume_is_read_and_checked(void **state)
{
    static const char *const wrong[] = {"7.5",  "8",    "8.", "8.9a", "89",
                                        " 8.9", "-8.9", "x",  "8.10", "999999999999999.0"};
    int capability;
    pb_ctx plan;
    (void)state;
    assume(NULL, 0), assume("", 0), assume("8.0", 80), assume("8.9", 89), assume("12.0", 120);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(setenv("PB_CAPABILITY", wrong[i], 1), 0);
        CHECK_FAILS(pb_gpu_assumed(&capability), PB_EINVAL, "need a compute capability from 8.0 on, such as 8.9");
        assert_int_equal(capability, 0);
    }
    CHECK_FAILS(pb_ctx_open_plan(&plan, PB_CUDA), PB_EINVAL, "PB_CAPABILITY=999999999999999.0: need");
    assume(NULL, 0);
}

/* A GPU can stand in for one with as much shared memory or less, and for 9.x only if it is a 9.x itself. */
static void a_gpu_assumes_only_what_it_can_run(void **state)
{
    (void)state;
    CHECK_OK(pb_gpu_can_assume(90, 80));
    CHECK_OK(pb_gpu_can_assume(90, 90));
    CHECK_OK(pb_gpu_can_assume(90, 120));
    CHECK_OK(pb_gpu_can_assume(120, 89));
    CHECK_FAILS(pb_gpu_can_assume(89, 80), PB_EINVAL,
                "PB_CAPABILITY=8.0: this GPU has compute capability 8.9 and cannot run what is selected for that one");
    CHECK_FAILS(pb_gpu_can_assume(100, 90), PB_EINVAL, "PB_CAPABILITY=9.0: this GPU has compute capability 10.0");
}

static void out_of_memory_states_requested_and_free_bytes(void **state)
{
    (void)state;
    CHECK_FAILS(pb_gpu_no_memory(98304000000u, 12345678901u, 150120000000u), PB_ENOMEM,
                "cuda: out of memory: 98304000000 bytes requested (98.304 GB), 12.346 of 150.120 GB free");
    CHECK_FAILS(pb_gpu_no_memory(64, 0, 0), PB_ENOMEM, "cuda: out of memory: 64 bytes requested");
    assert_null(strstr(pb_error(), "free")); /* free memory is unknown */
}

/* While the device works, a failure keeps its own message. When the device is lost, the message names it first, and
 * later calls fail as well. */
static void a_lost_device_is_named_with_the_first_failure(void **state)
{
    pb_ctx *ctx = *state;
    float x = 1;
    (void)pb_fail(PB_EDEVICE, "a process was refused");
    CHECK_OK(pb_device_check(ctx));
    assert_string_equal(pb_error(), "a process was refused");
    CHECK_OK(lose_device(ctx));
    CHECK_FAILS(pb_download(ctx, &x, &x, sizeof x), PB_EDEVICE, "taken away on purpose");
    (void)pb_fail(PB_EDEVICE, "a process was refused");
    CHECK_FAILS(pb_device_check(ctx), PB_EDEVICE, "the device is lost: a process was refused");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_driver_of_the_same_major_version_suffices),
        cmocka_unit_test(a_device_must_exist),
        cmocka_unit_test(a_device_must_be_recent_enough),
        cmocka_unit_test(shared_memory_follows_the_capability),
        cmocka_unit_test(a_capability_to_assume_is_read_and_checked),
        cmocka_unit_test(a_gpu_assumes_only_what_it_can_run),
        cmocka_unit_test(out_of_memory_states_requested_and_free_bytes),
        cmocka_unit_test_setup_teardown(a_lost_device_is_named_with_the_first_failure, test_open_cpu, test_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
