/* ratios.c - finds the two cases of each ratio, and divides their values. */
#include "bench/derived/ratios.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/attention_crossover.h"

typedef struct ratio {
    const char *metric, *suite, *of;
    /* The two cases differ in `axis`: it is `value` in the first and `other` in the second; other "": the second case
     * lacks the axis. axis NULL: find_other gives the second case. */
    const char *axis, *value, *other;
    bool (*find_other)(const pb_case *, pb_case *out); /* false: the case is not the first of a ratio */
} ratio;

/* The same step of suite profile at level=off. It has no axis recorders, because no rank records. */
static bool with_level_off(const pb_case *c, pb_case *out)
{
    pb_case off = *c;
    if (!pb_case_get(c, "level") || pb_case_is(c, "level", "off")) return false;
    pb_case_drop(&off, "recorders");
    if (pb_case_set(&off, "level", "off") != PB_OK) return false;
    pb_case_finish(&off);
    *out = off;
    return true;
}

static const ratio ratios[] = {
#define RATIO(metric, suite, of, axis, value, other) {#metric, #suite, #of, #axis, #value, #other, NULL},
#define RATIO_TWIN(metric, suite, of, find)          {#metric, #suite, #of, NULL, NULL, NULL, find},
#include "bench/derived/ratios.def"
#undef RATIO
#undef RATIO_TWIN
};

bool pb_is_ratio(const char *metric)
{
    for (size_t k = 0; k < sizeof ratios / sizeof *ratios; k++)
        if (strcmp(ratios[k].metric, metric) == 0) return true;
    return false;
}

static bool other_case(const ratio *r, const pb_case *c, pb_case *out)
{
    if (!r->axis) return r->find_other(c, out);
    const char *value = pb_case_get(c, r->axis);
    pb_case other = *c;
    if (!value || strcmp(value, r->value) != 0) return false;
    if (!*r->other) pb_case_drop(&other, r->axis);
    else if (pb_case_set(&other, r->axis, r->other) != PB_OK) return false;
    pb_case_finish(&other);
    *out = other;
    return true;
}

static pb_status emit(pb_emitter *e, const ratio *r, const pb_case *c)
{
    pb_case other;
    double x, y;
    char note[64];
    if (!other_case(r, c, &other) || !pb_emitted_value(e, c->key, r->of, &x)) return PB_OK;
    if (!pb_emitted_value(e, other.key, r->of, &y)) return PB_OK;
    snprintf(note, sizeof note, "%.4g over %.4g", x, y);
    return pb_emit(e, c, r->metric, x / y, 0, PB_ROW_OK, note);
}

pb_status pb_ratios_conclude(pb_emitter *e, const char *suite)
{
    int n = 0;
    pb_status s = PB_OK;
    while (pb_emitted_key(e, n)) n++;
    pb_case *cases = malloc(((size_t)n + 1) * sizeof *cases);
    if (!cases) return pb_fail(PB_ENOMEM, "no memory for the ratios of %d cases", n);
    /* Collects all cases before the first ratio is emitted, because each emitted ratio adds a key. */
    int read = 0;
    for (int i = 0; i < n; i++) {
        pb_case *c = &cases[read];
        bool again = false;
        if (pb_case_parse(pb_emitted_key(e, i), c) != PB_OK || strcmp(c->suite, suite) != 0) continue;
        for (int k = 0; k < read && !again; k++) again = strcmp(cases[k].key, c->key) == 0;
        read += !again;
    }
    for (int i = 0; s == PB_OK && i < read; i++)
        for (size_t k = 0; s == PB_OK && k < sizeof ratios / sizeof *ratios; k++)
            if (strcmp(ratios[k].suite, suite) == 0) s = emit(e, &ratios[k], &cases[i]);
    free(cases);
    return s;
}
