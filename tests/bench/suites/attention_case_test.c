/* attention_case_test.c - tests of the cases of the suite attention: invalid combinations of axes are refused, key
 * lists have the right form, counts of floating-point operations equal sums worked out by hand, and roofline times. */
#include "tests/bench/suites/attention_cases.h"

static void refused(const char *line, const char *why)
{
    const pb_case c = case_of(line);
    pb_attn a;
    CHECK_FAILS(pb_suite_attention.check(&c), PB_EINVAL, why);
    CHECK_FAILS(pb_attn_of(&c, &a), PB_EINVAL, why);
}

static void cases_that_cannot_be_are_refused(void **state)
{
    (void)state;
    refused("sideways", "no case 'sideways'");
    refused("fwd variant=thin", "axis variant: 'thin' is not one of sparse, dense, deterministic");
    refused("fwd list=sorted", "'sorted'");
    refused("fwd topk=0", "topk: 0 is outside 1..");
    refused("fwd heads=0", "heads");
    refused("fwd qk=577", "qk: 577");
    refused("fwd masked=101", "masked");
    refused("fwd list=v4 masked=75", "needs list=random");
    refused("bwd variant=dense list=random", "use list=causal");
    refused("fwd cp=2", "cp=2, ranks=1");
    refused("fwd bias=clustered", "only the keys of variant=dynmask have biases");
    refused("fwd variant=dynmask list=union qk=64 bias=flat", "'flat'");
    refused("fwd cp=2 ranks=2 seq=254 list=v4", "needs a multiple of 8");
    assert_int_equal(sizes_of("bwd variant=dense list=causal topk=0").W, 0);
    assert_int_equal(sizes_of("fwd list=v4 seq=1283").S_kv, 1283 + 320);
    assert_int_equal(sizes_of("fwd qk=576").V, 512);
}

/* ---- random key lists and lists as in DeepSeek-V4 --------------------------------------------------------- */

static int32_t *lists_of(const pb_attn *a)
{
    int32_t *idx = malloc((size_t)a->S * a->W * sizeof *idx);
    assert_non_null(idx);
    CHECK_OK(pb_attn_lists(a, idx));
    return idx;
}

/* Fails when a key occurs twice in the list or is outside [0,n). Returns the number of valid entries. */
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
        pb_attn a = sizes_of("fwd topk=50");
        a.S = a.S_kv = S;
        int32_t *idx = lists_of(&a);
        for (int i = 0; i < S; i++) assert_int_equal(distinct(idx + (size_t)i * 50, 50, S), S < 50 ? S : 50);
        free(idx);
    }
}

/* Every key is listed about equally often, neighbouring queries share keys only as often as chance predicts, and
 * entries are not sorted. */
static void random_lists_are_random(void **state)
{
    const pb_attn a = sizes_of("fwd topk=256 seq=1024");
    int32_t *idx = lists_of(&a);
    double named[1024] = {0}, shared = 0, rising = 0;
    (void)state;
    for (int i = 0; i < a.S; i++) {
        bool here[1024] = {false};
        for (int w = 0; w < a.W; w++) here[idx[(size_t)i * a.W + w]] = true, named[idx[(size_t)i * a.W + w]]++;
        for (int w = 0; i && w < a.W; w++) shared += here[idx[(size_t)(i - 1) * a.W + w]];
        for (int w = 1; w < a.W; w++) rising += idx[(size_t)i * a.W + w] > idx[(size_t)i * a.W + w - 1];
    }
    /* Expected: each key is listed S W / S_kv = 256 times (sd 14); neighbours share W^2 / S_kv = 64 keys (sd of the
     * mean: 0.2). */
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
        const pb_attn a = sizes_of(lines[k]);
        int32_t *idx = lists_of(&a);
        CHECK_NEAR(pb_attn_pairs(&a, idx) / pb_attn_listed(&a, idx), want[k], k == 1 ? 0.005 : 0);
        CHECK_NEAR(pb_attn_listed(&a, idx), 1280 * 640, 0);
        free(idx);
    }
}

static void causal_lists_end_at_their_query(void **state)
{
    const pb_attn a = sizes_of("fwd list=causal topk=64 seq=200");
    int32_t *idx = lists_of(&a);
    (void)state;
    for (int i = 0; i < a.S; i++) {
        const int n = distinct(idx + (size_t)i * 64, 64, i + 1);
        assert_int_equal(n, i < 63 ? i + 1 : 64);
        for (int w = n; w < 64; w++) assert_int_equal(idx[(size_t)i * 64 + w], -1);
    }
    free(idx);
}

/* A list holds the last 128 keys in order (-1 where the row has fewer), then complete compressed groups. */
static void v4_lists_are_a_window_and_complete_groups(void **state)
{
    const pb_attn a = sizes_of("fwd list=v4 topk=160 seq=700");
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
    CHECK_NEAR(pb_attn_pairs(&a, idx), valid, 0);
    free(idx);
    const pb_attn narrow = sizes_of("fwd list=v4 topk=16 seq=300"); /* a window of 16 keys and no groups */
    idx = lists_of(&narrow);
    for (int w = 0; w < 16; w++) assert_int_equal(idx[299 * 16 + w], 284 + w);
    free(idx);
}

