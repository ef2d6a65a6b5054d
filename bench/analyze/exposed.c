/* exposed.c - implements exposed.h: visits the calls in the order of their begins, and remembers the time already
 * covered. */
#include "bench/analyze/exposed.h"

#include <stdlib.h>
#include <string.h>

static int by_begin(const void *x, const void *y)
{
    const pb_trace_collective *a = x, *b = y;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

static pb_collective_part *part_of(pb_breakdown *b, const pb_trace_collective *c)
{
    for (int i = 0; i < b->ncollectives; i++) {
        pb_collective_part *p = &b->collectives[i];
        if (strcmp(p->name, c->name) == 0 && strcmp(p->group, c->group) == 0 && strcmp(p->dtype, c->dtype) == 0)
            return p;
    }
    if (b->ncollectives == PB_BREAKDOWN_COLLECTIVES) return NULL;
    b->collectives[b->ncollectives] =
        (pb_collective_part){.name = c->name, .group = c->group, .dtype = c->dtype, .ranks = c->ranks};
    return &b->collectives[b->ncollectives++];
}

static bool inside(const pb_intervals *steps, double at)
{
    for (size_t i = 0; i < steps->n; i++)
        if (at >= steps->at[i].begin && at < steps->at[i].end) return true;
    return false;
}

/* The part of one[0] in which communication is exposed: inside the steps and, on a GPU, outside `hides`; on a CPU
 * (hides NULL), inside `waits`. */
static double exposed(const pb_intervals *one, const pb_intervals *steps, const pb_intervals *waits,
                      const pb_intervals *hides)
{
    if (!hides) return pb_intervals_common(one, waits);
    double hidden = 0;
    for (size_t i = 0; i < steps->n; i++) {
        pb_interval both = one->at[0];
        if (both.begin < steps->at[i].begin) both.begin = steps->at[i].begin;
        if (both.end > steps->at[i].end) both.end = steps->at[i].end;
        if (both.end > both.begin) hidden += pb_intervals_common(&(pb_intervals){&both, 1}, hides);
    }
    return pb_intervals_common(one, steps) - hidden;
}

static void add(const pb_trace_collective *all, size_t n, const pb_intervals *steps, const pb_intervals *waits,
                const pb_intervals *hides, pb_breakdown *out)
{
    double covered = -1e300; /* the latest end so far */
    for (size_t i = 0; i < n; i++) {
        const pb_trace_collective *c = &all[i];
        pb_interval rest = {c->begin > covered ? c->begin : covered, c->end};
        pb_collective_part *p = part_of(out, c);
        if (!p) continue;
        const pb_intervals one = {&rest, rest.end > rest.begin};
        if (one.n) p->exposed += exposed(&one, steps, waits, hides);
        if (c->end > covered) covered = c->end;
        if (!inside(steps, c->begin)) continue;
        p->calls += c->first;
        p->bytes += c->first ? c->bytes : 0;
        p->seconds += c->end - c->begin;
    }
}

pb_status pb_exposed_add(const pb_trace *t, const pb_intervals *steps, const pb_intervals *waits, pb_breakdown *out)
{
    pb_trace_collective *all = malloc((t->ncollectives + 1) * sizeof *all);
    pb_intervals hides = {.at = malloc((t->ngpu + 1) * sizeof *hides.at)};
    const bool ok = all && hides.at;
    if (ok) {
        memcpy(all, t->collectives, t->ncollectives * sizeof *all);
        if (t->ncollectives) qsort(all, t->ncollectives, sizeof *all, by_begin);
        for (size_t i = 0; i < t->ngpu; i++)
            if (t->gpu[i].what == PB_WORK_KERNEL) pb_intervals_add(&hides, t->gpu[i].begin, t->gpu[i].end);
        pb_intervals_unite(&hides);
        add(all, t->ncollectives, steps, waits, t->ngpu ? &hides : NULL, out);
    }
    free(all);
    free(hides.at);
    return ok ? PB_OK : pb_fail(PB_ENOMEM, "no memory to analyze %zu collectives", t->ncollectives);
}
