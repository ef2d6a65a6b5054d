/* choose_test.c - the choice of ranks and steps that are profiled. */
#include "trace/choose.h"

#include <string.h>

#include "tests/test.h"

static pb_topology topology(const char *text, int ranks)
{
    pb_topology t;
    CHECK_OK(pb_topology_parse(text, ranks, &t));
    return t;
}

/* Axes beyond 1 that the program does not support yet are set directly. */
static pb_topology stages(int ranks, int tp, int cp, int pp)
{
    pb_topology t = topology(NULL, ranks);
    t.size[PB_AXIS_TP] = tp;
    t.size[PB_AXIS_CP] = cp;
    t.size[PB_AXIS_PP] = pp;
    t.size[PB_AXIS_DP] = ranks / (tp * cp * pp);
    return t;
}

/* The ranks that `text` chooses must be `want`, ended by -1. */
static void chooses(const char *text, const pb_topology *t, const int *node, const int *want, const char *why)
{
    pb_chosen c;
    int n = 0;
    CHECK_OK(pb_choose_ranks(text, t, node, &c));
    assert_int_equal(c.ranks, t->ranks);
    for (int r = 0; r < t->ranks; r++) {
        const bool wanted = want[n] == r;
        if (c.rank[r] != wanted) fail_msg("%s: rank %d is %s", text, r, c.rank[r] ? "chosen" : "not chosen");
        n += wanted;
    }
    assert_int_equal(want[n], -1);
    assert_int_equal(c.count, n);
    if (!strstr(c.why, why)) fail_msg("%s: '%s' does not say '%s'", text, c.why, why);
    pb_chosen_free(&c);
}
#define LIST(...) ((const int[]){__VA_ARGS__, -1})

static void auto_takes_stages_or_the_ends(void **state)
{
    (void)state;
    pb_topology t = stages(64, 2, 8, 4);
    chooses("auto", &t, NULL, LIST(0, 32, 48), "ranks 0,32,48 of 64 (auto, the first rank of the first, middle");
    t = stages(64, 1, 1, 2);
    chooses("auto", &t, NULL, LIST(0, 32), "0,32 of 64");
    t = topology(NULL, 64);
    chooses("auto", &t, NULL, LIST(0, 32, 63), "the first, middle and last rank");
    t = topology(NULL, 4);
    chooses("auto", &t, NULL, LIST(0, 1, 2, 3), "ranks 0-3 of 4");
    t = topology(NULL, 1);
    chooses("auto", &t, NULL, LIST(0), "rank 0 of 1");
    t = topology(NULL, 5);
    chooses("auto", &t, NULL, LIST(0, 2, 4), "0,2,4");
}

static void lists_and_prefixes(void **state)
{
    (void)state;
    pb_topology t = stages(64, 2, 8, 4);
    int node[64];
    for (int i = 0; i < 64; i++) node[i] = i / 8;
    chooses("none", &t, NULL, (const int[]){-1}, "none of 64");
    chooses("0,32,48", &t, NULL, LIST(0, 32, 48), "as asked for");
    chooses("3", &t, NULL, LIST(0, 3), "and rank 0");
    chooses("0-2,5", &t, NULL, LIST(0, 1, 2, 5), "0-2,5");
    chooses("pp:0,mid,last", &t, NULL, LIST(0, 32, 48), "0,32,48");
    chooses("pp:1,rank:7", &t, NULL, LIST(0, 7, 16), "0,7,16");
    chooses("cp:last", &t, NULL, LIST(0, 14), "0,14");
    chooses("node:2", &t, node, LIST(0, 16, 17, 18, 19, 20, 21, 22, 23), "0,16-23");
    t = topology(NULL, 2);
    chooses("node:0", &t, NULL, LIST(0, 1), "0,1 of 2");
    chooses("all", &t, NULL, LIST(0, 1), "0,1 of 2");
}

