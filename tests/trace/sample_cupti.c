/* sample_cupti.c - samples a metric group by CUPTI, or by the fake library that stands for it, in two windows;
 * sample_cupti_test.sh runs it.
 *     sample_cupti FILE INTERVAL_US [MOST]     prints what each window of 60 ms has: whether every interval has its
 *                                              sample, in order and with the right values, and how many were lost */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "trace/gpu_samples.h"

enum { WINDOW_MS = 60 };

static int64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void print(const pb_gpu_samples *s, int64_t ns)
{
    const long whole = (long)(ns / 1000 / s->interval_us), n = (long)s->n;
    bool ordered = true, values = n > 0;
    for (size_t i = 0; i < s->n; i++) {
        const double *v = &s->value[i * (size_t)s->metrics];
        if (i && s->sample[i].begin_ns < s->sample[i - 1].end_ns) ordered = false;
        for (int m = 1; m < s->metrics; m++) /* event m exceeds event 0 by 100 m; the first metrics are events */
            if (m < 6 && !(v[m] - v[0] == 100 * m)) values = false;
    }
    printf("%s, %s, values %s, %s, outside %zu, overflows %zu, %s %s\n",
           n >= whole - 4 && n <= whole + 1 ? "complete"
           : n                              ? "incomplete"
                                            : "empty",
           ordered ? "ordered" : "disordered", values ? "right" : "wrong", s->lost ? "lost" : "nothing lost",
           s->outside, s->overflows, s->metric[0].name, s->metric[0].unit);
}

static pb_status window(pb_gpu_sampler *s)
{
    const struct timespec t = {.tv_nsec = WINDOW_MS * 1000000L};
    pb_gpu_samples samples;
    const int64_t begin = now_ns();
    PB_TRY(pb_gpu_sampler_begin(s));
    (void)nanosleep(&t, NULL);
    PB_TRY(pb_gpu_sampler_end(s));
    const int64_t end = now_ns();
    const pb_status status = pb_gpu_sampler_read(s, begin, end, &samples);
    print(&samples, end - begin);
    pb_gpu_samples_free(&samples);
    return status;
}

int main(int argc, char **argv)
{
    pb_counter_group g;
    pb_gpu_sampler *s = NULL;
    pb_status status = argc >= 3 ? pb_group_read(argv[1], &g) : PB_EINVAL;
    if (status == PB_OK) status = pb_gpu_sampler_open(&g, atoi(argv[2]), argc > 3 ? (size_t)atoi(argv[3]) : 0, &s);
    for (int i = 0; status == PB_OK && i < 2; i++) status = window(s);
    if (status != PB_OK)
        printf("%s: %s\n",
               status == PB_EUNSUPPORTED ? "unsupported"
               : status == PB_EINVAL     ? "invalid"
                                         : "device",
               pb_error());
    pb_gpu_sampler_close(s);
    return status == PB_OK ? 0 : 3;
}
