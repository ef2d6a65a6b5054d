/* select_device_test.c - which GPU is left visible by --device cuda:N. No GPU is needed: only the environment
 * changes. */
#include <stdlib.h>

#include "bench/options/options.h"
#include "tests/test.h"

/* Selects `device`, with CUDA_VISIBLE_DEVICES set to `visible` (NULL: unset), and returns its value afterwards. */
static const char *visible_after(const char *device, const char *visible)
{
    const pb_options o = {.device = device, .ranks = -1};
    assert_int_equal(unsetenv("PB_SELECTED_DEVICE"), 0);
    assert_int_equal(visible ? setenv("CUDA_VISIBLE_DEVICES", visible, 1) : unsetenv("CUDA_VISIBLE_DEVICES"), 0);
    assert_int_equal(pb_options_select_device(&o), PB_OK);
    return getenv("CUDA_VISIBLE_DEVICES");
}

static void the_named_gpu_is_left_visible(void **state)
{
    (void)state;
    assert_string_equal(visible_after("cuda:0", NULL), "0");
    assert_string_equal(visible_after("cuda:3", NULL), "3");
    assert_string_equal(visible_after("cuda:1", "6,4,GPU-12ab"), "4");
    assert_string_equal(visible_after("cuda:2", "6,4,GPU-12ab"), "GPU-12ab");
}

static void without_a_number_nothing_changes(void **state)
{
    (void)state;
    assert_null(visible_after("cuda", NULL));
    assert_null(visible_after("cpu", NULL));
    assert_null(visible_after(NULL, NULL));
    assert_string_equal(visible_after("cuda", "6,4"), "6,4");
}

/* A process that bench started gets the same --device, and the variable that is set already. */
static void a_started_process_does_not_select_again(void **state)
{
    const pb_options o = {.device = "cuda:1", .ranks = -1};
    (void)state;
    assert_string_equal(visible_after("cuda:1", "6,4"), "4");
    assert_int_equal(pb_options_select_device(&o), PB_OK);
    assert_string_equal(getenv("CUDA_VISIBLE_DEVICES"), "4");
}

static void a_gpu_that_is_not_there_is_refused(void **state)
{
    pb_options o = {.device = "cuda:2", .ranks = -1};
    (void)state;
    assert_int_equal(unsetenv("PB_SELECTED_DEVICE"), 0);
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "6,4", 1), 0);
    CHECK_FAILS(pb_options_select_device(&o), PB_EINVAL, "CUDA_VISIBLE_DEVICES=6,4 has 2 GPUs");
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "6,,4", 1), 0);
    o.device = "cuda:1";
    CHECK_FAILS(pb_options_select_device(&o), PB_EINVAL, "has no name of a GPU there");
    o.ranks = 2;
    CHECK_FAILS(pb_options_select_device(&o), PB_EINVAL, "each rank uses the GPU with its own number");
    o.device = "cpu:1";
    CHECK_FAILS(pb_options_select_device(&o), PB_EINVAL, "is not one of");
}

static void the_backend_has_no_number(void **state)
{
    const pb_options o = {.device = "cuda:7"};
    pb_backend_id id = PB_CPU;
    (void)state;
    assert_int_equal(pb_options_backend(&o, &id), PB_OK);
    assert_int_equal(id, PB_CUDA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_named_gpu_is_left_visible),
        cmocka_unit_test(without_a_number_nothing_changes),
        cmocka_unit_test(a_started_process_does_not_select_again),
        cmocka_unit_test(a_gpu_that_is_not_there_is_refused),
        cmocka_unit_test(the_backend_has_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
