/* mean_parts.c - implements mean_parts.h. */
#include "bench/analyze/mean_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats/stats.h"

static const pb_part *find(const pb_breakdown *b, bool ops, const char *name)
{
    const pb_part *parts = ops ? b->ops : b->phases;
    for (int i = 0; i < (ops ? b->nops : b->nphases); i++)
        if (strcmp(parts[i].name, name) == 0) return &parts[i];
    return NULL;
}

/* Adds the nth time; `most` is -1 before the first. */
static void add_time(pb_spread *s, double *times, size_t n, double time, int rank)
{
    times[n] = time;
    s->least = n == 0 || time < s->least ? time : s->least;
    if (time > s->most) s->most = time, s->rank = rank;
}

/* The means over the traces that have steps. `times` is scratch memory for [2 run.n]. */
static pb_mean_part mean_of(const pb_analyzed *j, bool ops, const char *name, double *times)
{
    pb_mean_part m = {.name = name, .own = {.most = -1, .rank = -1}, .gpu_own = {.most = -1, .rank = -1}};
    double *gpu = times + j->run.n;
    size_t n = 0;
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_part *p = find(&j->of[i], ops, name);
        if (!j->of[i].steps) continue;
        const double steps = (double)j->of[i].steps;
        m.calls += p ? (double)p->calls / steps : 0;
        m.seconds += p ? p->seconds / steps : 0;
        m.gpu_calls += p ? (double)p->gpu_calls / steps : 0;
        m.gpu += p ? p->gpu / steps : 0;
        m.flops += p ? p->flops / steps : 0;
        m.bytes += p ? p->bytes / steps : 0;
        add_time(&m.own, times, n, p ? p->own / steps : 0, j->of[i].rank);
        add_time(&m.gpu_own, gpu, n, p ? p->gpu_own / steps : 0, j->of[i].rank);
        n++;
    }
    m.calls /= (double)n;
    m.seconds /= (double)n;
    m.gpu_calls /= (double)n;
    m.gpu /= (double)n;
    m.flops /= (double)n;
    m.bytes /= (double)n;
    m.own.middle = pb_median(times, (int)n);
    m.gpu_own.middle = pb_median(gpu, (int)n);
    return m;
}

double pb_mean_cost(const pb_mean_part *m) { return m->gpu_calls > 0 ? m->gpu : m->seconds; }

static int by_cost(const void *x, const void *y)
{
    const pb_mean_part *a = x, *b = y;
    if ((a->gpu_calls > 0) != (b->gpu_calls > 0)) return a->gpu_calls > 0 ? -1 : 1;
    return pb_mean_cost(a) > pb_mean_cost(b) ? -1 : pb_mean_cost(a) < pb_mean_cost(b);
}

pb_status pb_mean_parts_list(const pb_analyzed *j, bool ops, pb_mean_part **out, size_t *n)
{
    double *times = malloc((2 * j->run.n + 1) * sizeof *times);
    pb_mean_part *all = malloc((j->run.n * PB_BREAKDOWN_NAMES + 1) * sizeof *all);
    *n = 0;
    *out = all;
    if (!times || !all) {
        free(times);
        return pb_fail(PB_ENOMEM, "no memory to list the parts of %zu traces", j->run.n);
    }
    for (size_t i = 0; i < j->run.n; i++) {
        const pb_breakdown *b = &j->of[i];
        for (int k = 0; k < (ops ? b->nops : b->nphases); k++) {
            const char *name = ops ? b->ops[k].name : b->phases[k].name;
            size_t seen = 0;
            while (seen < *n && strcmp(all[seen].name, name) != 0) seen++;
            if (seen == *n) all[(*n)++] = mean_of(j, ops, name, times);
        }
    }
    free(times);
    if (ops) qsort(all, *n, sizeof *all, by_cost);
    return PB_OK;
}

double pb_mean_step(const pb_analyzed *j)
{
    double sum = 0;
    long n = 0;
    for (size_t i = 0; i < j->run.n; i++) sum += j->of[i].step, n += j->of[i].steps;
    return n ? sum / (double)n : (double)NAN;
}
