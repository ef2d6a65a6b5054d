/* timeline.c - implements timeline.h: the data of the page are rows of events [begin, duration, name, depth, kind,
 * text], times in microseconds, names and kinds as numbers. */
#define _GNU_SOURCE
#include "bench/analyze/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/draft.h"

extern const unsigned char pb_timeline_page[]; /* timeline.html */
extern const size_t pb_timeline_page_bytes;

/* Kinds after those of ranges.h. */
enum { COMPUTE = PB_RANGE_KINDS, COMMUNICATION, MEMORY, GRAPH, KINDS };
static const char *const gpu_kinds[] = {"compute", "communication", "memory", "graph"};

typedef struct item {
    const pb_trace *trace;
    bool gpu;
    int64_t row; /* tid of a thread; lane of a stream */
    const char *name;
    double begin, end; /* seconds from the begin of the page */
    int kind, depth;
    const pb_gpu_span *span;
} item;

typedef struct page {
    FILE *f;
    item *items;
    size_t n, left_out;
    const char **names; /* [nnames] */
    size_t nnames;
} page;

/* As JSON, and so that the text cannot end the script in which it is. */
static void put_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c < 32 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&') fprintf(f, "\\u%04x", c);
        else fputc(c, f);
    }
    fputc('"', f);
}

static int by_length(const void *x, const void *y)
{
    const item *a = x, *b = y;
    const double la = a->end - a->begin, lb = b->end - b->begin;
    return la > lb ? -1 : la < lb;
}

static int by_row(const void *x, const void *y)
{
    const item *a = x, *b = y;
    if (a->trace->rank != b->trace->rank) return a->trace->rank < b->trace->rank ? -1 : 1;
    if (a->gpu != b->gpu) return a->gpu ? 1 : -1;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    if (a->begin < b->begin || a->begin > b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end > b->end ? -1 : a->end < b->end;
}

static bool same_row(const item *a, const item *b)
{
    return a->trace->rank == b->trace->rank && a->gpu == b->gpu && a->row == b->row;
}

static void list_items(const pb_profile_run *r, page *p)
{
    int64_t first = r->traces[0].begin_ns;
    for (size_t i = 0; i < r->n; i++) first = r->traces[i].begin_ns < first ? r->traces[i].begin_ns : first;
    for (size_t i = 0; i < r->n; i++) {
        const pb_trace *t = &r->traces[i];
        const double shift = 1e-9 * (double)(t->begin_ns - first);
        for (size_t k = 0; k < t->n; k++)
            p->items[p->n++] = (item){t,
                                      false,
                                      t->events[k].tid,
                                      t->events[k].name,
                                      t->events[k].begin + shift,
                                      t->events[k].end + shift,
                                      (int)t->events[k].kind,
                                      0,
                                      NULL};
        for (size_t k = 0; k < t->ngpu; k++) {
            const pb_gpu_span *g = &t->gpu[k];
            const int kind = g->graph                    ? GRAPH
                             : g->what == PB_WORK_KERNEL ? COMPUTE
                             : g->what == PB_WORK_MEMORY ? MEMORY
                                                         : COMMUNICATION;
            p->items[p->n++] = (item){t, true, g->lane, g->name, g->begin + shift, g->end + shift, kind, 0, g};
        }
    }
    if (p->n > PB_TIMELINE_MOST) {
        qsort(p->items, p->n, sizeof *p->items, by_length);
        p->left_out = p->n - PB_TIMELINE_MOST;
        p->n = PB_TIMELINE_MOST;
    }
    if (p->n) qsort(p->items, p->n, sizeof *p->items, by_row);
}

/* A range is one row below the innermost range that contains it. */
static void find_depths(page *p)
{
    enum { DEPTH = 64 };
    double open[DEPTH];
    int depth = 0;
    for (size_t i = 0; i < p->n; i++) {
        item *e = &p->items[i];
        if (i && !same_row(e, e - 1)) depth = 0;
        while (depth && open[depth - 1] <= e->begin + 0.5e-9) depth--; /* times are whole nanoseconds */
        e->depth = e->gpu ? 0 : depth;
        if (depth < DEPTH) open[depth++] = e->end;
    }
}

static int by_text(const void *x, const void *y) { return strcmp(*(const char *const *)x, *(const char *const *)y); }

static void list_names(page *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) p->names[i] = p->items[i].name;
    if (p->n) qsort(p->names, p->n, sizeof *p->names, by_text);
    for (size_t i = 0; i < p->n; i++)
        if (!n || strcmp(p->names[n - 1], p->names[i]) != 0) p->names[n++] = p->names[i];
    p->nnames = n;
}

