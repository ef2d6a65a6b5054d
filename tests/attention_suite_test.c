/* attention_suite_test.c - the suite attention: its lists, its counts of work against sums by hand, its floors, what
 * its comparison with the reference notices, the contracts and crossovers that it derives, and a case from end to end.
 */
#include <unistd.h>

#include "bench/attention_contracts.h"
#include "bench/attention_crossover.h"
#include "bench/plan.h"
#include "bench/results.h"
#include "tests/test.h"

/* ---- cases ------------------------------------------------------------------------------------------------ */

static pb_status add_to(void *user, const pb_case *c)
{
    *(pb_case *)user = *c;
    return PB_OK;
}

static pb_case case_of(const char *line)
{
    pb_case c;
    CHECK_OK(pb_grid_expand("attention", pb_suite_attention.axes, line, add_to, &c));
    return c;
}

static pb_attention sizes_of(const char *line)
{
    const pb_case c = case_of(line);
    pb_attention a;
    CHECK_OK(pb_attention_of(&c, &a));
    return a;
}

static void refused(const char *line, const char *why)
{
    const pb_case c = case_of(line);
    pb_attention a;
    CHECK_FAILS(pb_suite_attention.check(&c), PB_EINVAL, why);
    CHECK_FAILS(pb_attention_of(&c, &a), PB_EINVAL, why);
}

static void cases_that_cannot_be_are_refused(void **state)
{
    (void)state;
    refused("sideways", "no case 'sideways'");
    refused("fwd arm=thin", "'thin'");
    refused("fwd list=sorted", "'sorted'");
    refused("fwd topk=0", "topk: 0 is outside 1..");
    refused("fwd heads=0", "heads");
    refused("fwd qk=577", "qk: 577");
    refused("fwd masked=101", "masked");
    refused("fwd list=v4 masked=75", "goes with list=random");
    refused("bwd arm=dense list=random", "goes with list=causal");
    assert_int_equal(sizes_of("bwd arm=dense list=causal topk=0").W, 0);
    assert_int_equal(sizes_of("fwd list=v4 seq=1283").S_kv, 1283 + 320);
    assert_int_equal(sizes_of("fwd qk=576").V, 512);
}

/* ---- lists ------------------------------------------------------------------------------------------------ */

static int32_t *lists_of(const pb_attention *a)
{
    int32_t *idx = malloc((size_t)a->S * a->W * sizeof *idx);
    assert_non_null(idx);
    CHECK_OK(pb_attention_lists(a, idx));
    return idx;
}

/* Fails where a row stands twice, or outside of [0,n); returns how many there are. */
static int distinct(const int32_t *list, int W, int n)
{
    static bool seen[4096];
    int valid = 0;
    memset(seen, 0, sizeof seen);
    for (int w = 0; w < W; w++) {
        if (list[w] == -1) continue;
        if (list[w] < 0 || list[w] >= n || seen[list[w]]) fail_msg("slot %d holds %d", w, (int)list[w]);
        seen[list[w]] = true;
        valid++;
    }
    return valid;
}

static void random_lists_are_full_and_without_repeats(void **state)
{
    (void)state;
    for (int S = 1; S < 70; S += 17) {
        pb_attention a = sizes_of("fwd topk=50");
        a.S = a.S_kv = S;
        int32_t *idx = lists_of(&a);
        for (int i = 0; i < S; i++) assert_int_equal(distinct(idx + (size_t)i * 50, 50, S), S < 50 ? S : 50);
        free(idx);
    }
}

