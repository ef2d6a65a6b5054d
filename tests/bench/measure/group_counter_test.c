/* group_counter_test.c - counting by a metric group: only the call is counted, counters that were taken away are said
 * and not scaled, and a metric that was not measured, or that calls do not repeat, has no value and says why. */
#include <math.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/measure/group_counter.h"
#include "tests/bench/emitter.h"

enum { PAGES = 300, PAGE = 4096 };

/* ---- counting on a CPU ------------------------------------------------------------------------------ */

typedef struct pages {
    char *p; /* fresh memory */
    int per_call, before;
} pages;

static pb_status touch(pages *m, int n)
{
    for (int i = 0; i < n; i++, m->p += PAGE) *(volatile char *)m->p = 1;
    return PB_OK;
}

static pb_status touch_in_call(pb_ctx *ctx, void *self)
{
    (void)ctx;
    pages *m = self;
    return touch(m, m->per_call);
}

static pb_status touch_before(pb_ctx *ctx, void *self)
{
    (void)ctx;
    pages *m = self;
    return touch(m, m->before);
}

static void counts_only_the_call(void **state)
{
    const size_t bytes = (size_t)PAGE * 40 * PAGES;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pages m = {memory, PAGES, 2 * PAGES};
    pb_group_counter *c = calloc(1, sizeof *c);
    pb_timing *t = calloc(1, sizeof *t);
    pb_ctx ctx;
    (void)state;
    assert_true(memory != MAP_FAILED && c && t);
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE);
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    const pb_status opened = pb_group_counter_open("SYSTEM", &ctx, c);
    if (opened == PB_EUNSUPPORTED) {
        printf("skipped: %s\n", pb_error());
    } else {
        CHECK_OK(opened);
        pb_measure_opts o = {.warmup = 1, .min_samples = 1, .max_samples = 1, .group = c};
        o.before = touch_before, o.before_self = &m;
        CHECK_OK(pb_measure(&ctx, touch_in_call, &m, &o, t));
        assert_int_equal(c->n, PB_REPLAYS);
        assert_true(t->counted && t->group == c);
        assert_int_equal(t->n, 0);
        for (int i = 0; i < c->n; i++) { /* the first event of SYSTEM is page-faults */
            assert_true(c->counts[i][0] >= PAGES);
            assert_true(c->counts[i][0] < 2 * PAGES);
        }
        o.graph = true;
        CHECK_FAILS(pb_measure(&ctx, touch_in_call, &m, &o, t), PB_EUNSUPPORTED,
                    "counters: events of a replayed graph");
        pb_group_counter_close(c);
    }
    pb_ctx_close(&ctx);
    munmap(memory, bytes);
    free(t);
    free(c);
}

static void taken_counters_are_said(void **state)
{
    double v[2];
    char why[PB_COUNTS_WHY];
    (void)state;
    pb_cpu_counters_take((const uint64_t[]){2, 5000000, 5000000, 70, 80}, 2, v, why);
    CHECK_NEAR(v[0], 70, 0);
    CHECK_NEAR(v[1], 80, 0);
    assert_string_equal(why, "");
    pb_cpu_counters_take((const uint64_t[]){2, 5000000, 2500000, 70, 80}, 2, v, why);
    assert_true(isnan(v[0]) && isnan(v[1]));
    assert_non_null(strstr(why, "counted for 2.5 of 5 ms: other users of the counters took them away"));
    pb_cpu_counters_take((const uint64_t[]){2, 0, 0, 0, 0}, 2, v, why);
    assert_true(isnan(v[0]) && *why);
}

static void wrong_groups_are_refused(void **state)
{
    pb_counter_group g = {.name = "X", .chip = "cpu", .events = 1, .event = {{"a", "no-such-event"}}};
    pb_cpu_counters c;
    (void)state;
    CHECK_FAILS(pb_cpu_counters_open(&g, &c), PB_EINVAL, "group X: there is no counter 'no-such-event' of a CPU");
    CHECK_FAILS(pb_group_counter_find("MEM", PB_CPU, &g), PB_EINVAL,
                "this group is for the chip GH100, and the run is on cpu");
    CHECK_FAILS(pb_group_counter_find("CPU", PB_CUDA, &g), PB_EINVAL, "this group is for cpu, and the run is on cuda");
}