static void bad_words_are_named(void **state)
{
    (void)state;
    const pb_topology t = stages(64, 2, 8, 4);
    pb_chosen c;
    CHECK_FAILS(pb_choose_ranks("64", &t, NULL, &c), PB_EINVAL, "rank 64 does not exist, there are 64");
    CHECK_FAILS(pb_choose_ranks("0-64", &t, NULL, &c), PB_EINVAL, "rank 64 does not exist");
    CHECK_FAILS(pb_choose_ranks("pp:4", &t, NULL, &c), PB_EINVAL, "pp 4 does not exist, there are 4");
    CHECK_FAILS(pb_choose_ranks("node:1", &t, NULL, &c), PB_EINVAL, "node 1 does not exist, there are 1");
    CHECK_FAILS(pb_choose_ranks("7-3", &t, NULL, &c), PB_EINVAL, "'7-3' is not a range");
    CHECK_FAILS(pb_choose_ranks("7-", &t, NULL, &c), PB_EINVAL, "'7-' is not a range");
    CHECK_FAILS(pb_choose_ranks("-7", &t, NULL, &c), PB_EINVAL, "'-7' is not a number");
    CHECK_FAILS(pb_choose_ranks("mid", &t, NULL, &c), PB_EINVAL, "'mid' is not a number");
    CHECK_FAILS(pb_choose_ranks("", &t, NULL, &c), PB_EINVAL, "'' is not a number");
    CHECK_FAILS(pb_choose_ranks("1,,2", &t, NULL, &c), PB_EINVAL, "'' is not a number");
    CHECK_FAILS(pb_choose_ranks("all,1", &t, NULL, &c), PB_EINVAL, "'all' is not a number");
    CHECK_FAILS(pb_choose_ranks("1x", &t, NULL, &c), PB_EINVAL, "'1x' is not a range");
    CHECK_FAILS(pb_choose_ranks("99999999999999999999", &t, NULL, &c), PB_EINVAL, "is not a number");
    CHECK_FAILS(pb_choose_ranks("stage:1", &t, NULL, &c), PB_EINVAL, "'stage:' is none of rank:");
}

/* One letter per step: . off, w warm-up, ( first active, - active, ) last active, o first and last. */
static void schedule(const char *text, const char *want)
{
    pb_profile_steps s;
    char got[64] = "";
    CHECK_OK(pb_choose_steps(text, &s));
    for (long i = 0; want[i]; i++) {
        bool first, last;
        const pb_profile_phase p = pb_profile_phase_of(&s, i, &first, &last);
        got[i] = p == PB_PROFILE_OFF    ? '.'
                 : p == PB_PROFILE_WARM ? 'w'
                 : first && last        ? 'o'
                 : first                ? '('
                 : last                 ? ')'
                                        : '-';
        if (p != PB_PROFILE_ON && (first || last)) fail_msg("%s: step %ld", text, i);
    }
    assert_string_equal(got, want);
}

static void schedules(void **state)
{
    (void)state;
    schedule("0", "o.....");
    schedule("3", "...o..");
    schedule("1:2:1:3", "...w(-)......");
    schedule("0:1:1:2:2", ".w().w()....");
    schedule("0:0:0:2:0", "()()()()");
    schedule("2:0:0:1:3", "..ooo..");
    pb_profile_steps s;
    CHECK_FAILS(pb_choose_steps("1:1:1:0", &s), PB_EINVAL, "no active step");
    CHECK_FAILS(pb_choose_steps("", &s), PB_EINVAL, "is not SKIP");
    CHECK_FAILS(pb_choose_steps("1:2:3:4:5:6", &s), PB_EINVAL, "is not SKIP");
    CHECK_FAILS(pb_choose_steps("1:", &s), PB_EINVAL, "is not SKIP");
    CHECK_FAILS(pb_choose_steps("-1:2", &s), PB_EINVAL, "is not SKIP");
    CHECK_FAILS(pb_choose_steps("1:2x", &s), PB_EINVAL, "is not SKIP");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_stages_or_the_ends),
        cmocka_unit_test(lists_and_prefixes),
        cmocka_unit_test(bad_words_are_named),
        cmocka_unit_test(schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