/* Every row about as often as any other, neighbours no likelier to share a row than chance has it, and no order. */
static void random_lists_are_random(void **state)
{
    const pb_attention a = sizes_of("fwd topk=256 seq=1024");
    int32_t *idx = lists_of(&a);
    double named[1024] = {0}, shared = 0, rising = 0;
    (void)state;
    for (int i = 0; i < a.S; i++) {
        bool here[1024] = {false};
        for (int w = 0; w < a.W; w++) here[idx[(size_t)i * a.W + w]] = true, named[idx[(size_t)i * a.W + w]]++;
        for (int w = 0; i && w < a.W; w++) shared += here[idx[(size_t)(i - 1) * a.W + w]];
        for (int w = 1; w < a.W; w++) rising += idx[(size_t)i * a.W + w] > idx[(size_t)i * a.W + w - 1];
    }
    /* 256 = S W / S_kv, of standard deviation 14; 64 = W^2 / S_kv of 256, whose mean over 1023 has 0.2 */
    for (int r = 0; r < 1024; r++) CHECK_NEAR(named[r], 256, 5 * 14);
    CHECK_NEAR(shared / 1023, 64, 1.2);
    CHECK_NEAR(rising / (1024 * 255), 0.5, 0.01);
    free(idx);
}

static void masked_slots_are_as_many_as_asked_for(void **state)
{
    static const char *const lines[] = {"fwd topk=640 seq=1280", "fwd topk=640 seq=1280 masked=75",
                                        "fwd topk=640 seq=1280 masked=100"};
    const double want[] = {1, 0.25, 0};
    (void)state;
    for (int k = 0; k < 3; k++) {
        const pb_attention a = sizes_of(lines[k]);
        int32_t *idx = lists_of(&a);
        CHECK_NEAR(pb_attention_pairs(&a, idx) / pb_attention_listed(&a, idx), want[k], k == 1 ? 0.005 : 0);
        CHECK_NEAR(pb_attention_listed(&a, idx), 1280 * 640, 0);
        free(idx);
    }
}

static void causal_lists_end_at_their_query(void **state)
{
    const pb_attention a = sizes_of("fwd list=causal topk=64 seq=200");
    int32_t *idx = lists_of(&a);
    (void)state;
    for (int i = 0; i < a.S; i++) {
        const int n = distinct(idx + (size_t)i * 64, 64, i + 1);
        assert_int_equal(n, i < 63 ? i + 1 : 64);
        for (int w = n; w < 64; w++) assert_int_equal(idx[(size_t)i * 64 + w], -1);
    }
    free(idx);
}

/* The last 128 rows in order, masked slots behind them where there are fewer, then groups that are complete. */
static void v4_lists_are_a_window_and_complete_groups(void **state)
{
    const pb_attention a = sizes_of("fwd list=v4 topk=160 seq=700");
    int32_t *idx = lists_of(&a);
    double valid = 0;
    (void)state;
    for (int i = 0; i < a.S; i++) {
        const int32_t *list = idx + (size_t)i * a.W;
        const int first = i < 128 ? 0 : i - 127, groups = (i + 1) / 4;
        distinct(list, a.W, a.S_kv);
        for (int w = 0; w < 128; w++) assert_int_equal(list[w], first + w <= i ? first + w : -1);
        for (int w = 128; w < 160; w++) {
            const bool there = w - 128 < groups;
            assert_true(there ? list[w] >= a.S && list[w] < a.S + groups : list[w] == -1);
        }
        valid += (i < 127 ? i + 1 : 128) + (groups < 32 ? groups : 32);
    }
    CHECK_NEAR(pb_attention_pairs(&a, idx), valid, 0);
    free(idx);
    const pb_attention narrow = sizes_of("fwd list=v4 topk=16 seq=300"); /* a window of 16 and no group */
    idx = lists_of(&narrow);
    for (int w = 0; w < 16; w++) assert_int_equal(idx[299 * 16 + w], 284 + w);
    free(idx);
}

/* ---- work ------------------------------------------------------------------------------------------------- */