/* ---- groups whose metrics metrics.def has not ---------------------------------------------------------- */

static void write_group(const char *folder, const char *metric, const char *unit)
{
    char path[128];
    snprintf(path, sizeof path, "%s/X.txt", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "SHORT s\nCHIP cpu\nPASSES 1\nEVENTS\na cycles\nMETRICS\n%s %s a\n", metric, unit);
    fclose(f);
}

static void metrics_are_those_of_metrics_def(void **state)
{
    char folder[] = "/tmp/pb_groups_XXXXXX", path[128];
    pb_counter_group g;
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("PB_GROUPS", folder, 1);
    write_group(folder, "cpu_cycle", "1");
    CHECK_FAILS(pb_group_counter_find("X", PB_CPU, &g), PB_EINVAL, "group X: there is no metric 'cpu_cycle'");
    write_group(folder, "cpu_cycles", "B");
    CHECK_FAILS(pb_group_counter_find("X", PB_CPU, &g), PB_EINVAL, "group X: metric cpu_cycles has the unit 1, not B");
    write_group(folder, "cpu_cycles", "1");
    CHECK_OK(pb_group_counter_find("X", PB_CPU, &g));
    unsetenv("PB_GROUPS");
    snprintf(path, sizeof path, "%s/X.txt", folder);
    unlink(path);
    rmdir(folder);
}

static pb_status find_again(void *user, const pb_counter_group *g)
{
    pb_counter_group same;
    if (g->sampled) { /* a trace shows its metrics, and no row has them */
        CHECK_FAILS(pb_group_counter_find(g->name, PB_CUDA, &same), PB_EINVAL, "this group is sampled over time");
        return PB_OK;
    }
    ++*(int *)user;
    return pb_group_counter_find(g->name, pb_group_on_cpu(g) ? PB_CPU : PB_CUDA, &same);
}

static void metrics_of_the_shipped_groups_exist(void **state)
{
    int n = 0;
    (void)state;
    CHECK_OK(pb_group_each(find_again, &n));
    assert_true(n >= 8);
}

/* ---- rows --------------------------------------------------------------------------------------------- */

static pb_group_counter *counted(const char *group, const double first[PB_GROUP_EVENTS], double step, int n)
{
    static pb_group_counter c;
    c = (pb_group_counter){.n = n, .l2 = 50000000};
    CHECK_OK(pb_group_find(group, &c.group));
    for (int i = 0; i < n; i++)
        for (int k = 0; k < c.group.events; k++) c.counts[i][k] = first[k] + step * i;
    return &c;
}

static const pb_case one = {.suite = "kernels", .name = "x", .key = "kernels/x?dtype=f32"};

/* Emits the rows of a group, and returns the line of a metric. */
static const char *row_of(const pb_group_counter *c, double bytes, const char *metric)
{
    static char line[1000];
    char name[64];
    pb_emitter e;
    open_emitter(&e);
    CHECK_OK(pb_emit_group(&e, &one, c, bytes));
    snprintf(name, sizeof name, ",%s,", metric);
    const char *at = strstr(results(), name);
    assert_non_null(at);
    snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    close_emitter(&e);
    return line;
}

#define CHECK_ROW(row, text)                                                                                           \
    do {                                                                                                               \
        const char *row_ = (row);                                                                                      \
        if (!strstr(row_, text)) fail_msg("'%s' is not in: %s", text, row_);                                           \
    } while (0)

static void rows_have_median_and_spread(void **state)
{
    (void)state;
    const double mem[PB_GROUP_EVENTS] = {1e9, 2e9, 1e6};
    CHECK_ROW(row_of(counted("MEM", mem, 0, PB_REPLAYS), 4e9, "dram_read_bytes"),
              ",dram_read_bytes,B,none,1e+09,10,ok,,");
    CHECK_ROW(row_of(counted("MEM", mem, 0, PB_REPLAYS), 4e9, "dram_rate"), ",dram_rate,B/s,none,3e+12,10,ok,");
    CHECK_ROW(row_of(counted("MEM", mem, 1e7, PB_REPLAYS), 4e9, "dram_read_bytes"),
              ",1.045e+09,10,ok,10 calls gave 1e+09 to 1.09e+09");
}

