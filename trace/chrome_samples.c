/* chrome_samples.c - implements chrome_samples.h. */
#include "trace/chrome_samples.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static double value_of(const pb_gpu_samples *s, size_t i, int metric)
{
    return s->value[i * (size_t)s->metrics + (size_t)metric];
}

static size_t count_values(const pb_gpu_samples *s, size_t i)
{
    size_t n = 0;
    for (int m = 0; m < s->metrics; m++) n += isfinite(value_of(s, i, m)) != 0;
    return n;
}

static void put_sample(pb_gzip *g, const pb_gpu_samples *s, size_t i, int64_t base)
{
    char name[sizeof s->metric->name + sizeof s->metric->unit + 4];
    for (int m = 0; m < s->metrics; m++) {
        const double v = value_of(s, i, m);
        if (!isfinite(v)) continue;
        snprintf(name, sizeof name, "%s (%s)", s->metric[m].name, s->metric[m].unit);
        pb_gzip_print(g, ",\n{\"ph\":\"C\",\"cat\":\"hardware_counters\",\"name\":");
        pb_gzip_string(g, name);
        pb_gzip_print(g, ",\"pid\":%" PRIu32, s->device);
        pb_trace_put_us(g, "ts", s->sample[i].begin_ns - base);
        pb_gzip_print(g, ",\"args\":{\"value\":%.6g}}", v);
    }
}

void pb_chrome_samples(pb_gzip *g, const pb_gpu_samples *s, int64_t base, size_t room, pb_trace_size *size)
{
    bool fits = true;
    for (size_t i = 0; i < s->n; i++) {
        const size_t mark = pb_gzip_mark(g);
        if (fits) put_sample(g, s, i, base);
        fits = fits && pb_gzip_fits(g, mark, room);
        size->samples += fits;
        *(fits ? &size->events : &size->omitted) += count_values(s, i);
    }
}

void pb_chrome_samples_about(pb_gzip *g, const pb_gpu_samples *s, const pb_trace_size *size)
{
    if (!s->interval_us) return;
    pb_gzip_print(g, ",\"samples\":%zu,\"samples_lost\":%zu,\"samples_outside\":%zu,\"sample_overflows\":%zu",
                  size->samples, s->lost, s->outside, s->overflows);
    pb_gzip_print(g, ",\"sample_interval_us\":%d", s->interval_us);
}
