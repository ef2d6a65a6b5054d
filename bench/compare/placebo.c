/* placebo.c - finds placebo pairs among the series of a run: two measurements of the same work, so that they differ by
 * noise only. */
#include "bench/compare/placebo.h"

#include <math.h>
#include <stdio.h>

typedef struct kind {
    const char *axis, *first, *second, *on;
} kind;

static const kind kinds[] = {
#define X(axis, first, second, on) {axis, first, second, on},
    PB_PLACEBO_MAP(X)
#undef X
};

static bool usable(const pb_series *s) { return s && pb_series_ok(s) && s->median > 0; }

static bool is_copies(const kind *k) { return strcmp(k->axis, PB_CONTROL_AXIS) == 0; }

/* Finds the series of case `c` with this value of the axis. A copy is looked for only if the axis is that of copies, so
 * no copy is in a pair with another case. */
static const pb_series *with_value(const pb_series_set *set, const pb_case *c, const kind *k, const char *value,
                                   const char *metric)
{
    pb_case other = *c;
    if (pb_case_set(&other, k->axis, value) != PB_OK) return NULL;
    pb_case_finish(&other);
    return (is_copies(k) ? pb_series_find_control : pb_series_find)(set, other.key, metric);
}

/* True if case `c` can be the first one of a pair of this kind. */
static bool is_first(const pb_series_set *set, const pb_case *c, const kind *k, const char *metric)
{
    if (*k->first) return pb_case_is(c, k->axis, k->first);
    return !pb_case_get(c, k->axis) && !with_value(set, c, k, PB_CONTROL_FIRST, metric);
}

/* The series that makes a pair of this kind with `s`, the series of case `c`; NULL: none does. */
static const pb_series *twin_of(const pb_series_set *set, const pb_series *s, const pb_case *c, const kind *k)
{
    if (strncmp(s->machine_id, k->on, strlen(k->on)) != 0 || !is_first(set, c, k, s->metric)) return NULL;
    const pb_series *twin = with_value(set, c, k, k->second, s->metric);
    return usable(twin) ? twin : NULL;
}

int pb_placebo_pairs(const pb_series_set *set, const char *key, const char *metric, pb_placebo *out, int max)
{
    char suite[PB_AXIS_TEXT];
    int n = 0;
    snprintf(suite, sizeof suite, "%.*s", (int)pb_suite_length(key), key);
    for (size_t i = 0; i < set->n + set->controls; i++) {
        const pb_series *s = &set->s[i];
        pb_case c;
        if (strcmp(s->metric, metric) != 0 || !pb_key_of(s->key, suite)) continue;
        if (!usable(s) || pb_case_parse(s->key, &c) != PB_OK) continue;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds && n < max; k++) {
            const pb_series *twin = twin_of(set, s, &c, &kinds[k]);
            if (twin) out[n++] = (pb_placebo){s, twin, is_copies(&kinds[k])};
        }
    }
    return n;
}

int pb_placebo_differences(const pb_placebo *pair, int n, const char *key, double *out)
{
    int used = 0;
    for (int i = 0; i < n; i++) {
        const bool changes = strcmp(pair[i].first->key, key) == 0 || strcmp(pair[i].second->key, key) == 0;
        if (!changes || pair[i].copies) out[used++] = log(pair[i].first->median) - log(pair[i].second->median);
    }
    return used;
}