static void an_exact_counter_must_repeat(void **state)
{
    const double blocks[PB_GROUP_EVENTS] = {1, 1, 1, 1, 132, 1056}, mem[PB_GROUP_EVENTS] = {1e9, 2e9, 1e6};
    (void)state;
    CHECK_ROW(row_of(counted("OCCUPANCY", blocks, 0, PB_REPLAYS), 0, "blocks_launched"), ",132,10,ok,");
    CHECK_ROW(row_of(counted("OCCUPANCY", blocks, 1, PB_REPLAYS), 0, "blocks_launched"),
              ",blocks_launched,1,none,,0,unsupported,\"10 equal calls gave 132 to 141, which is outside the bound");
    CHECK_ROW(row_of(counted("MEM", mem, 1e6, PB_REPLAYS), 4e9, "dram_bytes"), ",dram_bytes,B,none,3.009e+09,10,ok,");
    CHECK_ROW(row_of(counted("MEM", mem, 1e7, PB_REPLAYS), 4e9, "dram_bytes"),
              ",dram_bytes,B,none,,0,unsupported,\"10 equal");
}

static void what_was_not_measured_is_empty(void **state)
{
    const double mem[PB_GROUP_EVENTS] = {1e9, 2e9, 0}, nan[PB_GROUP_EVENTS] = {(double)NAN, 2e9, 1e6};
    (void)state;
    CHECK_ROW(row_of(counted("MEM", mem, 0, PB_REPLAYS), 4e9, "dram_rate"),
              ",dram_rate,B/s,none,,0,unsupported,the formula divides by a count of 0");
    CHECK_ROW(row_of(counted("MEM", mem, 0, 3), 4e9, "dram_read_bytes"),
              ",,0,unsupported,interrupted after 3 of 10 calls");
    CHECK_ROW(
        row_of(counted("MEM", mem, 0, PB_REPLAYS), 1.9e8, "dram_bytes"),
        ",dram_bytes,B,none,,0,unsupported,\"depends on what L2 holds: the call's tensors have 1.9e+08 bytes, and need "
        "more than 2e+08 (4 times L2)");
    CHECK_ROW(row_of(counted("MEM", mem, 0, PB_REPLAYS), 2.1e8, "dram_bytes"), ",3e+09,10,ok,");
    pb_group_counter *c = counted("MEM", nan, 0, PB_REPLAYS);
    snprintf(c->why, sizeof c->why, "taken away");
    CHECK_ROW(row_of(c, 4e9, "dram_read_bytes"), ",dram_read_bytes,B,none,,0,unsupported,taken away");
    c = counted("MEM", mem, 0, PB_REPLAYS);
    c->l2 = 0;
    CHECK_ROW(row_of(c, 4e9, "dram_bytes"), ",,0,unsupported,\"depends on what L2 holds");
}

static const char *error_row(double known, const char *metric)
{
    static char text[2000];
    const double mem[PB_GROUP_EVENTS] = {1e9, 2e9, 1e6};
    pb_emitter e;
    open_emitter(&e);
    CHECK_OK(pb_emit_counter_error(&e, &one, counted("MEM", mem, 0, PB_REPLAYS), metric, known));
    snprintf(text, sizeof text, "%s", strstr(results(), ",counter_error,"));
    close_emitter(&e);
    return text;
}

static void a_counter_is_checked_with_what_is_known(void **state)
{
    (void)state;
    CHECK_ROW(error_row(3.08e9, "dram_bytes"), ",ok,\"dram_bytes: counted 3e+09, known 3.08e+09");
    CHECK_ROW(error_row(3.12e9, "dram_bytes"), ",wrong,");
    CHECK_ROW(error_row(2.9e9, "dram_bytes"), ",wrong,");
    CHECK_ROW(error_row(3e9, "tensor_bf16_flops"), ",,0,unsupported,this group does not count what is known");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_only_the_call),
        cmocka_unit_test(taken_counters_are_said),
        cmocka_unit_test(wrong_groups_are_refused),
        cmocka_unit_test(metrics_are_those_of_metrics_def),
        cmocka_unit_test(metrics_of_the_shipped_groups_exist),
        cmocka_unit_test(rows_have_median_and_spread),
        cmocka_unit_test(an_exact_counter_must_repeat),
        cmocka_unit_test(what_was_not_measured_is_empty),
        cmocka_unit_test(a_counter_is_checked_with_what_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
