/* step_times.c - implements step_times.h. */
#include "trace/step_times.h"

#include <stdlib.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void pb_step_times_begin(pb_step_times *t, pb_step_kind kind)
{
    t->kind = kind;
    t->begun = now_s();
}

void pb_step_times_end(pb_step_times *t) { t->seconds[t->kind][t->n[t->kind]++ % PB_STEP_TIMES] = now_s() - t->begun; }

static int by_value(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

json_t *pb_step_times_json(pb_step_times *t)
{
    static const char *const names[] = {
#define X(kind, what) #kind,
        PB_STEP_KINDS(X)
#undef X
    };
    json_t *all = json_object();
    for (int k = 0; k < PB_STEP_NKINDS; k++) {
        const size_t n = t->n[k] < PB_STEP_TIMES ? (size_t)t->n[k] : PB_STEP_TIMES;
        if (!n) continue;
        qsort(t->seconds[k], n, sizeof *t->seconds[k], by_value);
        const double *v = t->seconds[k], median = (v[(n - 1) / 2] + v[n / 2]) / 2;
        json_object_set_new(all, names[k],
                            json_pack("{s:I, s:f, s:f, s:f}", "steps", (json_int_t)t->n[k], "median_s", median, "q1_s",
                                      v[(n - 1) / 4], "q3_s", v[n - 1 - (n - 1) / 4]));
    }
    return all;
}
