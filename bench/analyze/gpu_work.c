/* gpu_work.c - implements gpu_work.h: walks over the begins and ends of all work in the order of time. */
#include "bench/analyze/gpu_work.h"

#include <stdlib.h>
#include <string.h>

typedef struct edge {
    double at;
    pb_gpu_work what;
    int change; /* 1: a begin, -1: an end */
} edge;

static int by_time(const void *x, const void *y)
{
    const edge *a = x, *b = y;
    return a->at < b->at ? -1 : a->at > b->at;
}

static pb_status divide(const pb_trace *t, pb_gpu_total *out)
{
    edge *edges = malloc((2 * t->ngpu + 1) * sizeof *edges);
    long running[PB_WORK_KINDS] = {0};
    if (!edges) return pb_fail(PB_ENOMEM, "no memory to analyze %zu records of a GPU", t->ngpu);
    for (size_t i = 0; i < t->ngpu; i++) {
        edges[2 * i] = (edge){t->gpu[i].begin, t->gpu[i].what, 1};
        edges[2 * i + 1] = (edge){t->gpu[i].end, t->gpu[i].what, -1};
    }
    if (t->ngpu) qsort(edges, 2 * t->ngpu, sizeof *edges, by_time);
    for (size_t i = 0; i < 2 * t->ngpu; i++) {
        unsigned set = 0;
        for (int k = 0; k < PB_WORK_KINDS; k++) set |= (unsigned)(running[k] > 0) << k;
        if (i) out->set[set] += edges[i].at - edges[i - 1].at;
        running[edges[i].what] += edges[i].change;
    }
    if (t->ngpu) out->window = edges[2 * t->ngpu - 1].at - edges[0].at;
    free(edges);
    return PB_OK;
}

static int by_name(const void *x, const void *y)
{
    const pb_gpu_named *a = x, *b = y;
    return a->what != b->what ? (int)a->what - (int)b->what : strcmp(a->name, b->name);
}

static int by_seconds(const void *x, const void *y)
{
    const pb_gpu_named *a = x, *b = y;
    if (a->seconds > b->seconds || a->seconds < b->seconds) return a->seconds > b->seconds ? -1 : 1;
    return by_name(x, y);
}

static pb_status add_names(const pb_trace *t, pb_gpu_total *out)
{
    pb_gpu_named *all = malloc((t->ngpu + 1) * sizeof *all);
    if (!all) return pb_fail(PB_ENOMEM, "no memory to analyze %zu records of a GPU", t->ngpu);
    for (size_t i = 0; i < t->ngpu; i++) {
        const pb_gpu_span *g = &t->gpu[i];
        const double s = g->end - g->begin;
        all[i] = (pb_gpu_named){g->name, g->what, 1, s, s, s, g->copy, g->moved};
    }
    if (t->ngpu) qsort(all, t->ngpu, sizeof *all, by_name);
    size_t n = 0;
    for (size_t i = 0; i < t->ngpu; i++) {
        pb_gpu_named *p = n ? &all[n - 1] : NULL;
        if (!p || by_name(p, &all[i]) != 0) {
            all[n++] = all[i];
            continue;
        }
        p->calls++;
        p->seconds += all[i].seconds;
        p->moved += all[i].moved;
        if (all[i].seconds < p->shortest) p->shortest = all[i].seconds;
        if (all[i].seconds > p->longest) p->longest = all[i].seconds;
    }
    if (n) qsort(all, n, sizeof *all, by_seconds);
    out->named = all;
    out->n = n;
    return PB_OK;
}

pb_status pb_gpu_total_make(const pb_trace *t, pb_gpu_total *out)
{
    *out = (pb_gpu_total){0};
    PB_TRY(divide(t, out));
    return add_names(t, out);
}

void pb_gpu_total_free(pb_gpu_total *g)
{
    free(g->named);
    *g = (pb_gpu_total){0};
}
