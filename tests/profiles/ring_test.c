/* ring_test.c - the ring of a profiling window: nesting, times, threads, full rings, ranges that cross the window's
 * ends, and threads that end ranges while the window is closed. */
#include "profiles/ring.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "profiles/listen.h"
#include "tests/test.h"

static int64_t real_ns(void)
{
    struct timespec t;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &t), 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void push(const char *name, int64_t value) { pb_range_push(PB_RANGE_op, name, value); }

static void start(int threads, size_t records)
{
    const pb_ring_options o = {.threads = threads, .records = records};
    CHECK_OK(pb_ring_start(&o));
}

static pb_ring_window stop(void)
{
    pb_ring_window w;
    CHECK_OK(pb_ring_stop(&w));
    return w;
}

static void ranges_nest_and_keep_their_values(void **state)
{
    (void)state;
    const int64_t before = real_ns();
    start(1, 64);
    pb_range_push(PB_RANGE_step, "step", 7);
    push("first", PB_RANGE_NO_VALUE);
    pb_range_pop();
    push("second", 3);
    pb_range_pop();
    pb_range_pop();
    pb_ring_window w = stop();
    const int64_t after = real_ns();
    assert_int_equal(w.n, 1);
    const pb_ring_thread *t = &w.threads[0];
    assert_int_equal(t->tid, gettid());
    assert_int_equal(t->n, 3);
    assert_int_equal(w.dropped, 0);
    const pb_ring_record *r = t->records;
    assert_string_equal(r[0].name, "first");
    assert_string_equal(r[1].name, "second");
    assert_string_equal(r[2].name, "step");
    assert_true(r[0].value == PB_RANGE_NO_VALUE && r[1].value == 3 && r[2].value == 7);
    assert_true(r[0].kind == PB_RANGE_op && r[2].kind == PB_RANGE_step);
    assert_true(r[0].depth == 1 && r[1].depth == 1 && r[2].depth == 0);
    for (int i = 0; i < 3; i++) assert_true(r[i].complete && r[i].begin_ns <= r[i].end_ns);
    assert_true(r[2].begin_ns <= r[0].begin_ns && r[0].end_ns <= r[1].begin_ns && r[1].end_ns <= r[2].end_ns);
    assert_true(w.begin_ns <= r[2].begin_ns && r[2].end_ns <= w.end_ns);
    assert_true(before - 1000000 <= w.begin_ns && w.end_ns <= after + 1000000); /* unless the clock was set meanwhile */
    pb_ring_free(&w);
}

/* A range that sleeps is as long as CLOCK_MONOTONIC_RAW says, with both clocks: within 1 % and 100 us. */
static void durations_are_those_of_the_clock(void **state)
{
    (void)state;
    for (int no_tsc = 0; no_tsc < 2; no_tsc++) {
        const pb_ring_options o = {.threads = 1, .records = 64, .no_tsc = no_tsc};
        struct timespec a, b;
        CHECK_OK(pb_ring_start(&o));
        push("sleep", PB_RANGE_NO_VALUE);
        (void)clock_gettime(CLOCK_MONOTONIC_RAW, &a);
        (void)usleep(20000);
        (void)clock_gettime(CLOCK_MONOTONIC_RAW, &b);
        pb_range_pop();
        pb_ring_window w = stop();
        assert_int_equal(w.n, 1);
        assert_false(no_tsc && w.tsc);
        const double inner = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
        const pb_ring_record *r = w.threads[0].records;
        const double length = (double)(r->end_ns - r->begin_ns);
        if (!(length >= 0.99 * inner - 1e5)) fail_msg("%g ns of %g", length, inner);
        if (!(length <= (double)(w.end_ns - w.begin_ns))) fail_msg("longer than its window");
        pb_ring_free(&w);
    }
}

static void a_full_ring_keeps_the_newest_and_counts_the_others(void **state)
{
    (void)state;
    start(1, 64);
    for (int i = 0; i < 1000; i++) {
        push("range", i);
        pb_range_pop();
    }
    pb_ring_window w = stop();
    assert_int_equal(w.threads[0].n, 64);
    assert_int_equal(w.threads[0].dropped, 936);
    assert_int_equal(w.dropped, 936);
    for (int i = 0; i < 64; i++) assert_int_equal(w.threads[0].records[i].value, 936 + i);
    pb_ring_free(&w);
}

