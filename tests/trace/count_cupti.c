/* count_cupti.c - counts with a metric group by CUPTI, or by the fake library that stands for it, and prints what came
 * out; count_cupti_test.sh and group_passes_test.sh run it.
 *     count_cupti count FILE     opens the group of a file, counts two calls, prints the events of each
 *     count_cupti passes FILE    prints the passes that the file states and those that CUPTI needs */
#include <stdio.h>
#include <string.h>

#include "trace/gpu_counters.h"

static pb_status count_twice(const pb_counter_group *g, pb_gpu_counters *c)
{
    for (int call = 0; call < 2; call++) {
        double values[PB_GROUP_EVENTS];
        PB_TRY(pb_gpu_counters_begin(c));
        PB_TRY(pb_gpu_counters_end(c, values));
        for (int i = 0; i < g->events; i++) printf("%s%s=%g", i ? " " : "", g->event[i].name, values[i]);
        putchar('\n');
    }
    return PB_OK;
}

static pb_status count(const pb_counter_group *g)
{
    pb_gpu_counters *c;
    PB_TRY(pb_gpu_counters_open(g, &c));
    pb_status s = count_twice(g, c);
    char why[256];
    snprintf(why, sizeof why, "%s", s == PB_OK ? "" : pb_error());
    if (s != PB_OK && pb_gpu_counters_begin(c) != PB_OK) printf("after the error, counting cannot begin again\n");
    pb_gpu_counters_close(c);
    return s == PB_OK ? s : pb_fail(s, "%s", why);
}

static pb_status passes(const pb_counter_group *g)
{
    int n;
    PB_TRY(pb_gpu_counters_passes(g, &n));
    printf("%s states %d, needs %d\n", g->name, g->passes, n);
    return PB_OK;
}

int main(int argc, char **argv)
{
    pb_counter_group g;
    pb_status s = argc == 3 ? pb_group_read(argv[2], &g) : PB_EINVAL;
    if (s == PB_OK) s = (strcmp(argv[1], "count") == 0 ? count : passes)(&g);
    if (s == PB_OK) return 0;
    printf("%s: %s\n", s == PB_EUNSUPPORTED ? "unsupported" : s == PB_EINVAL ? "invalid" : "device", pb_error());
    return 3;
}
