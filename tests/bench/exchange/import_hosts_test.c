/* import_hosts_test.c - `bench import nccl-tests` of ranks on several hosts: their number is an axis of the keys. */
#include "bench/exchange/import.h"
#include "tests/bench/run_files.h"

#define NCCL                                                                                                           \
    "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"                                   \
    "1024 256 float sum -1 10.0 1.0 1.0 0 10.0 1.0 1.0 0\n"                                                            \
    "# Out of bounds values : 0 OK\n"

static void import_text(const char *tool, const char *text, capture *c)
{
    pb_import im;
    CHECK_OK(pb_import_open(tool, &im));
    CHECK_OK(pb_import_bytes(&im, "in", text, strlen(text)));
    CHECK_OK(pb_import_finish(&im));
    pb_import_write(&im, "run", "machine", capture_begin(c));
    capture_end(c);
    pb_import_close(&im);
}

/* bench project needs to know which ranks are linked by a network. */
static void several_hosts_are_an_axis(void **state)
{
    static const char ranks[] = "#  Rank  0 Group  0 Pid 3 on  a device  0 [0000:04:00] NVIDIA H200\n"
                                "#  Rank  1 Group  0 Pid 4 on  %s device  0 [0000:04:00] NVIDIA H200\n" NCCL;
    static const char json[] =
        "{\"args\": [\"all_reduce_perf\"], \"config\": {\"nthreads\": 1, \"ngpus\": 1, \"iterations\": 5, \"devices\": "
        "[{\"hostname\": \"a\", \"device_info\": \"G\"}, {\"hostname\": \"%s\", \"device_info\": \"G\"}]}, "
        "\"results\": "
        "[{\"size\": 64, \"type\": \"float\", \"redop\": \"sum\", \"root\": \"-1\", \"out_of_place\": {\"time\": 2.5, "
        "\"alg_bw\": 1, \"bus_bw\": 1, \"nwrong\": 0}}], \"out_of_bounds\": {}}";
    static const char *const formats[] = {ranks, json};
    (void)state;
    for (int i = 0; i < 4; i++) {
        char text[1024];
        capture c;
        const bool two = i % 2 == 1;
        snprintf(text, sizeof text, formats[i / 2], two ? "b" : "a");
        import_text("nccl-tests", text, &c);
        assert_non_null(strstr(c.text, "&ranks=2&"));
        assert_int_equal(strstr(c.text, "?hosts=2&place=out&") != NULL, two);
        assert_int_equal(strstr(c.text, "hosts=") != NULL, two);
        free(c.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(several_hosts_are_an_axis)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
