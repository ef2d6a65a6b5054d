/* placebo.c - finds placebo pairs among the series of a run: two cases that do the same work, so that they differ by
 * noise only. */
#include "bench/compare/placebo.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *axis, *first, *second, *on;
} kinds[] = {
#define X(axis, first, second, on) {axis, first, second, on},
    PB_PLACEBO_MAP(X)
#undef X
};

static bool usable(const pb_series *s) { return s && pb_series_ok(s) && s->median > 0; }

const pb_series *pb_placebo_of(const pb_series_set *set, const pb_series *s)
{
    pb_case c;
    if (!usable(s) || pb_case_parse(s->key, &c) != PB_OK) return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!pb_case_is(&c, kinds[i].axis, kinds[i].first)) continue;
        if (strncmp(s->machine_id, kinds[i].on, strlen(kinds[i].on)) != 0) continue;
        if (pb_case_set(&c, kinds[i].axis, kinds[i].second) != PB_OK) return NULL;
        pb_case_finish(&c);
        const pb_series *twin = pb_series_find(set, c.key, s->metric);
        if (!twin) twin = pb_series_find_control(set, c.key, s->metric);
        if (usable(twin)) return twin;
    }
    return NULL;
}

int pb_placebo_pairs(const pb_series_set *set, const char *key, const char *metric, pb_placebo *out, int max)
{
    char suite[PB_AXIS_TEXT];
    int n = 0;
    snprintf(suite, sizeof suite, "%.*s", (int)pb_suite_length(key), key);
    for (size_t i = 0; i < set->n + set->controls && n < max; i++) {
        const pb_series *s = &set->s[i];
        if (strcmp(s->metric, metric) != 0 || !pb_key_of(s->key, suite)) continue;
        const pb_series *twin = pb_placebo_of(set, s);
        if (twin) out[n++] = (pb_placebo){s, twin};
    }
    return n;
}

int pb_placebo_differences(const pb_placebo *pair, int n, const char *key, double *out)
{
    int used = 0;
    for (int i = 0; i < n; i++)
        if (strcmp(pair[i].first->key, key) != 0 && strcmp(pair[i].second->key, key) != 0)
            out[used++] = log(pair[i].first->median) - log(pair[i].second->median);
    return used;
}
