/* breakdown.c - implements breakdown.h: walks the ranges of each thread in the order of their begins, with a stack of
 * those that are open. */
#include "bench/analyze/breakdown.h"

#include <stdlib.h>
#include <string.h>

#include "bench/analyze/exposed.h"
#include "bench/analyze/idle.h"
#include "bench/analyze/steps.h"

enum { DEPTH = 64 };

/* The walk over the training thread. */
typedef struct walk {
    const pb_trace_event *open[DEPTH];
    pb_part *part[DEPTH]; /* of open[]; NULL: none */
    int depth;
    pb_breakdown *b;
    pb_range_kind unit;        /* of the ranges that count as steps */
    pb_intervals steps, waits; /* by begin, not overlapping */
} walk;

static bool communicates(const pb_trace_event *e)
{
    return e->kind == PB_RANGE_op && strncmp(e->name, "comm_", 5) == 0;
}

static pb_part *part_of(pb_part *parts, int *n, const char *name, int *unnamed)
{
    for (int i = 0; i < *n; i++)
        if (strcmp(parts[i].name, name) == 0) return &parts[i];
    if (*n == PB_BREAKDOWN_NAMES) {
        ++*unnamed;
        return NULL;
    }
    parts[*n] = (pb_part){.name = name};
    return &parts[(*n)++];
}

static bool inside(const walk *w, pb_range_kind kind)
{
    for (int i = 0; i < w->depth; i++)
        if (w->open[i]->kind == kind) return true;
    return false;
}

/* An op that no other op contains is compute or exposed communication. Its time does not count as a phase's own if it
 * communicates. */
static void add_op(walk *w, const pb_trace_event *e)
{
    const double t = e->end - e->begin;
    pb_breakdown *b = w->b;
    pb_part *p = part_of(b->ops, &b->nops, e->name, &b->unnamed);
    if (p) p->calls++, p->seconds += t, p->own += t, p->flops += e->flops, p->bytes += e->bytes;
    w->part[w->depth] = p;
    for (int i = w->depth - 1; i >= 0; i--)
        if (w->open[i]->kind == PB_RANGE_op) {
            if (w->part[i]) w->part[i]->own -= t;
            return;
        }
    if (!communicates(e)) {
        b->compute += t;
        return;
    }
    b->exposed += t;
    pb_intervals_add(&w->waits, e->begin, e->end);
    for (int i = 0; i < w->depth; i++)
        if (w->open[i]->kind == PB_RANGE_phase && w->part[i]) w->part[i]->own -= t;
}

static void add_event(walk *w, const pb_trace_event *e)
{
    const double t = e->end - e->begin;
    while (w->depth && w->open[w->depth - 1]->end <= e->begin) w->depth--;
    if (w->depth == DEPTH) return;
    w->part[w->depth] = NULL;
    if (e->kind == w->unit) {
        w->b->steps++;
        w->b->step += t;
        pb_intervals_add(&w->steps, e->begin, e->end);
    } else if (inside(w, w->unit)) {
        if (e->kind == PB_RANGE_op) add_op(w, e);
        if (e->kind == PB_RANGE_phase) {
            pb_part *p = part_of(w->b->phases, &w->b->nphases, e->name, &w->b->unnamed);
            if (p) p->calls++, p->seconds += t, p->own += t;
            w->part[w->depth] = p;
        }
    }
    w->open[w->depth++] = e;
}

static void hidden(const pb_trace *t, int training, walk *w, pb_intervals *collectives)
{
    for (size_t i = 0; i < t->n; i++) {
        const pb_trace_event *e = &t->events[i];
        if (e->tid != training && e->kind == PB_RANGE_collective) pb_intervals_add(collectives, e->begin, e->end);
    }
    pb_intervals_unite(collectives);
    w->b->hidden = pb_intervals_common(collectives, &w->steps) - pb_intervals_common(collectives, &w->waits);
}

