/* resources_test.c - registers and spilled bytes of a call: their rows, from a backend that answers as this test says,
 * and no rows on a CPU or without kernels. */
#include "bench/measure/resources.h"

#include <string.h>

#include "tests/bench/emitter.h"

static pb_kernel_resources answer;
static pb_status recorded, reading;
static int graphs;

static pb_status record(pb_ctx *ctx, pb_fn fn, void *self, pb_graph **out)
{
    (void)ctx, (void)fn, (void)self;
    if (recorded != PB_OK) return pb_fail(recorded, "a host sync cannot be recorded");
    graphs++;
    *out = (pb_graph *)&answer;
    return PB_OK;
}

static pb_status resources(const pb_graph *graph, pb_kernel_resources *out)
{
    (void)graph;
    *out = answer;
    return reading == PB_OK ? PB_OK : pb_fail(reading, "the driver is too old");
}

static void release(pb_graph *graph) { graphs -= graph != NULL; }
static pb_status settle(pb_ctx *ctx) { return (void)ctx, PB_OK; }
static pb_status work(pb_ctx *ctx, void *self) { return (void)ctx, (void)self, PB_OK; }

static const pb_backend scripted = {
    .name = "scripted", .record = record, .graph_resources = resources, .graph_free = release, .sync = settle};

/* The rows of the call on a backend, without the fields that do not matter here. */
static const char *rows_on(const pb_backend *be, pb_backend_id id)
{
    static char out[512];
    pb_emitter e = {0};
    pb_case c = {.key = "kernels/x"};
    pb_ctx ctx = {.be = be, .id = id};
    open_emitter(&e);
    CHECK_OK(pb_emit_resources(&e, &c, &ctx, work, NULL));
    *out = 0;
    for (char *line = strtok(strchr(results(), '\n'), "\n"); line; line = strtok(NULL, "\n"))
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s\n",
                 strstr(line, "kernels/x,") + strlen("kernels/x,"));
    close_emitter(&e);
    assert_int_equal(graphs, 0);
    return out;
}

static void rows_of_a_gpu(void **state)
{
    (void)state;
    answer = (pb_kernel_resources){2, 168, 24};
    recorded = reading = PB_OK;
    assert_string_equal(rows_on(&scripted, PB_CUDA), "registers,1,none,168,0,ok,,,\nlocal_bytes,B,none,24,0,ok,,,\n");
}

static void nothing_without_kernels(void **state)
{
    (void)state;
    answer = (pb_kernel_resources){0};
    recorded = reading = PB_OK;
    assert_string_equal(rows_on(&scripted, PB_CUDA), "");
    answer = (pb_kernel_resources){2, 168, 24};
    assert_string_equal(rows_on(&scripted, PB_CPU), "");
}

static void no_value_without_a_recording(void **state)
{
    (void)state;
    answer = (pb_kernel_resources){2, 168, 24};
    recorded = PB_EUNSUPPORTED, reading = PB_OK;
    assert_non_null(
        strstr(rows_on(&scripted, PB_CUDA), "registers,1,none,,0,unsupported,a host sync cannot be recorded"));
    recorded = PB_OK, reading = PB_EUNSUPPORTED;
    assert_non_null(strstr(rows_on(&scripted, PB_CUDA), "local_bytes,B,none,,0,unsupported,the driver is too old"));
}

/* A device that is lost ends the case: its rows would look like those of a call that cannot be recorded. */
static void a_failure_is_no_row(void **state)
{
    pb_emitter e = {0};
    pb_case c = {.key = "kernels/x"};
    pb_ctx ctx = {.be = &scripted, .id = PB_CUDA};
    (void)state;
    recorded = PB_EDEVICE, reading = PB_OK;
    open_emitter(&e);
    CHECK_FAILS(pb_emit_resources(&e, &c, &ctx, work, NULL), PB_EDEVICE, "a host sync cannot be recorded");
    assert_null(strstr(results(), "registers"));
    close_emitter(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_a_gpu), cmocka_unit_test(nothing_without_kernels),
                                       cmocka_unit_test(no_value_without_a_recording),
                                       cmocka_unit_test(a_failure_is_no_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