/* The figures that the authors of the public kernels give for this shape. */
static void work_is_counted_as_public_kernels_count_it(void **state)
{
    const pb_attention f = sizes_of("fwd heads=64 topk=640 seq=1280"), b = sizes_of("bwd heads=64 topk=640 seq=1280");
    const pb_attention wide = sizes_of("bwd heads=128 qk=576 topk=2048 seq=4096");
    (void)state;
    CHECK_NEAR(pb_attention_flops(&f, 1280 * 640), 107374182400.0, 0);
    CHECK_NEAR(pb_attention_flops(&b, 1280 * 640), 268435456000.0, 0);
    CHECK_NEAR(pb_attention_flops(&wide, 4096.0 * 2048), 4096.0 * 2048 * 128 * (6 * 576 + 4 * 512), 0);
    CHECK_NEAR(pb_attention_reduced(&b, 1280 * 640), 1677721600.0, 0);
    CHECK_NEAR(pb_attention_reduced(&f, 1280 * 640), 0, 0);
}

static void dense_pairs_are_a_triangle(void **state)
{
    const pb_attention all = sizes_of("bwd arm=dense list=causal topk=0 seq=100"),
                       window = sizes_of("bwd arm=dense list=causal topk=10 seq=100");
    (void)state;
    CHECK_NEAR(pb_attention_pairs(&all, NULL), 5050, 0);
    CHECK_NEAR(pb_attention_pairs(&window, NULL), 55 + 90 * 10, 0);
    CHECK_NEAR(pb_attention_reduced(&all, 5050), 0, 0);
}

static void the_largest_floor_binds(void **state)
{
    const pb_attention b = sizes_of("bwd heads=64 topk=1024 seq=4096"), f = sizes_of("fwd heads=64 topk=1024 seq=4096"),
                       d = sizes_of("bwd arm=dense list=causal topk=0 heads=64 seq=4096");
    const pb_attention_ceilings all = {4e12, 800e12, 3.7e12}, slow = {1e10, 800e12, 3.7e12}, cpu = {1e10, 1e12, 0};
    const double n = 4096.0 * 1024;
    pb_attention_floor got = pb_attention_floor_of(&b, n, 1e9, &all);
    (void)state;
    assert_string_equal(got.bound, "reductions in the second-level cache");
    CHECK_NEAR(got.seconds, n * 2048 / 3.7e12, 1e-15);
    got = pb_attention_floor_of(&f, n, 1e9, &all);
    assert_string_equal(got.bound, "matrix products");
    CHECK_NEAR(got.seconds, n * 64 * 2048 / 800e12, 1e-15);
    got = pb_attention_floor_of(&d, n, 1e9, &all);
    assert_string_equal(got.bound, "matrix products");
    got = pb_attention_floor_of(&b, n, 1e9, &slow);
    assert_string_equal(got.bound, "memory");
    CHECK_NEAR(got.seconds, 0.1, 1e-15);
    got = pb_attention_floor_of(&b, n, 1e9, &cpu); /* a ceiling that was not measured */
    assert_string_equal(got.bound, "matrix products");
}

/* ---- what the comparison notices ---------------------------------------------------------------------------- */

static pb_deviation deviation(int n, const double *want, const double *got)
{
    pb_deviation d = {0};
    for (int i = 0; i < n; i++) pb_deviation_add(&d, want[i], got[i]);
    return d;
}

static void deviations_are_those_of_their_formulas(void **state)
{
    const double want[] = {3, 4}, got[] = {3, 5}, zero[] = {0, 0}, nan[] = {(double)NAN, 4};
    pb_deviation d = deviation(2, want, got);
    (void)state;
    CHECK_NEAR(pb_deviation_rel(&d), 0.2, 1e-15);
    CHECK_NEAR(pb_deviation_most(&d), 1 / sqrt(12.5), 1e-15);
    CHECK_NEAR(pb_deviation_rel_diff(&d), 1 - 2 * 29.0 / 59, 1e-15);
    d = deviation(2, zero, zero);
    CHECK_NEAR(pb_deviation_rel(&d) + pb_deviation_most(&d) + pb_deviation_rel_diff(&d), 0, 0);
    d = deviation(2, want, nan);
    assert_true(isnan(pb_deviation_rel(&d)) && isnan(pb_deviation_most(&d)) && isnan(pb_deviation_rel_diff(&d)));
    d = deviation(2, nan, want);
    assert_true(isnan(pb_deviation_rel(&d)) && isnan(pb_deviation_most(&d)) && isnan(pb_deviation_rel_diff(&d)));
}

