/* measured.c - reads the measured times of collectives and steps. */
#include "bench/project/measured.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"

static const struct source {
    const char *suite, *metric, *bytes, *dtype;
} sources[] = {
#define SOURCE(suite, metric, bytes, dtype) {suite, metric, bytes, dtype},
#include "bench/project/sources.def"
#undef SOURCE
};
enum { SOURCES = sizeof sources / sizeof *sources };

typedef struct reader {
    const pb_measured_opts *o;
    pb_measured *m;
    const pb_series_set *set; /* of the file that is being read */
} reader;

static pb_status no_memory(void) { return pb_fail(PB_ENOMEM, "project: out of memory"); }

/* ---- curves -------------------------------------------------------------------------------------- */

/* Writes the key of the case without the axes `ranks`, `hosts` and `axis`, which may be NULL. */
static void curve_key(const pb_case *c, const char *axis, char out[PB_KEY_TEXT])
{
    pb_case rest = *c;
    rest.n = 0;
    for (int i = 0; i < c->n; i++) {
        const char *name = c->axes[i].name;
        if (strcmp(name, "ranks") == 0 || strcmp(name, "hosts") == 0 || (axis && strcmp(name, axis) == 0)) continue;
        rest.axes[rest.n++] = c->axes[i];
    }
    pb_case_finish(&rest);
    snprintf(out, PB_KEY_TEXT, "%s", rest.key);
}

/* Finds the curve with this name, or adds it. NULL: out of memory. */
static pb_curve *curve_of(pb_measured *m, const char *name)
{
    for (int i = 0; i < m->n; i++)
        if (strcmp(m->curve[i].name, name) == 0) return &m->curve[i];
    pb_curve *more = realloc(m->curve, ((size_t)m->n + 1) * sizeof *more);
    const char *text = pb_intern(m->strings, name, strlen(name));
    if (more) m->curve = more;
    if (!more || !text) return NULL;
    more[m->n] = (pb_curve){.name = text, .op = PB_NCOLLECTIVES};
    return &more[m->n++];
}

static pb_status add_point(pb_measured *m, pb_curve *f, const char *key, pb_timed t)
{
    pb_timed_list *l = &f->points;
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->v[i].key, key) == 0) return pb_fail(PB_EINVAL, "project: two of the runs measured %s", key);
    if (l->n == l->room) {
        const int room = l->room ? 2 * l->room : 32;
        pb_timed *more = realloc(l->v, (size_t)room * sizeof *more);
        if (!more) return no_memory();
        l->v = more;
        l->room = room;
    }
    t.key = pb_intern(m->strings, key, strlen(key));
    if (!t.key) return no_memory();
    l->v[l->n++] = t;
    return PB_OK;
}

/* ---- axes ------------------------------------------------------------------------------------------ */

/* Reads a whole number from 1 to `most`; a missing axis is `missing`, or a fault if that is 0. */
static pb_status axis_count(const pb_case *c, const char *axis, long missing, long most, long *out)
{
    *out = missing;
    if (missing && !pb_case_get(c, axis)) return PB_OK;
    PB_TRY(pb_case_int(c, axis, out));
    return *out >= 1 && *out <= most
               ? PB_OK
               : pb_fail(PB_EINVAL, "project: %s: axis %s is %ld, need 1..%ld", c->key, axis, *out, most);
}

static pb_status place_of(const pb_case *c, long ranks_missing, pb_place *out)
{
    long ranks, hosts;
    PB_TRY(axis_count(c, "ranks", ranks_missing, INT_MAX, &ranks));
    PB_TRY(axis_count(c, "hosts", 1, INT_MAX, &hosts));
    *out = (pb_place){(int)hosts, (int)(ranks / hosts)};
    return ranks % hosts == 0
               ? PB_OK
               : pb_fail(PB_EINVAL, "project: %s: %ld ranks on %ld hosts: need as many on each", c->key, ranks, hosts);
}

/* The name that this program uses for a type of nccl-tests. */
static const char *dtype_name(const char *dtype)
{
    static const char *const other[][2] = {{"float", "f32"}, {"bfloat16", "bf16"}};
    for (int i = 0; dtype && i < 2; i++)
        if (strcmp(dtype, other[i][0]) == 0) return other[i][1];
    return dtype;
}

/* ---- reading --------------------------------------------------------------------------------------- */

static pb_status collective(const reader *r, const pb_series *s, const pb_case *c, const struct source *from)
{
    const pb_collective op = pb_collective_find(c->name);
    const char *dtype = dtype_name(pb_case_get(c, from->dtype));
    char name[PB_KEY_TEXT];
    long bytes;
    pb_place place;
    PB_TRY(axis_count(c, from->bytes, 0, LONG_MAX, &bytes));
    PB_TRY(place_of(c, 0, &place));
    if (!dtype) return pb_fail(PB_EINVAL, "project: %s has no axis %s", c->key, from->dtype);
    if (op == PB_NCOLLECTIVES || pb_place_ranks(place) < 2) {
        r->m->left_out++;
        return PB_OK;
    }
    if ((double)bytes < r->o->min_bytes) return PB_OK;
    curve_key(c, from->bytes, name);
    pb_curve *f = curve_of(r->m, name);
    if (!f) return no_memory();
    f->op = op;
    f->first = *c;
    f->dtype = pb_intern(r->m->strings, dtype, strlen(dtype));
    if (!f->dtype) return no_memory();
    return add_point(r->m, f, s->key, (pb_timed){.bytes = (double)bytes, .place = place, .seconds = s->median});
}