/* ---- distributions of biases ------------------------------------------------------------------------------ */

/* The number of pairs of neighbouring keys of which exactly one is among the `keep` keys with the largest biases. */
static int edges_of(const char *line, int keep)
{
    enum { K = 2, S = 2048 };
    static float bias[K * S];
    const pb_attn a = sizes_of(line);
    int edges = 0;
    assert_int_equal(a.S, S);
    pb_attn_biases(&a, K, bias);
    assert_memory_not_equal(bias, bias + S, S * sizeof *bias);
    for (int j = 0, before = 0; j < S; j++) {
        int above = 0;
        assert_true(bias[j] >= -2 && bias[j] < 2);
        for (int i = 0; i < S; i++) {
            assert_true(i == j || bias[i] != bias[j]); /* every top-w selects the same keys */
            above += bias[i] > bias[j];
        }
        const int kept = above < keep;
        edges += j && kept != before;
        before = kept;
    }
    return edges;
}

static void biases_keep_keys_in_runs_and_blocks(void **state)
{
    (void)state;
    /* 8 of 32 blocks; a run of 32 keys of which a part is kept has more edges; scattered keys would have 768. */
    const int blocks = edges_of("fwd variant=dynmask list=union qk=64 bias=blocks seq=2048 topk=512", 512);
    const int runs = edges_of("fwd variant=dynmask list=union qk=64 bias=clustered seq=2048 topk=512", 512);
    assert_true(blocks >= 4 && blocks <= 16);
    assert_true(runs > 2 * blocks && runs < 300);
}

/* ---- FLOPs of a case -------------------------------------------------------------------------------------- */

/* The FLOP counts equal those that the authors of the public kernels (FlashMLA) give for these shapes. */
static void work_is_counted_as_public_kernels_count_it(void **state)
{
    const pb_attn f = sizes_of("fwd heads=64 topk=640 seq=1280"), b = sizes_of("bwd heads=64 topk=640 seq=1280");
    const pb_attn wide = sizes_of("bwd heads=128 qk=576 topk=2048 seq=4096");
    (void)state;
    CHECK_NEAR(pb_attn_flops(&f, 1280 * 640), 107374182400.0, 0);
    CHECK_NEAR(pb_attn_flops(&b, 1280 * 640), 268435456000.0, 0);
    CHECK_NEAR(pb_attn_flops(&wide, 4096.0 * 2048), 4096.0 * 2048 * 128 * (6 * 576 + 4 * 512), 0);
    CHECK_NEAR(pb_attn_reduced(&b, 1280 * 640), 1677721600.0, 0);
    CHECK_NEAR(pb_attn_reduced(&f, 1280 * 640), 0, 0);
}

static void dense_pairs_are_a_triangle(void **state)
{
    const pb_attn all = sizes_of("bwd variant=dense list=causal topk=0 seq=100"),
                  window = sizes_of("bwd variant=dense list=causal topk=10 seq=100");
    (void)state;
    CHECK_NEAR(pb_attn_pairs(&all, NULL), 5050, 0);
    CHECK_NEAR(pb_attn_pairs(&window, NULL), 55 + 90 * 10, 0);
    CHECK_NEAR(pb_attn_reduced(&all, 5050), 0, 0);
}

static void the_largest_floor_binds(void **state)
{
    const pb_attn b = sizes_of("bwd heads=64 topk=1024 seq=4096"), f = sizes_of("fwd heads=64 topk=1024 seq=4096"),
                  d = sizes_of("bwd variant=dense list=causal topk=0 heads=64 seq=4096");
    const pb_attn_ceilings all = {4e12, 800e12, 3.7e12}, slow = {1e10, 800e12, 3.7e12}, cpu = {1e10, 1e12, 0};
    const double n = 4096.0 * 1024;
    pb_attn_roofline got = pb_attn_roofline_of(&b, n, 1e9, &all);
    (void)state;
    assert_string_equal(got.bound, "reductions in L2");
    CHECK_NEAR(got.seconds, n * 2048 / 3.7e12, 1e-15);
    got = pb_attn_roofline_of(&f, n, 1e9, &all);
    assert_string_equal(got.bound, "matrix products");
    CHECK_NEAR(got.seconds, n * 64 * 2048 / 800e12, 1e-15);
    got = pb_attn_roofline_of(&d, n, 1e9, &all);
    assert_string_equal(got.bound, "matrix products");
    got = pb_attn_roofline_of(&b, n, 1e9, &slow);
    assert_string_equal(got.bound, "memory");
    CHECK_NEAR(got.seconds, 0.1, 1e-15);
    got = pb_attn_roofline_of(&b, n, 1e9, &cpu); /* one ceiling is 0: not measured */
    assert_string_equal(got.bound, "matrix products");
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
        cmocka_unit_test(biases_keep_keys_in_runs_and_blocks),
        cmocka_unit_test(work_is_counted_as_public_kernels_count_it),
        cmocka_unit_test(dense_pairs_are_a_triangle),
        cmocka_unit_test(the_largest_floor_binds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