static pb_attention_error error_of(pb_ctx *ctx, pb_attention_call *c)
{
    pb_attention_error e;
    CHECK_OK(pb_attention_check(ctx, c, &e));
    return e;
}

static void must_be_right(pb_ctx *ctx, pb_attention_call *c)
{
    char why[200];
    CHECK_OK(pb_attention_run(ctx, c));
    const pb_attention_error e = error_of(ctx, c);
    if (!pb_attention_right(&e, why, sizeof why)) fail_msg("%s", why);
    for (int k = 0; k < PB_CHECKED && e.name[k]; k++) assert_true(e.of[k].n > 0);
}

static void must_say(pb_ctx *ctx, pb_attention_call *c, const char *what)
{
    char why[200] = "";
    const pb_attention_error e = error_of(ctx, c);
    assert_false(pb_attention_right(&e, why, sizeof why));
    if (!strstr(why, what)) fail_msg("'%s' does not say '%s'", why, what);
}

static void every_arm_and_list_is_right(void **state)
{
    static const char *const lines[] = {
        "fwd seq=70 heads=3 qk=32 topk=20",
        "bwd seq=70 heads=3 qk=32 topk=20",
        "bwd seq=70 heads=3 qk=32 topk=20 dtype=bf16",
        "bwd seq=70 heads=3 qk=32 topk=20 masked=75",
        "bwd seq=70 heads=3 qk=32 topk=20 masked=100",
        "fwd seq=70 heads=3 qk=32 topk=20 masked=100",
        "bwd seq=300 heads=2 qk=32 topk=150 list=v4",
        "fwd seq=300 heads=2 qk=576 topk=40 list=causal",
        "bwd seq=70 heads=3 qk=576 topk=20 list=causal",
        "fwd seq=70 heads=3 qk=32 topk=0 arm=dense list=causal",
        "bwd seq=70 heads=3 qk=32 topk=0 arm=dense list=causal",
        "bwd seq=70 heads=3 qk=32 topk=9 arm=dense list=causal",
        "bwd seq=3 heads=2 qk=32 topk=9 arm=deterministic",
    };
    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        const pb_attention a = sizes_of(lines[k]);
        pb_attention_call c;
        CHECK_OK(pb_attention_open(*state, &a, &c));
        must_be_right(*state, &c);
        pb_attention_close(&c);
    }
}

/* A single element anywhere, sampled or not, in a row that nobody lists or not. */
static void one_bad_element_is_noticed(void **state)
{
    const pb_attention a = sizes_of("bwd seq=70 heads=3 qk=32 topk=1");
    pb_attention_call c;
    CHECK_OK(pb_attention_open(*state, &a, &c));
    must_say(*state, &c, "never written, the first in dq");
    float *outs[] = {c.dq, c.dkv, c.dsink};
    const size_t at[] = {41 * 96 + 5, 33 * 32 + 7, 1};
    const char *names[] = {"1 elements are not finite or never written, the first in dq", "the first in dkv",
                           "the first in dsink"};
    for (int k = 0; k < 3; k++) {
        must_be_right(*state, &c);
        outs[k][at[k]] = k % 2 ? (float)INFINITY : (float)NAN;
        must_say(*state, &c, names[k]);
    }
    pb_attention_close(&c);
}

