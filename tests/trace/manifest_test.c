/* manifest_test.c - manifest.json of a profiled job: what it says when the job begins, and what it adds, from the files
 * of the ranks, when the job ends. */
#include "trace/manifest.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "tests/test.h"

static char folder[64];

static int make_folder(void **state)
{
    char path[80];
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/manifest_test_XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/ranks", folder);
    return mkdir(path, 0777);
}

static int remove_folder(void **state)
{
    (void)state;
    return pb_disk_remove(&pb_disk_posix, folder) == PB_OK ? 0 : -1;
}

static void write_rank(int rank, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/ranks/rank%d.json", folder, rank);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const pb_profile_steps steps = {1, 1, 1, 2, 2};
static const char *const hosts[] = {"a", "b", "b"};
static bool profiled[] = {true, true, false};
static const pb_chosen chosen = {profiled, 3, 2, "as asked for"};

/* Writes the manifest and reads it. */
static json_t *written(bool ended, const pb_clock_report *reports, size_t n)
{
    char path[128];
    json_error_t e;
    const pb_manifest m = {.disk = &pb_disk_posix,
                           .out = folder,
                           .program = "test",
                           .version = "v1",
                           .libraries = "MPI 1",
                           .topology = "dp=3",
                           .chosen = &chosen,
                           .host = hosts,
                           .steps = &steps,
                           .begun = 7};
    CHECK_OK(pb_manifest_write(&m, ended, reports, n));
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    json_t *o = json_load_file(path, 0, &e);
    if (!o) fail_msg("manifest.json: %s", e.text);
    return o;
}

static json_int_t number_at(const json_t *o, const char *key)
{
    assert_true(json_is_integer(json_object_get(o, key)));
    return json_integer_value(json_object_get(o, key));
}

static void it_begins_without_what_only_the_end_knows(void **state)
{
    (void)state;
    json_t *m = written(false, NULL, 0);
    assert_string_equal(json_string_value(json_object_get(m, "version")), "v1");
    assert_string_equal(json_string_value(json_object_get(m, "libraries")), "MPI 1");
    assert_int_equal(json_array_size(json_object_get(m, "profiled")), 2);
    assert_int_equal(number_at(m, "begun"), 7);
    assert_true(json_is_null(json_object_get(m, "clocks")));
    assert_true(json_is_null(json_object_get(m, "recorded")));
    json_decref(m);
}

/* The windows of a rank are added up, the losses of its ring and of its GPU together. Ranks without a file are named. */
static void it_ends_with_what_the_ranks_recorded(void **state)
{
    (void)state;
    write_rank(1, "{\"windows\": [{\"events\": 9, \"dropped\": 3, \"omitted\": 2, \"truncated\": true, \"gpu\": "
                  "{\"dropped\": 4}}, {\"events\": 1, \"dropped\": 1, \"truncated\": false}],"
                  " \"step_times\": {\"off\": {\"median_s\": 2.0}, \"recorded\": {\"median_s\": 3.0}}}");
    write_rank(2, "{\"windows\": [], \"step_times\": {\"off\": {\"median_s\": 2.0}}}");
    json_t *m = written(true, NULL, 0);
    const json_t *list = json_object_get(m, "recorded"), *one = json_array_get(list, 1), *two = json_array_get(list, 2);
    assert_int_equal(json_array_size(list), 3);
    assert_int_equal(number_at(json_array_get(list, 0), "rank"), 0);
    assert_non_null(json_object_get(json_array_get(list, 0), "unknown"));
    assert_int_equal(number_at(one, "rank"), 1);
    assert_int_equal(number_at(one, "windows"), 2);
    assert_int_equal(number_at(one, "events"), 10);
    assert_int_equal(number_at(one, "dropped"), 8);
    assert_int_equal(number_at(one, "omitted"), 2);
    assert_int_equal(number_at(one, "truncated"), 1);
    assert_true(fabs(json_number_value(json_object_get(one, "recorded_over_off")) - 1.5) <= 1e-12);
    assert_int_equal(number_at(two, "windows"), 0);
    assert_null(json_object_get(two, "recorded_over_off"));
    assert_null(json_object_get(two, "unknown"));
    json_decref(m);
}

static void it_ends_with_the_clocks(void **state)
{
    static const pb_clock_report reports[] = {{1, 0, 5, {true, 1, -20, 3, ""}}, {2, 1, 5, {.why = "no answer"}}};
    (void)state;
    for (int rank = 0; rank < 3; rank++) write_rank(rank, "{}");
    json_t *m = written(true, reports, 2);
    const json_t *list = json_object_get(m, "clocks");
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(number_at(json_array_get(list, 0), "offset_ns"), -20);
    assert_int_equal(number_at(json_array_get(list, 0), "uncertainty_ns"), 3);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 1), "unknown")), "no answer");
    json_decref(m);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_begins_without_what_only_the_end_knows),
        TEST(it_ends_with_what_the_ranks_recorded),
        TEST(it_ends_with_the_clocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
