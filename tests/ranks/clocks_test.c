/* clocks_test.c - clocks that differ by a known, drifting amount are measured to within the stated uncertainty; rank 0
 * that is not there, or does not know the token, is stated; ranks do not wait for each other. */
#include "ranks/clocks.h"

#include <time.h>
#include <unistd.h>

#include "tests/test.h"

/* A clock that is `ahead` nanoseconds ahead of this machine's, and gains `drift` parts of a million. */
typedef struct fake_clock {
    int64_t begin, ahead;
    double drift;
    int calls, slow; /* the call `slow` takes 60 ms after it has read the time; 0: none */
} fake_clock;

static int64_t true_time(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t fake_now(void *self)
{
    fake_clock *c = self;
    const int64_t t = true_time();
    if (++c->calls == c->slow) (void)usleep(60000);
    return t + c->ahead + (int64_t)(1e-6 * c->drift * (double)(t - c->begin));
}

static pb_clocks_at at(int rank, fake_clock *clock)
{
    return (pb_clocks_at){.rank = rank,
                          .ranks = 3,
                          .host = "127.0.0.1",
                          .token = {7, 8, 9},
                          .now = clock ? fake_now : NULL,
                          .self = clock};
}

static void a_skew_is_found(void **state)
{
    (void)state;
    static const int64_t aheads[] = {0, 3000000, -250000000, 86400LL * 1000000000};
    int port;
    pb_clocks *leader;
    const pb_clocks_at lead = at(0, NULL);
    CHECK_OK(pb_clocks_open_at(&lead, &port, &leader));
    for (size_t i = 0; i < sizeof aheads / sizeof *aheads; i++) {
        fake_clock skewed = {.begin = true_time(), .ahead = aheads[i], .drift = 200};
        pb_clocks *c;
        const pb_clocks_at other = at(2, &skewed);
        CHECK_OK(pb_clocks_open_at(&other, &port, &c));
        for (int slot = 0; slot < 2; slot++) {
            pb_clocks_ask(c, slot, 40 + (int64_t)i);
            const pb_clock_offset found = pb_clocks_wait(c, slot, 10);
            assert_true(found.known);
            const int64_t was = found.at_ns - aheads[i] - skewed.begin;
            const double want = -(double)aheads[i] - 200e-6 * (double)was;
            /* 200 ns: what the fake clock's own rounding and drift during the exchange can add. */
            CHECK_NEAR((double)found.offset_ns, want, (double)found.uncertainty_ns + 200);
            assert_in_range(found.uncertainty_ns, 1, 1000000000);
            (void)usleep(20000);
        }
        pb_clocks_close(c);
    }
    const pb_clock_report *reports;
    assert_int_equal(pb_clocks_reports(leader, 5, &reports), 8);
    for (int i = 0; i < 8; i++) {
        assert_true(reports[i].rank == 2 && reports[i].slot == i % 2 && reports[i].tag == 40 + i / 2);
        assert_true(reports[i].offset.known);
    }
    CHECK_NEAR((double)reports[2].offset.offset_ns, -3e6, (double)reports[2].offset.uncertainty_ns + 1e5);
    pb_clocks_close(leader);
}

/* The first exchange is delayed by 60 ms, so that it is uncertain by 30 ms; a later one is better. */
static void the_shortest_round_trip_is_kept(void **state)
{
    (void)state;
    int port;
    pb_clocks *leader, *c;
    fake_clock delayed = {.begin = true_time(), .ahead = 5000000, .slow = 1};
    const pb_clocks_at lead = at(0, NULL), other = at(1, &delayed);
    CHECK_OK(pb_clocks_open_at(&lead, &port, &leader));
    CHECK_OK(pb_clocks_open_at(&other, &port, &c));
    pb_clocks_ask(c, 0, 1);
    const pb_clock_offset found = pb_clocks_wait(c, 0, 10);
    assert_true(found.known && found.uncertainty_ns < 25000000);
    pb_clocks_close(c);
    pb_clocks_close(leader);
}

static void rank_0_is_its_own_clock(void **state)
{
    (void)state;
    int port;
    pb_clocks *leader;
    const pb_clocks_at lead = at(0, NULL);
    const pb_clock_report *reports;
    CHECK_OK(pb_clocks_open_at(&lead, &port, &leader));
    pb_clocks_ask(leader, 0, 1);
    const pb_clock_offset found = pb_clocks_wait(leader, 0, 0);
    assert_true(found.known && found.offset_ns == 0 && found.uncertainty_ns == 0);
    assert_int_equal(pb_clocks_reports(leader, 0, &reports), 0);
    pb_clocks_close(leader);
    pb_clocks_ask(NULL, 0, 1);
    assert_true(pb_clocks_wait(NULL, 0, 0).known);
    pb_clocks_close(NULL);
}

/* Asking returns at once, also if rank 0 does not answer. */
static void what_cannot_be_compared_is_stated(void **state)
{
    (void)state;
    int port;
    pb_clocks *leader, *c;
    pb_clocks_at lead = at(0, NULL), other = at(1, NULL);
    CHECK_OK(pb_clocks_open_at(&lead, &port, &leader));
    other.token[0] = 1; /* of another job */
    CHECK_OK(pb_clocks_open_at(&other, &port, &c));
    pb_clocks_ask(c, 0, 1);
    const int64_t asked = true_time();
    pb_clocks_ask(c, 1, 1);
    assert_true(true_time() - asked < 500000000);
    pb_clock_offset found = pb_clocks_wait(c, 0, 10);
    assert_true(!found.known && strstr(found.why, "not reached"));
    pb_clocks_close(c);
    pb_clocks_close(leader);
    other.token[0] = 7;
    CHECK_OK(pb_clocks_open_at(&other, &port, &c)); /* rank 0 is gone */
    pb_clocks_ask(c, 0, 1);
    found = pb_clocks_wait(c, 0, 10);
    assert_true(!found.known && *found.why);
    pb_clocks_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_skew_is_found),
        cmocka_unit_test(the_shortest_round_trip_is_kept),
        cmocka_unit_test(rank_0_is_its_own_clock),
        cmocka_unit_test(what_cannot_be_compared_is_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
