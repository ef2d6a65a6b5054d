/* records_write.c - pb_records_write() of records.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trace/nodes.h"
#include "trace/records.h"
#include "trace/records_fields.h"

typedef struct writer {
    pb_gzip *g;
    const char *path;
    size_t lines;
    const char **names; /* [nnames]: by number */
    const pb_range_stack **places;
    size_t nnames, names_room, nplaces, places_room;
    int64_t base;
    pb_status status; /* of the first failure */
} writer;

static void line(writer *w)
{
    pb_gzip_put(w->g, "\n", 1);
    w->lines++;
}

static void number(writer *w, int64_t v) { pb_gzip_print(w->g, " %" PRId64, v); }

/* Makes room for one more pointer in a list of n. */
static void *more(writer *w, void *list, size_t n, size_t *room)
{
    if (n < *room) return list;
    const size_t want = *room ? 2 * *room : 256;
    void *bigger = realloc(list, want * sizeof(void *));
    if (!bigger) {
        if (w->status == PB_OK) w->status = pb_fail(PB_ENOMEM, "%s: no memory to write it", w->path);
        return list;
    }
    *room = want;
    return bigger;
}

/* The number of a name, whose line is written at its first use: call it before a line that needs the number. */
static int64_t name_of(writer *w, const char *text)
{
    size_t i = 0;
    if (!text) text = "";
    while (i < w->nnames && w->names[i] != text) i++; /* most names are one string each */
    if (i < w->nnames) return (int64_t)i;
    for (i = 0; i < w->nnames; i++)
        if (strcmp(w->names[i], text) == 0) return (int64_t)i;
    w->names = more(w, w->names, w->nnames, &w->names_room);
    const size_t n = strlen(text);
    if (w->status == PB_OK && (n > PB_GZIP_NAME || strchr(text, '\n')))
        w->status = pb_fail(PB_EINVAL, "%s: the name %.40s... has %zu bytes or a newline", w->path, text, n);
    if (w->status != PB_OK) return 0;
    w->names[w->nnames++] = text;
    pb_gzip_print(w->g, "name ");
    pb_gzip_put(w->g, text, n);
    line(w);
    return (int64_t)i;
}

static void put_about(writer *w, const pb_trace_about *a)
{
    const char *const texts[] = {a->topology, a->version, a->backend, a->device};
    int64_t names[4];
    for (int i = 0; i < 4; i++) names[i] = name_of(w, texts[i]);
    pb_gzip_print(w->g, "about %d %d %" PRId64 " %" PRId64 " %d", a->rank, a->ranks, a->first_step, a->last_step,
                  a->truncated);
    for (int i = 0; i < 4; i++) number(w, names[i]);
    line(w);
}

/* Writes the lines that define new names before its own line, so call it only between lines. */
static void put_collective(writer *w, const char *word, int at, const pb_range_collective *c)
{
    if (!c->group) return;
    const int64_t group = name_of(w, c->group), dtype = name_of(w, c->dtype);
    pb_gzip_print(w->g, "%s", word);
    if (at >= 0) number(w, at);
    number(w, group);
    number(w, dtype);
    number(w, c->ranks);
    number(w, c->number);
    line(w);
}

static void put_thread(writer *w, const pb_ring_thread *t)
{
    pb_gzip_print(w->g, "thread %d %zu", t->tid, t->dropped);
    line(w);
    for (size_t i = 0; i < t->n; i++) {
        const pb_ring_record *r = &t->records[i];
        const int64_t name = name_of(w, r->name);
        pb_gzip_print(w->g, "range %s", pb_range_kinds[r->kind]);
        number(w, r->begin_ns - w->base);
        number(w, r->end_ns - r->begin_ns);
        number(w, name);
#define X(type, field) number(w, (int64_t)r->field);
        PB_RANGE_FIELDS(X)
#undef X
        line(w);
        put_collective(w, "collective", -1, &r->of);
    }
}

