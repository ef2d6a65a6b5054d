/* records_read.c - pb_records_read() of records.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "trace/nodes.h"
#include "trace/records.h"
#include "trace/records_fields.h"

enum { LINE = 8192 };

/* A list that grows. */
typedef struct list {
    size_t n, room;
} list;

typedef struct reader {
    gzFile f;
    const char *path;
    char *text; /* [LINE]: the current line */
    char *at;   /* what is still to be read of it */
    size_t lines;
    bool bad, ended, no_memory;
    bool about, window, gpu; /* these lines were there */
    const char **names;
    pb_range_stack *places;
    list named, placed, ranged, threads, events, sampled, values; /* ranged: the ranges of the last thread */
    pb_records *out;
} reader;

/* Makes room for one more item in *items, whose list is l, and clears it. Returns it, or NULL without memory. */
static void *add(reader *r, void *items, list *l, size_t size)
{
    void **at = items;
    if (l->n == l->room) {
        const size_t want = l->room ? 2 * l->room : 64;
        void *more = realloc(*at, want * size);
        if (!more) r->no_memory = true;
        if (!more) return NULL;
        *at = more;
        l->room = want;
    }
    void *item = (char *)*at + l->n++ * size;
    memset(item, 0, size);
    return item;
}

/* ---- the parts of a line ------------------------------------------------------------------------- */

static int64_t number(reader *r)
{
    char *end = r->at;
    errno = 0;
    const long long v = *r->at == ' ' ? strtoll(r->at + 1, &end, 10) : 0;
    if (end == r->at || r->at[1] == ' ' || errno) r->bad = true;
    r->at = end;
    return v;
}

/* A number from 0 to limit - 1. */
static size_t index_below(reader *r, size_t limit)
{
    const int64_t v = number(r);
    if (v >= 0 && (uint64_t)v < limit) return (size_t)v;
    r->bad = true;
    return 0;
}

static size_t count(reader *r) { return index_below(r, (size_t)INT64_MAX); }

static const char *name(reader *r)
{
    const size_t i = index_below(r, r->named.n);
    return r->bad ? "" : r->names[i];
}

/* Takes the next word if it is `word`. */
static bool is_word(reader *r, const char *word)
{
    const size_t n = strlen(word);
    if (strncmp(r->at, word, n) != 0 || (r->at[n] != ' ' && r->at[n])) return false;
    r->at += n;
    return true;
}

static pb_range_kind range_kind(reader *r)
{
    if (*r->at == ' ') r->at++;
    for (int k = 0; k < PB_RANGE_KINDS; k++)
        if (is_word(r, pb_range_kinds[k])) return (pb_range_kind)k;
    r->bad = true;
    return PB_RANGE_work;
}

/* ---- lines --------------------------------------------------------------------------------------- */

static void read_name(reader *r)
{
    const char **n = add(r, &r->names, &r->named, sizeof *n);
    if (*r->at == ' ') r->at++;
    if (n && !(*n = pb_range_name(r->at))) r->no_memory = true;
    r->at += strlen(r->at);
}

static void read_about(reader *r)
{
    pb_trace_about *a = &r->out->about;
    a->rank = (int)index_below(r, INT32_MAX);
    a->ranks = (int)index_below(r, INT32_MAX);
    a->first_step = number(r);
    a->last_step = number(r);
    a->truncated = index_below(r, 2);
    a->topology = name(r);
    a->version = name(r);
    a->backend = name(r);
    a->device = name(r);
    a->host = "recorded";
    r->bad = r->bad || r->about || a->rank >= a->ranks;
    r->about = true;
}

static void read_window(reader *r)
{
    pb_ring_window *w = &r->out->ranges;
    w->begin_ns = number(r);
    w->end_ns = number(r);
    w->tsc = index_below(r, 2);
    w->dropped = count(r);
    w->stepped_ns = (double)number(r);
    r->bad = r->bad || r->window;
    r->window = true;
}

static void read_gpu(reader *r)
{
    r->out->gpu.dropped = count(r);
    r->out->gpu.buffer_bytes = count(r);
    r->bad = r->bad || r->gpu;
    r->gpu = true;
}

static void read_thread(reader *r)
{
    pb_ring_thread *t = add(r, &r->out->ranges.threads, &r->threads, sizeof *t);
    if (!t) return;
    t->tid = (int)index_below(r, INT32_MAX);
    t->dropped = count(r);
    r->out->ranges.n = (int)r->threads.n;
    r->ranged = (list){0};
}

