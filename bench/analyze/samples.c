/* samples.c - implements samples.h: lists the moments of each part, and goes through them and the samples together. */
#include "bench/analyze/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/analyze/steps.h"

/* Scratch memory. */
typedef struct lists {
    pb_intervals steps, work, moments; /* moments: of a part */
    size_t *part;                      /* [t->ngpu]: the part that the phase of each piece of work is */
} lists;

static double end_of(const pb_trace_samples *s, size_t i)
{
    const double next = i + 1 < s->n ? s->begin[i + 1] - s->begin[i] : (double)INFINITY;
    return next < 1.5 * s->interval ? s->begin[i + 1] : s->begin[i] + s->interval;
}

static void add_sample(pb_sampled_part *p, const pb_trace_samples *s, size_t i, double weight)
{
    p->sampled += weight;
    for (int m = 0; m < s->metrics; m++) {
        const double v = s->value[i * (size_t)s->metrics + (size_t)m];
        if (!isfinite(v)) continue;
        p->weighted[m] += weight * v;
        p->weight[m] += weight;
    }
}

static void add_samples(pb_sampled_part *p, const pb_trace_samples *s, const pb_intervals *moments)
{
    size_t first = 0;
    for (size_t k = 0; k < moments->n; k++) {
        p->seconds += moments->at[k].end - moments->at[k].begin;
        p->pieces += k == 0 || moments->at[k].begin - moments->at[k - 1].end >= s->interval;
    }
    for (size_t i = 0; i < s->n; i++) {
        const double begin = s->begin[i], end = end_of(s, i);
        double common = 0;
        while (first < moments->n && moments->at[first].end <= begin) first++;
        for (size_t k = first; k < moments->n && moments->at[k].begin < end; k++)
            common += fmin(end, moments->at[k].end) - fmax(begin, moments->at[k].begin);
        if (common > 0) add_sample(p, s, i, common);
    }
}

/* Finds the phases, and the part of each piece of work. Pieces that follow each other mostly have the same phase. */
static pb_status find_phases(const pb_trace *t, size_t *part, pb_sampled *out)
{
    size_t room = 16;
    out->part = calloc(room, sizeof *out->part);
    out->n = PB_SAMPLED_PHASES;
    for (size_t i = 0, k = PB_SAMPLED_PHASES; out->part && i < t->ngpu; i++) {
        const char *phase = t->gpu[i].phase;
        part[i] = PB_SAMPLED_NO_PHASE;
        if (!phase) continue;
        if (k == out->n || strcmp(out->part[k].name, phase) != 0)
            for (k = PB_SAMPLED_PHASES; k < out->n && strcmp(out->part[k].name, phase) != 0;) k++;
        if (k == room) {
            pb_sampled_part *more = realloc(out->part, (room *= 2) * sizeof *more);
            if (!more) return pb_fail(PB_ENOMEM, "no memory for the phases of a trace");
            out->part = more;
        }
        if (k == out->n) out->part[out->n++] = (pb_sampled_part){.name = phase};
        part[i] = k;
    }
    if (!out->part) return pb_fail(PB_ENOMEM, "no memory for the phases of a trace");
    out->part[PB_SAMPLED_STEP].name = "step";
    out->part[PB_SAMPLED_IDLE].name = "idle";
    out->part[PB_SAMPLED_NO_PHASE].name = "no phase";
    return PB_OK;
}

/* The work of part k, or, if k is PB_SAMPLED_STEP, all work; united. */
static void list_work(const pb_trace *t, const size_t *part, size_t k, pb_intervals *out)
{
    out->n = 0;
    for (size_t i = 0; i < t->ngpu; i++)
        if (k == PB_SAMPLED_STEP || part[i] == k) pb_intervals_add(out, t->gpu[i].begin, t->gpu[i].end);
    pb_intervals_unite(out);
}

static void divide(const pb_trace *t, lists *l, pb_sampled *out)
{
    pb_steps_list(t, &l->steps);
    add_samples(&out->part[PB_SAMPLED_STEP], &t->samples, &l->steps);
    list_work(t, l->part, PB_SAMPLED_STEP, &l->work);
    pb_intervals_without(&l->steps, &l->work, &l->moments);
    add_samples(&out->part[PB_SAMPLED_IDLE], &t->samples, &l->moments);
    for (size_t k = PB_SAMPLED_NO_PHASE; k < out->n; k++) {
        list_work(t, l->part, k, &l->work);
        pb_intervals_cut(&l->work, &l->steps, &l->moments);
        add_samples(&out->part[k], &t->samples, &l->moments);
    }
}

pb_status pb_samples_divide(const pb_trace *t, pb_sampled *out)
{
    lists l = {.steps.at = malloc((t->n + 1) * sizeof(pb_interval)),
               .work.at = malloc((t->ngpu + 1) * sizeof(pb_interval)),
               .moments.at = malloc((t->n + t->ngpu + 1) * sizeof(pb_interval)),
               .part = malloc((t->ngpu + 1) * sizeof *l.part)};
    pb_status s = PB_OK;
    *out = (pb_sampled){0};
    if (!l.steps.at || !l.work.at || !l.moments.at || !l.part)
        s = pb_fail(PB_ENOMEM, "no memory to divide %zu samples", t->samples.n);
    if (s == PB_OK) s = find_phases(t, l.part, out);
    if (s == PB_OK) divide(t, &l, out);
    free(l.steps.at);
    free(l.work.at);
    free(l.moments.at);
    free(l.part);
    return s;
}

void pb_sampled_free(pb_sampled *s)
{
    free(s->part);
    *s = (pb_sampled){0};
}
