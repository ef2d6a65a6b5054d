/* measured.h - measures on the scripted device of scripted.h and checks the samples bit by bit. */
#ifndef PB_TESTS_MEASURED_H
#define PB_TESTS_MEASURED_H
#include "tests/bench/measure/scripted.h"
#include "tests/test.h"

static inline pb_timing measure(scripted *s, const pb_measure_opts *o)
{
    pb_timing t;
    CHECK_OK(scripted_measure(s, o, &t));
    return t;
}

/* Returns the k-th smallest value (k from 0), found by counting instead of sorting. */
static inline double of_rank(const double *v, int n, int k)
{
    for (int i = 0; i < n; i++) {
        int less = 0, equal = 0;
        for (int j = 0; j < n; j++) less += v[j] < v[i], equal += v[j] == v[i];
        if (less <= k && k < less + equal) return v[i];
    }
    fail_msg("no value of rank %d", k);
    return 0;
}

/* The samples must be the n scripted times, in order, bit for bit; the median must follow from its definition. */
static inline void same_to_the_bit(const char *name, const pb_timing *t, const double *want, int n)
{
    if (t->n != n) fail_msg("%s: %d samples, want %d", name, t->n, n);
    for (int i = 0; i < n; i++)
        if (!(t->seconds[i] == want[i]))
            fail_msg("%s: sample %d took %.17g s, the script says %.17g", name, i, t->seconds[i], want[i]);
    CHECK_NEAR(t->median, (of_rank(want, n, (n - 1) / 2) + of_rank(want, n, n / 2)) / 2, 0);
}
#endif
