/* grid.c - expands grid lines into cases. */
#include "bench/run/grid.h"

#include <stdio.h>
#include <string.h>

#include "cli/options.h"

char *pb_grid_values(char *item)
{
    char *equals = strchr(item, '=');
    if (equals) *equals++ = 0;
    return equals;
}

typedef struct expansion {
    pb_case_add add;
    void *user;
} expansion;

static pb_status expand(pb_case c, const char *rest, const expansion *e);

/* Sets the axis, or the name of the case if axis is NULL, and expands the rest of the line. */
static pb_status with_value(pb_case c, const char *axis, const char *value, const char *rest, const expansion *e)
{
    if (axis) PB_TRY(pb_case_set(&c, axis, value));
    else snprintf(c.name, sizeof c.name, "%s", value);
    return expand(c, rest, e);
}

/* Expands the rest of the line for each number of a series begin, begin * factor, ... up to end. */
static pb_status with_series(const pb_case *c, const char *axis, const long long series[3], const char *rest,
                             const expansion *e)
{
    const long long begin = series[0], end = series[1], factor = series[2];
    if (begin < 1 || end < begin || factor < 2)
        return pb_fail(PB_EINVAL, "%s=%lld..%lld*%lld: need 1 <= begin <= end, and a factor of at least 2", axis, begin,
                       end, factor);
    for (long long v = begin;; v *= factor) {
        char value[PB_AXIS_TEXT];
        snprintf(value, sizeof value, "%lld", v);
        PB_TRY(with_value(*c, axis, value, rest, e));
        if (v > end / factor) return PB_OK;
    }
}

/* Reads "BEGIN..END*FACTOR". */
static bool is_series(const char *value, long long out[3])
{
    int n = 0;
    return sscanf(value, "%lld..%lld*%lld%n", &out[0], &out[1], &out[2], &n) == 3 && n > 0 && !value[n];
}

/* Expands the items of the line from `rest` on, recursively: one call of itself per value of the next item. */
static pb_status expand(pb_case c, const char *rest, const expansion *e)
{
    char item[PB_GRID_ITEM], value[PB_AXIS_TEXT];
    rest = pb_next_item(rest, ' ', item, sizeof item);
    if (!rest) {
        pb_case_finish(&c);
        return e->add(e->user, &c);
    }
    const char *values = pb_grid_values(item), *axis = values ? item : NULL;
    for (const char *v = values ? values : item; (v = pb_next_item(v, ',', value, sizeof value));) {
        long long series[3];
        PB_TRY(axis && is_series(value, series) ? with_series(&c, axis, series, rest, e)
                                                : with_value(c, axis, value, rest, e));
    }
    return PB_OK;
}

pb_status pb_grid_expand(const char *suite, const char *axes, const char *line, pb_case_add add, void *user)
{
    pb_case c = {.name = "step"};
    char item[PB_GRID_ITEM];
    snprintf(c.suite, sizeof c.suite, "%s", suite);
    for (const char *rest = axes; (rest = pb_next_item(rest, ' ', item, sizeof item));) {
        char *value = pb_grid_values(item);
        if (!value || *value) /* An axis without a default ("name=") is in the key only if a value is given. */
            PB_TRY(pb_case_set(&c, item, value ? value : ""));
    }
    return expand(c, line, &(expansion){add, user});
}