static void put_event(const page *p, const item *e)
{
    const char **name = bsearch(&e->name, p->names, p->nnames, sizeof *p->names, by_text);
    fprintf(p->f, "[%.3f,%.3f,%zu,%d,%d", 1e6 * e->begin, 1e6 * (e->end - e->begin), (size_t)(name - p->names),
            e->depth, e->kind);
    if (e->span && e->span->op) {
        char text[200];
        snprintf(text, sizeof text, "op %.80s, phase %.80s", e->span->op, e->span->phase ? e->span->phase : "unknown");
        fputc(',', p->f);
        put_string(p->f, text);
    }
    fputc(']', p->f);
}

static void put_rows(const page *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const item *e = &p->items[i];
        char name[80];
        const bool begins = !i || !same_row(e, e - 1);
        if (begins) {
            snprintf(name, sizeof name, "rank %d, %s %lld%s", e->trace->rank, e->gpu ? "stream" : "thread",
                     (long long)(e->gpu ? e->row % 1000000 : e->row), e->gpu && e->row >= 1000000 ? " (overlap)" : "");
            fprintf(p->f, "%s\n{\"name\":", i ? "]}," : "");
            put_string(p->f, name);
            fprintf(p->f, ",\"events\":[");
        } else fputc(',', p->f);
        put_event(p, e);
    }
    if (p->n) fprintf(p->f, "]}");
}

static void put_data(const pb_profile_run *r, const page *p)
{
    char title[800];
    snprintf(title, sizeof title, "%s: %s", r->folder, r->why);
    fprintf(p->f, "{\"title\":");
    put_string(p->f, title);
    fprintf(p->f, ",\"left_out\":%zu,\"kinds\":[", p->left_out);
    for (int k = 0; k < KINDS; k++)
        fprintf(p->f, "%s\"%s\"", k ? "," : "", k < PB_RANGE_KINDS ? pb_range_kinds[k] : gpu_kinds[k - PB_RANGE_KINDS]);
    fprintf(p->f, "],\"names\":[");
    for (size_t i = 0; i < p->nnames; i++) {
        if (i) fputc(',', p->f);
        put_string(p->f, p->names[i]);
    }
    fprintf(p->f, "],\"rows\":[");
    put_rows(p);
    fprintf(p->f, "]}");
}

static pb_status write_page(const pb_profile_run *r, page *p, const char *path)
{
    static const char mark[] = "const data = ";
    char *text = NULL;
    size_t n = 0;
    const unsigned char *at =
        memmem(pb_timeline_page, pb_timeline_page_bytes, "const data = DATA;", sizeof mark - 1 + 5);
    const size_t before = (size_t)(at - pb_timeline_page) + sizeof mark - 1, after = before + 4;
    p->f = open_memstream(&text, &n);
    if (!p->f) return pb_fail(PB_ENOMEM, "%s: no memory to write it", path);
    fwrite(pb_timeline_page, 1, before, p->f);
    put_data(r, p);
    fwrite(pb_timeline_page + after, 1, pb_timeline_page_bytes - after, p->f);
    const bool bad = ferror(p->f) || fclose(p->f) != 0;
    const pb_status s = bad ? pb_fail(PB_ENOMEM, "%s: no memory to write it", path) : pb_file_replace(path, text, n);
    free(text);
    return s;
}

pb_status pb_timeline_write(const pb_profile_run *r, const char *path)
{
    page p = {0};
    size_t room = 1;
    if (!r->n) return pb_fail(PB_EINVAL, "%s: no trace to draw", r->folder);
    for (size_t i = 0; i < r->n; i++) room += r->traces[i].n + r->traces[i].ngpu;
    p.items = malloc(room * sizeof *p.items);
    p.names = malloc(room * sizeof *p.names);
    pb_status s = p.items && p.names ? PB_OK : pb_fail(PB_ENOMEM, "no memory to draw %zu events", room);
    if (s == PB_OK) {
        list_items(r, &p);
        find_depths(&p);
        list_names(&p);
        s = write_page(r, &p, path);
    }
    free(p.items);
    free(p.names);
    return s;
}