static void read_range(reader *r)
{
    pb_ring_thread *t = r->threads.n ? &r->out->ranges.threads[r->threads.n - 1] : NULL;
    pb_ring_record *x = t ? add(r, &t->records, &r->ranged, sizeof *x) : NULL;
    r->bad = r->bad || !t || !r->window;
    if (!x || r->bad) return;
    t->n = r->ranged.n;
    x->kind = range_kind(r);
    x->begin_ns = r->out->ranges.begin_ns + number(r);
    x->end_ns = x->begin_ns + number(r);
    x->name = name(r);
#define X(type, field)                                                                                                 \
    {                                                                                                                  \
        const int64_t v = number(r);                                                                                   \
        x->field = (type)v;                                                                                            \
        r->bad = r->bad || (int64_t)x->field != v;                                                                     \
    }
    PB_RANGE_FIELDS(X)
}

static void read_place(reader *r)
{
    pb_range_stack *p = add(r, &r->places, &r->placed, sizeof *p);
    if (!p) return;
    p->depth = (int)index_below(r, PB_RANGE_STACK_DEPTH + 1);
    for (int i = 0; i < p->depth; i++) {
        p->at[i].kind = range_kind(r);
        p->at[i].name = name(r);
        p->at[i].value = number(r);
        p->at[i].flops = number(r);
        p->at[i].bytes = number(r);
    }
}

static void read_note(reader *r, pb_range_collective *c)
{
    c->group = name(r);
    c->dtype = name(r);
    c->ranks = (int)index_below(r, INT32_MAX);
    c->number = number(r);
}

static void read_collective(reader *r)
{
    pb_ring_thread *t = r->threads.n ? &r->out->ranges.threads[r->threads.n - 1] : NULL;
    r->bad = !t || !t->n || t->records[t->n - 1].kind != PB_RANGE_collective;
    if (!r->bad) read_note(r, &t->records[t->n - 1].of);
}

static void read_collective_of(reader *r)
{
    pb_range_stack *p = r->placed.n ? &r->places[r->placed.n - 1] : NULL;
    const size_t at = index_below(r, p ? (size_t)p->depth : 0);
    if (!r->bad) read_note(r, &p->at[at].of);
}

static void read_node(reader *r)
{
    const uint64_t id = (uint64_t)number(r), original = (uint64_t)number(r);
    const size_t place = index_below(r, r->placed.n);
    if (r->bad) return;
    if (original) pb_nodes_copy(id, original);
    else pb_nodes_add(id, &r->places[place]);
}

static void read_event(reader *r, pb_gpu_kind kind)
{
    pb_gpu_event *x = add(r, &r->out->gpu.events, &r->events, sizeof *x);
    r->bad = r->bad || !r->window;
    if (!x) return;
    r->out->gpu.n = r->events.n;
    x->kind = kind;
    x->begin_ns = r->out->ranges.begin_ns + number(r);
    x->end_ns = x->begin_ns + number(r);
    x->name = name(r);
    PB_EVENT_FIELDS(X)
#undef X
}

/* Copies a name into a member of n bytes. */
static void read_text(reader *r, char *to, size_t n)
{
    if ((size_t)snprintf(to, n, "%s", name(r)) >= n) r->bad = true;
}

static void read_sampled(reader *r)
{
    pb_gpu_samples *s = &r->out->gpu.samples;
    r->bad = r->bad || s->interval_us;
    s->device = (uint32_t)index_below(r, UINT32_MAX);
    s->interval_us = (int)index_below(r, INT32_MAX);
    s->lost = count(r);
    s->outside = count(r);
    s->overflows = count(r);
    s->metrics = (int)index_below(r, PB_GROUP_METRICS + 1);
    r->bad = r->bad || !s->interval_us;
    for (int m = 0; m < s->metrics; m++) {
        read_text(r, s->metric[m].name, sizeof s->metric[m].name);
        read_text(r, s->metric[m].unit, sizeof s->metric[m].unit);
    }
}

static void read_value(reader *r, double *v)
{
    char *end = r->at;
    *v = *r->at == ' ' ? strtod(r->at + 1, &end) : 0;
    if (end == r->at || r->at[1] == ' ') r->bad = true;
    r->at = end;
}