/* The number of a place; nodes.h stores equal places once. */
static int64_t place_of(writer *w, const pb_range_stack *p)
{
    size_t i = 0;
    int64_t names[PB_RANGE_STACK_DEPTH];
    while (i < w->nplaces && w->places[i] != p) i++;
    if (i < w->nplaces) return (int64_t)i;
    w->places = more(w, w->places, w->nplaces, &w->places_room);
    for (int k = 0; k < p->depth; k++) names[k] = name_of(w, p->at[k].name);
    if (w->status != PB_OK) return 0;
    w->places[w->nplaces++] = p;
    pb_gzip_print(w->g, "place %d", p->depth);
    for (int k = 0; k < p->depth; k++) {
        pb_gzip_print(w->g, " %s", pb_range_kinds[p->at[k].kind]);
        number(w, names[k]);
        number(w, p->at[k].value);
        number(w, p->at[k].flops);
        number(w, p->at[k].bytes);
    }
    line(w);
    for (int k = 0; k < p->depth; k++) put_collective(w, "collective_of", k, &p->at[k].of);
    return (int64_t)i;
}

static void put_nodes(writer *w, const pb_node_note *notes, size_t n)
{
    for (size_t i = 0; i < n && w->status == PB_OK; i++) {
        const int64_t place = place_of(w, notes[i].place);
        pb_gzip_print(w->g, "node");
        number(w, (int64_t)notes[i].id);
        number(w, (int64_t)notes[i].original);
        number(w, place);
        line(w);
    }
}

static void put_event(writer *w, const pb_gpu_event *e)
{
    static const char *const words[] = {
#define X(kind, word) [kind] = word,
        PB_EVENT_KINDS(X)
#undef X
    };
    const int64_t name = name_of(w, e->name);
    pb_gzip_print(w->g, "%s", words[e->kind]);
    number(w, e->begin_ns - w->base);
    number(w, e->end_ns - e->begin_ns);
    number(w, name);
#define X(type, field) number(w, (int64_t)e->field);
    PB_EVENT_FIELDS(X)
#undef X
    line(w);
}

static void put_samples(writer *w, const pb_gpu_samples *s)
{
    int64_t names[PB_GROUP_METRICS], units[PB_GROUP_METRICS];
    if (!s->interval_us) return;
    for (int m = 0; m < s->metrics; m++)
        names[m] = name_of(w, s->metric[m].name), units[m] = name_of(w, s->metric[m].unit);
    if (w->status != PB_OK) return;
    pb_gzip_print(w->g, "sampled %" PRIu32 " %d %zu %zu %zu %d", s->device, s->interval_us, s->lost, s->outside,
                  s->overflows, s->metrics);
    for (int m = 0; m < s->metrics; m++) number(w, names[m]), number(w, units[m]);
    line(w);
    for (size_t i = 0; i < s->n; i++) {
        pb_gzip_print(w->g, "sample");
        number(w, s->sample[i].begin_ns - w->base);
        number(w, s->sample[i].end_ns - s->sample[i].begin_ns);
        for (int m = 0; m < s->metrics; m++)
            pb_gzip_print(w->g, " %.17g", s->value[i * (size_t)s->metrics + (size_t)m]);
        line(w);
    }
}

static void put_window(writer *w, const pb_ring_window *r, const pb_gpu_window *gpu)
{
    pb_gzip_print(w->g, "window %" PRId64 " %" PRId64 " %d %zu %.0f", r->begin_ns, r->end_ns, r->tsc, r->dropped,
                  r->stepped_ns);
    line(w);
    pb_gzip_print(w->g, "gpu %zu %zu", gpu->dropped, gpu->buffer_bytes);
    line(w);
}

pb_status pb_records_write(const pb_disk *d, const char *path, const pb_trace_about *about, const pb_ring_window *w,
                           const pb_gpu_window *gpu)
{
    pb_node_note *notes;
    size_t n;
    PB_TRY(pb_nodes_list(&notes, &n));
    pb_gzip *g = malloc(sizeof *g);
    pb_status s = g ? pb_gzip_open(d, path, g) : pb_fail(PB_ENOMEM, "%s: no memory to write it", path);
    if (s == PB_OK) {
        writer out = {.g = g, .path = path, .base = w->begin_ns};
        pb_gzip_print(g, "plumb-records %d", PB_RECORDS_FORMAT);
        line(&out);
        put_about(&out, about);
        put_window(&out, w, gpu);
        for (int i = 0; i < w->n; i++) put_thread(&out, &w->threads[i]);
        put_nodes(&out, notes, n);
        put_samples(&out, &gpu->samples);
        for (size_t i = 0; i < gpu->n && out.status == PB_OK; i++) put_event(&out, &gpu->events[i]);
        pb_gzip_print(g, "end %zu\n", out.lines);
        if (out.status != PB_OK) g->status = out.status;
        s = pb_gzip_close(g);
        free(out.names);
        free(out.places);
    }
    free(g);
    free(notes);
    return s;
}