static pb_status step(const reader *r, const pb_series *s, const pb_case *c)
{
    const pb_series *backward = pb_series_find(r->set, s->key, "backward_time");
    const char *dtype = pb_case_get(c, "reduce") ? pb_case_get(c, "reduce") : "f32";
    char name[PB_KEY_TEXT];
    pb_place place;
    PB_TRY(place_of(c, 1, &place));
    if (!backward || !pb_series_ok(backward) || !(backward->median > 0)) {
        r->m->left_out++;
        return PB_OK;
    }
    curve_key(c, NULL, name);
    pb_curve *f = curve_of(r->m, name);
    if (!f) return no_memory();
    f->first = *c;
    f->dtype = pb_intern(r->m->strings, dtype, strlen(dtype));
    if (!f->dtype) return no_memory();
    return add_point(r->m, f, s->key, (pb_timed){.place = place, .seconds = s->median, .backward = backward->median});
}

/* The source of a measured collective; NULL: the series is not one. */
static const struct source *source_of(const pb_series *s)
{
    for (int i = 0; i < SOURCES; i++)
        if (pb_key_of(s->key, sources[i].suite) && strcmp(s->metric, sources[i].metric) == 0) return &sources[i];
    return NULL;
}

static bool selected(const pb_measured_opts *o, const char *key)
{
    bool yes = !o->nfilter;
    for (int i = 0; i < o->nfilter; i++) yes |= pb_key_matches(o->filter[i], key);
    return yes;
}

static pb_status add_series(const reader *r, const pb_series *s)
{
    const struct source *from = source_of(s);
    const bool is_step = pb_key_of(s->key, "throughput") && strcmp(s->metric, "step_time") == 0;
    pb_case c;
    if ((!from && !is_step) || !selected(r->o, s->key)) return PB_OK;
    if (!pb_series_ok(s) || !(s->median > 0)) {
        r->m->left_out++;
        return PB_OK;
    }
    if (s->mixed) return pb_fail(PB_EINVAL, "project: the rows of %s are of two machines or versions", s->key);
    if (!r->m->machine) r->m->machine = pb_intern(r->m->strings, s->machine_id, strlen(s->machine_id));
    if (!r->m->machine) return no_memory();
    if (strcmp(r->m->machine, s->machine_id) != 0 && !r->o->allow_mismatch)
        return pb_fail(PB_EINVAL, "project: rows of two machines, %s and %s; --allow-mismatch joins them",
                       r->m->machine, s->machine_id);
    PB_TRY(pb_case_parse(s->key, &c));
    return from ? collective(r, s, &c, from) : step(r, s, &c);
}

/* The point of one rank; NULL: none was measured. */
static const pb_timed *one_rank(const pb_curve *f)
{
    for (int i = 0; i < f->points.n; i++)
        if (pb_place_ranks(f->points.v[i].place) == 1) return &f->points.v[i];
    return NULL;
}

/* Gives each step without a point of one rank that of the same step without axis `reduce`, because one rank reduces
 * nothing. */
static pb_status share_one_rank(pb_measured *m)
{
    for (int i = 0; i < m->n; i++) {
        pb_curve *f = &m->curve[i];
        char name[PB_KEY_TEXT];
        if (f->op != PB_NCOLLECTIVES || one_rank(f)) continue;
        curve_key(&f->first, "reduce", name);
        for (int j = 0; j < m->n; j++) {
            const pb_timed *t = strcmp(m->curve[j].name, name) == 0 ? one_rank(&m->curve[j]) : NULL;
            if (t) PB_TRY(add_point(m, f, t->key, *t));
        }
    }
    return PB_OK;
}

static pb_status read_run(const char *path, const pb_measured_opts *o, pb_measured *m)
{
    pb_table t;
    pb_series_set set;
    PB_TRY(pb_table_read(path, &t));
    pb_status s = pb_series_make(&t, &set);
    if (s == PB_OK) {
        const reader r = {o, m, &set};
        for (size_t i = 0; i < set.n && s == PB_OK; i++) s = add_series(&r, &set.s[i]);
        pb_series_free(&set);
    }
    pb_table_free(&t);
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pb_curve *)a)->name, ((const pb_curve *)b)->name);
}

pb_status pb_measured_read(const char *const *runs, int n, const pb_measured_opts *o, pb_measured *out)
{
    *out = (pb_measured){.strings = pb_strings_new()};
    if (!out->strings) return no_memory();
    for (int i = 0; i < n; i++) PB_TRY(read_run(runs[i], o, out));
    PB_TRY(share_one_rank(out));
    if (out->n) qsort(out->curve, (size_t)out->n, sizeof *out->curve, by_name);
    return PB_OK;
}

void pb_measured_free(pb_measured *m)
{
    for (int i = 0; i < m->n; i++) free(m->curve[i].points.v);
    free(m->curve);
    pb_strings_free(m->strings);
    *m = (pb_measured){0};
}