static void read_sample(reader *r)
{
    pb_gpu_samples *s = &r->out->gpu.samples;
    pb_gpu_sample *x = add(r, &s->sample, &r->sampled, sizeof *x);
    r->bad = r->bad || !r->window || !s->interval_us;
    if (!x || r->bad) return;
    x->begin_ns = r->out->ranges.begin_ns + number(r);
    x->end_ns = x->begin_ns + number(r);
    for (int m = 0; m < s->metrics; m++) {
        double *v = add(r, &s->value, &r->values, sizeof *v);
        if (!v) return;
        read_value(r, v);
    }
    s->n = r->sampled.n;
}

static void read_end(reader *r)
{
    r->bad = count(r) != r->lines || !r->about || !r->window || !r->gpu;
    r->ended = true;
}

static void read_line(reader *r)
{
    static const struct {
        const char *word;
        void (*read)(reader *r);
    } lines[] = {{"range", read_range},
                 {"name", read_name},
                 {"node", read_node},
                 {"place", read_place},
                 {"about", read_about},
                 {"window", read_window},
                 {"gpu", read_gpu},
                 {"sample", read_sample},
                 {"sampled", read_sampled},
                 {"thread", read_thread},
                 {"end", read_end},
                 {"collective", read_collective},
                 {"collective_of", read_collective_of}};
    static const struct {
        const char *word;
        pb_gpu_kind kind;
    } events[] = {
#define X(kind, word) {word, kind},
        PB_EVENT_KINDS(X)
#undef X
    };
    r->bad = r->ended; /* a line after the last one */
    for (size_t i = 0; !r->bad && i < sizeof events / sizeof *events; i++)
        if (is_word(r, events[i].word)) {
            read_event(r, events[i].kind);
            r->bad = r->bad || *r->at;
            return;
        }
    for (size_t i = 0; !r->bad && i < sizeof lines / sizeof *lines; i++)
        if (is_word(r, lines[i].word)) {
            lines[i].read(r);
            r->bad = r->bad || *r->at;
            return;
        }
    r->bad = true;
}

/* ---- the file ------------------------------------------------------------------------------------ */

/* False: the file has ended, or cannot be read. */
static bool next_line(reader *r)
{
    if (!gzgets(r->f, r->text, LINE)) return false;
    const size_t n = strlen(r->text);
    r->bad = !n || r->text[n - 1] != '\n';
    if (!r->bad) r->text[n - 1] = 0;
    r->at = r->text;
    return true;
}

static pb_status check_format(reader *r)
{
    char want[32];
    snprintf(want, sizeof want, "plumb-records %d", PB_RECORDS_FORMAT);
    if (!next_line(r) || r->bad || strncmp(r->text, "plumb-records ", 14) != 0)
        return pb_fail(PB_EINVAL, "%s: not a file of records", r->path);
    if (strcmp(r->text, want) != 0)
        return pb_fail(PB_EINVAL, "%s: records of format %.20s, this program reads %d", r->path, r->text + 14,
                       PB_RECORDS_FORMAT);
    return PB_OK;
}

static pb_status read_lines(reader *r)
{
    int error;
    PB_TRY(check_format(r));
    for (r->lines = 1; !r->no_memory && next_line(r); r->lines++) {
        if (!r->bad) read_line(r);
        if (r->bad) return pb_fail(PB_EINVAL, "%s: line %zu is not one of a file of records", r->path, r->lines + 1);
    }
    if (r->no_memory) return pb_fail(PB_ENOMEM, "%s: no memory to read it", r->path);
    (void)gzerror(r->f, &error);
    if (error != Z_OK || !r->ended) return pb_fail(PB_EINVAL, "%s: the file is cut off or damaged", r->path);
    return PB_OK;
}

pb_status pb_records_read(const char *path, pb_records *out)
{
    *out = (pb_records){0};
    reader r = {.path = path, .out = out, .f = gzopen(path, "rb")};
    if (!r.f) return pb_fail_errno(errno, "%s", path);
    r.text = malloc(LINE);
    const pb_status s = r.text ? read_lines(&r) : pb_fail(PB_ENOMEM, "%s: no memory to read it", path);
    (void)gzclose(r.f);
    free(r.text);
    free(r.names);
    free(r.places);
    if (s != PB_OK) pb_records_free(out);
    return s;
}

void pb_records_free(pb_records *r)
{
    pb_ring_free(&r->ranges);
    pb_gpu_free(&r->gpu);
}