/* Adds a GPU's work to the op and the phase in which it was enqueued. */
static void add_gpu_part(pb_breakdown *b, const pb_gpu_span *g)
{
    pb_part *op = g->op ? part_of(b->ops, &b->nops, g->op, &b->unnamed) : NULL;
    pb_part *phase = g->phase ? part_of(b->phases, &b->nphases, g->phase, &b->unnamed) : NULL;
    if (op) op->gpu_calls++, op->gpu += g->end - g->begin, op->flops += g->flops, op->bytes += g->bytes;
    if (phase) phase->gpu_calls++, phase->gpu += g->end - g->begin;
    if (phase && g->what != PB_WORK_COMMUNICATION) phase->gpu_own += g->end - g->begin;
    b->gpu.graphs += g->graph;
    if (g->graph) return;
    b->gpu.kernels += !g->copy;
    b->gpu.unjoined += !g->copy && !op;
}

/* The time inside the steps in which one of the kinds of work in the set `what` runs. `l` is scratch memory. */
static double busy(const pb_trace *t, unsigned what, const pb_intervals *steps, pb_intervals *l)
{
    l->n = 0;
    for (size_t i = 0; i < t->ngpu; i++)
        if (what & 1u << t->gpu[i].what) pb_intervals_add(l, t->gpu[i].begin, t->gpu[i].end);
    pb_intervals_unite(l);
    return pb_intervals_common(l, steps);
}

static pb_status divide_gpu(const pb_trace *t, const pb_intervals *steps, pb_breakdown *b)
{
    enum { KERNEL = 1 << PB_WORK_KERNEL, NCCL = 1 << PB_WORK_COMMUNICATION, MEMORY = 1 << PB_WORK_MEMORY };
    pb_intervals l = {.at = malloc((t->ngpu + 1) * sizeof(pb_interval))};
    if (!l.at) return pb_fail(PB_ENOMEM, "no memory to analyze %zu records of a GPU", t->ngpu);
    for (size_t i = 0; i < t->ngpu; i++)
        for (size_t k = 0; k < steps->n; k++)
            if (t->gpu[i].begin >= steps->at[k].begin && t->gpu[i].begin < steps->at[k].end)
                add_gpu_part(b, &t->gpu[i]);
    const double compute = busy(t, KERNEL, steps, &l), nccl = busy(t, NCCL, steps, &l),
                 both = busy(t, KERNEL | NCCL, steps, &l), all = busy(t, KERNEL | NCCL | MEMORY, steps, &l);
    b->has_gpu = true;
    b->gpu.compute = compute;
    b->gpu.exposed = both - compute;
    b->gpu.hidden = nccl - b->gpu.exposed;
    b->gpu.memory = all - both;
    b->gpu.idle = b->step - all;
    free(l.at);
    return pb_idle_divide(t, steps, &b->gpu.host_bound, &b->gpu.unknown);
}

pb_status pb_breakdown_make(const pb_trace *t, pb_breakdown *out)
{
    memset(out, 0, sizeof *out);
    out->rank = t->rank;
    walk *w = calloc(1, sizeof *w);
    pb_intervals all[3] = {{0}};
    for (int i = 0; i < 3; i++) all[i].at = malloc((t->n + 1) * sizeof(pb_interval));
    if (!w || !all[0].at || !all[1].at || !all[2].at) {
        for (int i = 0; i < 3; i++) free(all[i].at);
        free(w);
        return pb_fail(PB_ENOMEM, "no memory to analyze a trace of %zu ranges", t->n);
    }
    w->b = out;
    w->steps = all[0];
    w->waits = all[1];
    const pb_step_ranges ranges = pb_steps_find(t);
    const int training = ranges.tid;
    w->unit = ranges.kind;
    for (size_t i = 0; i < t->n; i++)
        if (t->events[i].tid == training) add_event(w, &t->events[i]);
    hidden(t, training, w, &all[2]);
    out->other = out->step - out->compute - out->exposed;
    pb_status s = t->ngpu ? divide_gpu(t, &w->steps, out) : PB_OK;
    if (s == PB_OK) s = pb_exposed_add(t, &w->steps, &w->waits, out);
    for (int i = 0; i < 3; i++) free(all[i].at);
    free(w);
    return s;
}