/* 1 % of a gradient that is too much by far and yet finite. */
static void a_wrong_sum_is_noticed(void **state)
{
    const pb_attention a = sizes_of("bwd seq=200 heads=3 qk=32 topk=40 dtype=bf16");
    pb_attention_call c;
    CHECK_OK(pb_attention_open(*state, &a, &c));
    must_be_right(*state, &c);
    for (size_t i = 0; i < (size_t)a.S * a.H * a.D; i++) pb_store(c.dq, i, PB_BF16, 1.02 * pb_load(c.dq, i, PB_BF16));
    must_say(*state, &c, "dq differs");
    must_be_right(*state, &c);
    for (size_t i = 0; i < (size_t)a.S_kv * a.D; i++) pb_store(c.dkv, i, PB_BF16, 1.02 * pb_load(c.dkv, i, PB_BF16));
    must_say(*state, &c, "dkv differs");
    must_be_right(*state, &c);
    c.dsink[2] *= 1.02f;
    must_say(*state, &c, "dsink differs");
    pb_attention_close(&c);
}

/* A row of dkv that one of its queries was left out of: the sum over all others is not it. */
static void a_lost_query_is_noticed(void **state)
{
    const pb_attention a = sizes_of("bwd seq=64 heads=2 qk=32 topk=64");
    pb_attention_call c;
    CHECK_OK(pb_attention_open(*state, &a, &c));
    for (int w = 0; w < a.W; w++) c.idx[17 * 64 + w] = -1; /* of the device's lists alone */
    CHECK_OK(pb_attention_run(*state, &c));
    must_say(*state, &c, "dkv differs");
    pb_attention_close(&c);
}

/* ---- rows --------------------------------------------------------------------------------------------------- */

static char dir[32];

static void open_sink(pb_sink *s)
{
    snprintf(dir, sizeof dir, "/tmp/pb_attn_XXXXXX");
    assert_non_null(mkdtemp(dir));
    CHECK_OK(pb_results_create(dir));
    CHECK_OK(pb_sink_open(dir, s));
    s->run_id = "r", s->machine_id = "m";
}

static void close_sink(pb_sink *s)
{
    static const char *const files[] = {"results.csv", "samples.csv"};
    char path[128];
    pb_sink_close(s);
    for (int i = 0; i < 2; i++) snprintf(path, sizeof path, "%s/%s", dir, files[i]), unlink(path);
    rmdir(dir);
}

