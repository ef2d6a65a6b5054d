/* trace_samples.c - implements trace_samples.h. */
#include "bench/analyze/trace_samples.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pb_trace_time_valid(double us) { return us > -1e15 && us < 1e15; }

double pb_trace_moment(const json_t *event, double after_us, int64_t begin_ns)
{
    const double us = json_number_value(json_object_get(event, "ts"));
    return 1e-9 * (double)(llround(1e3 * us) + llround(1e3 * after_us) - begin_ns);
}

/* One value of one sample. */
typedef struct counted {
    double at, value;
    int metric;
} counted;

static int by_time(const void *x, const void *y)
{
    const counted *a = x, *b = y;
    if (a->at < b->at || a->at > b->at) return a->at < b->at ? -1 : 1;
    return a->metric < b->metric ? -1 : a->metric > b->metric;
}

/* The number of the metric "NAME (UNIT)", which is added if it is new; -1: no room. */
static int metric_of(pb_trace_samples *s, const char *text)
{
    pb_sampled_metric m = {.unit = "1"};
    const char *unit = strstr(text, " (");
    const size_t n = unit ? (size_t)(unit - text) : strlen(text);
    snprintf(m.name, sizeof m.name, "%.*s", (int)(n < sizeof m.name ? n : sizeof m.name - 1), text);
    if (unit) snprintf(m.unit, sizeof m.unit, "%.*s", (int)strcspn(unit + 2, ")"), unit + 2);
    for (int i = 0; i < s->metrics; i++)
        if (strcmp(s->metric[i].name, m.name) == 0) return i;
    if (s->metrics == PB_GROUP_METRICS) return -1;
    s->metric[s->metrics] = m;
    return s->metrics++;
}

/* Lists the values of all samples in `all`, which has room for them. */
static pb_status list_values(const char *path, const json_t *events, int64_t begin_ns, pb_trace_samples *s,
                             counted *all, size_t *n)
{
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        const char *ph = json_string_value(json_object_get(e, "ph")),
                   *cat = json_string_value(json_object_get(e, "cat")),
                   *name = json_string_value(json_object_get(e, "name"));
        const json_t *value = json_object_get(json_object_get(e, "args"), "value");
        if (!ph || strcmp(ph, "C") != 0 || !cat || strcmp(cat, "hardware_counters") != 0) continue;
        if (!name || !json_is_number(json_object_get(e, "ts")) || !json_is_number(value))
            return pb_fail(PB_EINVAL, "%s: event %zu, a sample, has no name, ts or value", path, i);
        if (!pb_trace_time_valid(json_number_value(json_object_get(e, "ts"))))
            return pb_fail(PB_EINVAL, "%s: event %zu, a sample: need a ts between -1e15 and 1e15 microseconds", path,
                           i);
        const int metric = metric_of(s, name);
        if (metric < 0) return pb_fail(PB_EINVAL, "%s: more than %d sampled metrics", path, PB_GROUP_METRICS);
        all[(*n)++] = (counted){pb_trace_moment(e, 0, begin_ns), json_number_value(value), metric};
    }
    return PB_OK;
}

/* Makes a sample of the values that have the same time. */
static pb_status make_samples(const char *path, counted *all, size_t n, pb_trace_samples *s)
{
    s->begin = malloc((n + 1) * sizeof *s->begin);
    s->value = malloc((n * (size_t)s->metrics + 1) * sizeof *s->value);
    if (!s->begin || !s->value) return pb_fail(PB_ENOMEM, "%s: no memory for its samples", path);
    if (n) qsort(all, n, sizeof *all, by_time);
    for (size_t i = 0; i < n; i++) {
        if (!s->n || all[i].at > s->begin[s->n - 1]) {
            for (int m = 0; m < s->metrics; m++) s->value[s->n * (size_t)s->metrics + (size_t)m] = (double)NAN;
            s->begin[s->n++] = all[i].at;
        }
        s->value[(s->n - 1) * (size_t)s->metrics + (size_t)all[i].metric] = all[i].value;
    }
    return PB_OK;
}

pb_status pb_trace_samples_read(const char *path, const json_t *events, double interval, int64_t begin_ns,
                                pb_trace_samples *out)
{
    size_t n = 0;
    if (!(interval > 0)) return PB_OK;
    counted *all = malloc((json_array_size(events) + 1) * sizeof *all);
    if (!all) return pb_fail(PB_ENOMEM, "%s: no memory for its samples", path);
    out->interval = interval;
    pb_status s = list_values(path, events, begin_ns, out, all, &n);
    if (s == PB_OK) s = make_samples(path, all, n, out);
    free(all);
    return s;
}