static void ranges_that_cross_the_ends_of_a_window(void **state)
{
    (void)state;
    push("nobody listens", PB_RANGE_NO_VALUE);
    start(1, 64);
    pb_range_pop(); /* began before the window: not recorded, and the depth does not become negative */
    push("outer", 1);
    push("inner", 2);
    pb_ring_window w = stop();
    assert_int_equal(w.threads[0].n, 2);
    const pb_ring_record *r = w.threads[0].records;
    assert_string_equal(r[0].name, "inner");
    assert_string_equal(r[1].name, "outer");
    assert_true(!r[0].complete && !r[1].complete && r[0].depth == 1 && r[1].depth == 0);
    assert_true(r[0].end_ns >= w.end_ns - 1000 && r[0].end_ns <= w.end_ns + 1000);
    pb_ring_free(&w);
    pb_range_pop(); /* end outside of the window */
    pb_range_pop();
    start(1, 64);
    push("next window", 3);
    pb_range_pop();
    w = stop();
    assert_int_equal(w.threads[0].n, 1);
    assert_int_equal(w.threads[0].records[0].depth, 0);
    assert_int_equal(w.threads[0].records[0].value, 3);
    pb_ring_free(&w);
}

static void too_deep_ranges_are_counted(void **state)
{
    (void)state;
    start(1, 64);
    for (int i = 0; i < PB_RING_DEPTH + 3; i++) push("deep", i);
    for (int i = 0; i < PB_RING_DEPTH + 3; i++) pb_range_pop();
    pb_ring_window w = stop();
    assert_int_equal(w.threads[0].n, PB_RING_DEPTH);
    assert_int_equal(w.dropped, 3);
    assert_int_equal(w.threads[0].records[0].value, PB_RING_DEPTH - 1);
    assert_int_equal(w.threads[0].records[PB_RING_DEPTH - 1].value, 0);
    pb_ring_free(&w);
}

static void only_one_window_is_open(void **state)
{
    (void)state;
    pb_ring_window w;
    assert_int_equal(pb_ring_stop(&w), PB_EINVAL);
    start(1, 64);
    assert_int_equal(pb_ring_start(&(pb_ring_options){0}), PB_EINVAL);
    w = stop();
    assert_int_equal(w.n, 0);
    pb_ring_free(&w);
    assert_int_equal(pb_ring_start(&(pb_ring_options){.threads = -1}), PB_EINVAL);
    assert_int_equal(pb_ring_start(&(pb_ring_options){.records = SIZE_MAX}), PB_EINVAL);
    assert_int_equal(pb_ranges_on & PB_LISTENS_RING, 0);
}

enum { THREADS = 4 };
static atomic_bool ending;
static atomic_int begun;

/* A thread that opens and closes three nested ranges again and again. All three have the number of the iteration as
 * their value. */
static void *nest(void *self)
{
    (void)self;
    for (int64_t i = 0; !atomic_load(&ending); i++) {
        for (int d = 0; d < 3; d++) push("nested", i);
        for (int d = 0; d < 3; d++) pb_range_pop();
        if (i == 10) atomic_fetch_add(&begun, 1);
    }
    return NULL;
}

/* Each thread has a ring; the last one has none. Records are whole even if a thread wraps round its ring while it is
 * read. */
static void threads_write_while_a_window_ends(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    atomic_store(&ending, false);
    atomic_store(&begun, 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, nest, NULL), 0);
    for (int round = 0; round < 20 || (atomic_load(&begun) < THREADS && round < 10000); round++) {
        start(THREADS - 1, 64);
        (void)usleep(2000);
        pb_ring_window w = stop();
        assert_true(w.n <= THREADS - 1);
        for (int i = 0; i < w.n; i++) {
            const pb_ring_thread *t = &w.threads[i];
            assert_true(t->n <= 64 + PB_RING_DEPTH);
            for (size_t k = 0; k < t->n; k++) {
                const pb_ring_record *r = &t->records[k];
                assert_ptr_equal(r->name, t->records[0].name);
                assert_string_equal(r->name, "nested");
                assert_in_range(r->depth, 0, 2);
                assert_true(r->begin_ns <= r->end_ns);
                if (!r->complete) continue;
                if (k) assert_true(r->end_ns >= t->records[k - 1].end_ns);
                if (k && r->depth == t->records[k - 1].depth - 1) assert_true(r->value == t->records[k - 1].value);
            }
        }
        pb_ring_free(&w);
    }
    atomic_store(&ending, true);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&begun), THREADS);
}

