/* count_cupti.c - counts with a metric group by CUPTI, or by the fake library that stands for it, and prints what came
 * out; count_cupti_test.sh and group_passes_test.sh run it.
 *     count_cupti count FILE     opens the group of a file, counts two calls, prints the events of each
 *     count_cupti ranges FILE    the same for two sessions of three ranges, of which the second may have no fourth
 *     count_cupti steps FILE KIND   counts the ranges of a kind in two steps, and prints the table of range_counts.h
 *     count_cupti passes FILE    prints the passes that the file states and those that CUPTI needs */
#include <stdio.h>
#include <string.h>

#include "trace/gpu_counters.h"
#include "trace/gpu_samples.h"
#include "trace/range_counts.h"

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

enum { RANGES = 3 };

static pb_status count_ranges_of(const pb_counter_group *g, pb_gpu_counters *c, int session)
{
    double values[RANGES * PB_GROUP_EVENTS];
    PB_TRY(pb_gpu_counters_begin(c));
    for (int i = 0; i < RANGES; i++) {
        PB_TRY(pb_gpu_counters_push(c));
        PB_TRY(pb_gpu_counters_pop(c));
    }
    if (session == 1 && pb_gpu_counters_push(c) == PB_OK) return pb_fail(PB_EDEVICE, "a range too many was counted");
    PB_TRY(pb_gpu_counters_end_ranges(c, values, RANGES));
    for (int i = 0; i < RANGES * g->events; i++)
        printf("%s=%g%c", g->event[i % g->events].name, values[i], (i + 1) % g->events ? ' ' : '\n');
    return PB_OK;
}

static pb_status ranges(const pb_counter_group *g)
{
    pb_gpu_counters *c;
    PB_TRY(pb_gpu_counters_open_ranges(g, RANGES, &c));
    pb_status s = PB_OK;
    for (int session = 0; s == PB_OK && session < 2; session++) s = count_ranges_of(g, c, session);
    pb_gpu_counters_close(c);
    return s;
}

/* A step of two phases. The first has three ops, one of them with an op inside; the second has one. */
static void step(int64_t number)
{
    pb_range_push(PB_RANGE_step, "train_step", number);
    pb_range_push(PB_RANGE_micro, "micro_batch", PB_RANGE_NO_VALUE);
    for (int phase = 0; phase < 2; phase++) {
        pb_range_push(PB_RANGE_phase, phase ? "backward" : "forward", PB_RANGE_NO_VALUE);
        for (int op = phase ? 2 : 0; op < 3; op++) {
            pb_range_push(PB_RANGE_op, op == 1 ? "attention" : "matmul", op);
            pb_range_work(100, 10);
            if (op == 1) {
                pb_range_push(PB_RANGE_op, "softmax", op);
                pb_range_work(7, 7); /* a part of the work of the op around it */
                pb_range_pop();
            }
            pb_range_pop();
        }
        pb_range_pop();
    }
    pb_range_pop();
    pb_range_pop();
}

static pb_status count_steps(pb_range_counts *c)
{
    pb_range_counts_head(c, stdout);
    for (int i = 1; i <= 2; i++) {
        PB_TRY(pb_range_counts_begin(c));
        step(i);
        PB_TRY(pb_range_counts_end(c));
        pb_range_counts_rows(c, stdout, i, 0, "eager");
        step(99); /* between sessions nothing is counted */
    }
    pb_range_counts_release(c);
    return PB_OK;
}

static pb_status steps(const pb_counter_group *g, const char *word)
{
    int kind = 0;
    pb_range_counts *c;
    while (kind < PB_RANGE_KINDS && strcmp(pb_range_kinds[kind], word) != 0) kind++;
    PB_TRY(pb_range_counts_open(g, (pb_range_kind)kind, &c));
    const pb_status s = count_steps(c);
    pb_range_counts_close(c);
    return s;
}

static pb_status passes(const pb_counter_group *g)
{
    int n;
    PB_TRY(g->sampled ? pb_gpu_sampler_passes(g, &n) : pb_gpu_counters_passes(g, &n));
    printf("%s states %d, needs %d\n", g->name, g->passes, n);
    return PB_OK;
}

int main(int argc, char **argv)
{
    pb_counter_group g;
    pb_status s = argc >= 3 ? pb_group_read(argv[2], &g) : PB_EINVAL;
    if (s == PB_OK && argc == 4) s = steps(&g, argv[3]);
    else if (s == PB_OK)
        s = strcmp(argv[1], "count") == 0 ? count(&g) : strcmp(argv[1], "ranges") == 0 ? ranges(&g) : passes(&g);
    if (s == PB_OK) return 0;
    printf("%s: %s\n", s == PB_EUNSUPPORTED ? "unsupported" : s == PB_EINVAL ? "invalid" : "device", pb_error());
    return 3;
}