static char *results(void)
{
    static char text[65536];
    char path[128];
    snprintf(path, sizeof path, "%s/results.csv", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void must_hold(const char *text)
{
    if (!strstr(results(), text)) fail_msg("no '%s' in\n%s", text, results());
}

static void must_lack(const char *text)
{
    if (strstr(results(), text)) fail_msg("'%s' in\n%s", text, results());
}

#define SHAPE "heads=64 topk=640 seq=1280"
static pb_attention_error right_error(void)
{
    const double x[] = {1, -2}, y[] = {1.0001, -2};
    pb_attention_error e = {.name = {"dq", "dkv", "dsink"}, .bad_in = NULL};
    for (int k = 0; k < PB_CHECKED; k++) e.of[k] = deviation(2, x, y);
    return e;
}

static void contracts(const char *line, const pb_attention_error *e, pb_sink *s)
{
    const pb_case c = case_of(line);
    const pb_attention a = sizes_of(line);
    CHECK_OK(pb_attention_contracts(s, &c, &a, e));
}

static void a_planted_nan_breaks_the_contracts(void **state)
{
    pb_attention_error e = right_error();
    const double x[] = {1, -2}, off[] = {1.012, -2};
    pb_sink s;
    (void)state;
    open_sink(&s);
    contracts("bwd dtype=f32 " SHAPE, &e, &s);
    contracts("bwd dtype=bf16 heads=32 topk=640 seq=1280", &e, &s);
    must_lack("contract/");
    contracts("bwd dtype=bf16 " SHAPE, &e, &s);
    must_hold("contract/MLA-FINITE?arm=sparse&dtype=bf16&heads=64&list=random&masked=0&pass=bwd&qk=512&seq=1280&"
              "topk=640,contract,1,none,0,0,pass,");
    must_hold("topk=640,contract,1,none,9.99980099e-10,0,pass,"); /* Q: 1e-8 / 10.0002 */
    must_lack(",fail,");
    e.bad = 1, e.bad_in = "dkv";
    contracts("bwd dtype=bf16 masked=75 " SHAPE, &e, &s);
    must_hold("masked=75&pass=bwd&qk=512&seq=1280&topk=640,contract,1,none,1,0,fail,");
    must_hold("the first in dkv");
    e = right_error();
    pb_deviation_add(&e.of[0], 1, (double)NAN);
    contracts("bwd dtype=bf16 arm=deterministic " SHAPE, &e, &s);
    must_hold("MLA-REL-DIFF-Q?arm=deterministic&dtype=bf16&heads=64&list=random&masked=0&pass=bwd&qk=512&seq=1280&"
              "topk=640,contract,1,none,,0,fail,");
    e = right_error();
    e.of[0] = e.of[2] = deviation(2, x, off); /* 1.44e-4 / 10.024: above the bound of q, below that of kv */
    contracts("bwd dtype=bf16 masked=100 " SHAPE, &e, &s);
    must_hold("MLA-REL-DIFF-Q?arm=sparse&dtype=bf16&heads=64&list=random&masked=100&pass=bwd&qk=512&seq=1280&topk=640,"
              "contract,1,none,1.43653164e-05,0,fail");
    must_hold("MLA-REL-DIFF-KV?arm=sparse&dtype=bf16&heads=64&list=random&masked=100&pass=bwd&qk=512&seq=1280&topk=640,"
              "contract,1,none,1.43653164e-05,0,pass");
    close_sink(&s);
}

static void put(pb_sink *s, const char *line, double seconds)
{
    const pb_case c = case_of(line);
    CHECK_OK(pb_emit(s, &c, "kernel_time", seconds, 1, "ok", ""));
}

static void a_launch_says_from_where_sparse_is_faster(void **state)
{
    pb_sink s;
    (void)state;
    open_sink(&s);
#define D "arm=dense list=causal topk=0 seq="
    put(&s, "fwd " D "1024", 1), put(&s, "fwd " D "4096", 16), put(&s, "bwd " D "1024", 2),
        put(&s, "bwd " D "4096", 32);
    put(&s, "fwd topk=64 seq=1024", 1.5), put(&s, "fwd topk=64 seq=4096", 8); /* ratios 1.5, 0.5: half way */
    put(&s, "bwd topk=64 seq=1024", 1), put(&s, "bwd topk=64 seq=4096", 4);
    put(&s, "fwd topk=512 seq=1024", 3), put(&s, "fwd topk=512 seq=4096", 17);
    put(&s, "fwd topk=512 seq=8192", 9);              /* without its dense twin */
    put(&s, "fwd topk=512 seq=2048 masked=75", 1e-3); /* no list that a model has */
    put(&s, "fwd arm=deterministic topk=512 seq=1024", 9);
    put(&s, "fwd topk=2048 seq=1024", 9); /* a single length */
    CHECK_OK(pb_attention_crossovers(&s));
    must_hold("crossover/attention?dtype=f32&heads=8&list=random&pass=fwd&qk=512&topk=64,sparse_from,1,none,2048,0,ok,"
              "\"2 lengths from 1024 to 4096; dense is faster below, sparse above\"");
    must_hold("pass=bwd&qk=512&topk=64,sparse_from,1,none,,0,unsupported,2 lengths from 1024 to 4096; sparse is faster "
              "at every one");
    must_hold("pass=both&qk=512&topk=64,sparse_from,1,none,,0,unsupported,"); /* 2.5 of 3, 12 of 48 */
    must_hold("pass=fwd&qk=512&topk=512,sparse_from,1,none,,0,unsupported,2 lengths from 1024 to 4096; dense is faster "
              "at the longest");
    must_lack("pass=both&qk=512&topk=512");
    must_lack("topk=2048,sparse_from");
    assert_null(strstr(strstr(results(), "pass=fwd&qk=512&topk=64") + 1, "pass=fwd&qk=512&topk=64")); /* one a family */
    close_sink(&s);
}

/* ---- a case from end to end: the pass can be made to leave a NaN behind ---------------------------------------- */

static bool plant;
pb_status __real_pb_attention_run(pb_ctx *ctx, void *call);
pb_status __wrap_pb_attention_run(pb_ctx *ctx, void *call);
pb_status __wrap_pb_attention_run(pb_ctx *ctx, void *call)
{
    const pb_attention_call *c = call;
    PB_TRY(__real_pb_attention_run(ctx, call));
    if (plant) ((float *)c->dkv)[3] = (float)NAN;
    return PB_OK;
}

static void ceiling(pb_sink *s, const char *key, const char *metric, double value)
{
    pb_case c;
    CHECK_OK(pb_case_parse(key, &c));
    CHECK_OK(pb_emit(s, &c, metric, value, 1, "ok", ""));
}

static void a_case_has_its_rows(void **state)
{
    const pb_case c = case_of("bwd seq=40 heads=2 qk=16 topk=8");
    pb_sink s;
    open_sink(&s);
    s.measure = (pb_measure_opts){.warmup = 1, .min_samples = 2, .min_time = 0};
    CHECK_OK(pb_suite_attention.run(*state, &c, &s));
    must_hold(",floor_share,1,higher,,0,unsupported,this launch has no ceilings");
    ceiling(&s, "ceiling/copy", "copy_rate", 1e3), ceiling(&s, "ceiling/matmul", "matmul_rate", 1e3);
    CHECK_OK(pb_suite_attention.run(*state, &c, &s));
    double time = 0, flops = 0, share = 0;
    assert_true(pb_sink_value(&s, c.key, "kernel_time", &time) && pb_sink_value(&s, c.key, "kernel_flops", &flops));
    assert_true(pb_sink_value(&s, c.key, "floor_share", &share));
    must_hold("of listed pairs, 100.0 % of them valid");
    must_hold(",floor_share,1,higher,");
    must_hold(",0,ok,matrix products");
    must_hold(",rel_diff,1,none,");
    close_sink(&s);
}

static void a_wrong_case_has_no_time(void **state)
{
    const pb_case c = case_of("bwd seq=40 heads=2 qk=16 topk=8");
    pb_sink s;
    open_sink(&s);
    plant = true;
    const pb_status ran = pb_suite_attention.run(*state, &c, &s);
    plant = false;
    CHECK_OK(ran);
    must_hold(",error,1,none,");
    must_hold(",wrong,\"1 elements are not finite or never written, the first in dkv\"");
    must_lack("kernel_time");
    close_sink(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_that_cannot_be_are_refused),
        cmocka_unit_test(random_lists_are_full_and_without_repeats),
        cmocka_unit_test(random_lists_are_random),
        cmocka_unit_test(masked_slots_are_as_many_as_asked_for),
        cmocka_unit_test(causal_lists_end_at_their_query),
        cmocka_unit_test(v4_lists_are_a_window_and_complete_groups),
        cmocka_unit_test(work_is_counted_as_public_kernels_count_it),
        cmocka_unit_test(dense_pairs_are_a_triangle),
        cmocka_unit_test(the_largest_floor_binds),
        cmocka_unit_test(deviations_are_those_of_their_formulas),
        cmocka_unit_test(every_arm_and_list_is_right),
        cmocka_unit_test(one_bad_element_is_noticed),
        cmocka_unit_test(a_wrong_sum_is_noticed),
        cmocka_unit_test(a_lost_query_is_noticed),
        cmocka_unit_test(a_planted_nan_breaks_the_contracts),
        cmocka_unit_test(a_launch_says_from_where_sparse_is_faster),
        cmocka_unit_test(a_case_has_its_rows),
        cmocka_unit_test(a_wrong_case_has_no_time),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