/* pb_ring_stop() reads the clocks 16 times, of which each reads CLOCK_MONOTONIC_RAW three times, and takes the reading
 * that took least time as the window's end. After the last one, before it copies the records, this calls `late`. */
static void (*late)(void);
static int readings;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    const int r = (int)syscall(SYS_clock_gettime, clock, t);
    if (late && clock == CLOCK_MONOTONIC_RAW && ++readings == 16 * 3) {
        void (*const call)(void) = late;
        late = NULL;
        call();
    }
    return r;
}

/* Stands for a thread that was interrupted after it had seen the window open. */
static void end_and_begin_late(void)
{
    pb_ring_finish();
    pb_ring_begin(PB_RANGE_op, "began late", 0);
    pb_ring_begin(PB_RANGE_op, "began and ended late", 0);
    pb_ring_finish();
}

static void what_is_written_after_the_end_is_not_of_the_window(void **state)
{
    (void)state;
    const pb_ring_options o = {.threads = 1, .records = 64, .no_tsc = true};
    CHECK_OK(pb_ring_start(&o));
    pb_ring_begin(PB_RANGE_op, "outer", 0);
    pb_ring_begin(PB_RANGE_op, "ended late", 0);
    readings = 0;
    late = end_and_begin_late;
    pb_ring_window w = stop();
    assert_null(late);
    assert_int_equal(w.n, 1);
    const pb_ring_thread *t = &w.threads[0];
    assert_int_equal(t->n, 2);
    assert_int_equal(w.dropped, 0);
    assert_string_equal(t->records[0].name, "ended late");
    assert_string_equal(t->records[1].name, "outer");
    for (int i = 0; i < 2; i++) {
        assert_false(t->records[i].complete);
        assert_true(t->records[i].end_ns == w.end_ns);
        assert_true(t->records[i].begin_ns <= w.end_ns);
    }
    pb_ring_free(&w);
}

static void names_are_kept_once(void **state)
{
    (void)state;
    char text[] = "a name that changes";
    const char *kept = pb_range_name(text);
    assert_non_null(kept);
    text[0] = 'b';
    assert_string_equal(kept, "a name that changes");
    assert_ptr_equal(pb_range_name("a name that changes"), kept);
    assert_ptr_not_equal(pb_range_name(text), kept);
}

/* An op's work belongs to its own range, not to one around it or after it; too deep ranges have none. */
static void work_belongs_to_the_range_begun_last(void **state)
{
    (void)state;
    start(1, 64);
    pb_range_push(PB_RANGE_phase, "phase", PB_RANGE_NO_VALUE);
    push("worked", PB_RANGE_NO_VALUE);
    pb_range_work(1234567890123, 77);
    pb_range_pop();
    push("idle", PB_RANGE_NO_VALUE);
    pb_range_pop();
    pb_range_pop();
    for (int i = 0; i <= PB_RING_DEPTH; i++) push("deep", i);
    pb_range_work(1, 1);
    for (int i = 0; i <= PB_RING_DEPTH; i++) pb_range_pop();
    pb_ring_window w = stop();
    pb_range_work(1, 1); /* no window is open */
    const pb_ring_record *q = w.threads[0].records;
    assert_int_equal(w.threads[0].n, 3 + PB_RING_DEPTH);
    assert_true(q[0].flops == 1234567890123 && q[0].bytes == 77);
    for (int i = 1; i < 3 + PB_RING_DEPTH; i++) assert_true(q[i].flops == 0 && q[i].bytes == 0);
    pb_ring_free(&w);
}

/* Group, dtype and number of a collective are kept in ended ranges, in open ones, and in those of a recorded call. */
static void a_collective_keeps_its_group(void **state)
{
    (void)state;
    const pb_range_collective about = {"dp#1", "bf16", 4, 1LL << 40};
    start(1, 64);
    push("before", PB_RANGE_NO_VALUE);
    pb_range_work(5, 6);
    pb_range_pop();
    for (int i = 0; i < 2; i++) {
        pb_range_push(PB_RANGE_collective, "all_reduce", 4096);
        pb_range_note_collective(&about);
        if (i == 0) pb_range_pop();
    }
    pb_ring_window w = stop();
    pb_range_pop();
    pb_range_note_collective(&about); /* no window is open */
    const pb_ring_record *q = w.threads[0].records;
    assert_int_equal(w.threads[0].n, 3);
    assert_true(!q[0].of.group && q[0].flops == 5);
    for (int i = 1; i < 3; i++) {
        assert_string_equal(q[i].of.group, "dp#1");
        assert_string_equal(q[i].of.dtype, "bf16");
        assert_true(q[i].of.ranks == 4 && q[i].of.number == 1LL << 40 && q[i].value == 4096);
        assert_true(q[i].flops == 0 && q[i].bytes == 0 && q[i].complete == (i == 1));
    }
    pb_ring_free(&w);
    pb_range_stack_track(true);
    pb_range_push(PB_RANGE_collective, "all_reduce", 4096);
    pb_range_note_collective(&about);
    const pb_range_stack first = pb_range_stack_now();
    pb_range_pop();
    push("op", PB_RANGE_NO_VALUE);
    const pb_range_stack second = pb_range_stack_now();
    pb_range_pop();
    pb_range_stack_track(false);
    assert_true(first.depth == 1 && first.at[0].of.group == about.group && first.at[0].of.number == 1LL << 40);
    assert_true(second.depth == 1 && !second.at[0].of.group);
}

/* While a graph is recorded, the first kernel of an op gets its work, so that sums over kernels are right. The range of
 * the op in the window gets none: the recorded op does not work. */
static void the_first_kernel_takes_the_work(void **state)
{
    (void)state;
    start(1, 64);
    pb_range_stack_track(true);
    pb_range_push(PB_RANGE_phase, "phase", PB_RANGE_NO_VALUE);
    push("op", PB_RANGE_NO_VALUE);
    pb_range_work(50, 60);
    const pb_range_stack seen = pb_range_stack_now(), first = pb_range_stack_take(), second = pb_range_stack_take();
    pb_range_pop();
    const pb_range_stack between = pb_range_stack_take();
    push("op", PB_RANGE_NO_VALUE);
    const pb_range_stack other = pb_range_stack_take();
    pb_range_pop();
    pb_range_pop();
    pb_range_stack_track(false);
    pb_ring_window w = stop();
    assert_int_equal(w.threads[0].n, 3);
    for (int i = 0; i < 3; i++) assert_true(w.threads[0].records[i].flops == 0 && w.threads[0].records[i].bytes == 0);
    pb_ring_free(&w);
    assert_true(seen.at[1].flops == 50 && first.at[1].flops == 50 && first.at[1].bytes == 60);
    assert_true(second.depth == 2 && second.at[1].flops == 0 && second.at[1].bytes == 0);
    assert_string_equal(second.at[1].name, "op");
    assert_true(between.depth == 1 && between.at[0].flops == 0 && first.at[0].flops == 0);
    assert_true(other.at[1].flops == 0 && other.at[1].bytes == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_nest_and_keep_their_values),
        cmocka_unit_test(durations_are_those_of_the_clock),
        cmocka_unit_test(a_full_ring_keeps_the_newest_and_counts_the_others),
        cmocka_unit_test(ranges_that_cross_the_ends_of_a_window),
        cmocka_unit_test(too_deep_ranges_are_counted),
        cmocka_unit_test(only_one_window_is_open),
        cmocka_unit_test(threads_write_while_a_window_ends),
        cmocka_unit_test(what_is_written_after_the_end_is_not_of_the_window),
        cmocka_unit_test(names_are_kept_once),
        cmocka_unit_test(work_belongs_to_the_range_begun_last),
        cmocka_unit_test(a_collective_keeps_its_group),
        cmocka_unit_test(the_first_kernel_takes_the_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
