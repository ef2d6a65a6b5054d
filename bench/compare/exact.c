/* exact.c - compares the exact counters of a base and a candidate: matches them by key and metric, and writes the
 * notes. */
#define _GNU_SOURCE
#include "bench/compare/exact.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/compare/accepted.h"
#include "bench/compare/exact_rule.h"
#include "bench/compare/exact_store.h"
#include "bench/compare/kernel_lists.h"
#include "bench/compare/verdict_impl.h"

enum { MAX_SUITES = 32, SOURCES = 3, WHY = 640 };

typedef struct text {
    struct text *next;
    char why[WHY];
} text;

struct pb_exact {
    const char *baselines;
    char accepted_path[PB_PATH_TEXT];
    pb_accepted_list accepted;
    pb_exact_store store[MAX_SUITES];
    int stores;
    text *texts; /* reasons that verdicts point to */
    FILE *notes;
    char *notes_text;
    size_t notes_size;
    int equal, worse, better, excused, other, unsteady, foreign, unstored; /* numbers of counters by result */
    const char *against;                                                   /* the stored file, or NULL: two results */
};

/* Every row of an exact counter has this gate, so that renderers show it like a row that gates. */
static const pb_gate exact_gate = {.stored_limit = PB_DEFAULT_LIMIT, .gating = true, .gating_pairs = true};

pb_status pb_exact_open(const char *baselines, pb_exact **out)
{
    char today[16] = "";
    const time_t now = time(NULL);
    struct tm utc;
    pb_exact *x = calloc(1, sizeof *x);
    if (!x) return pb_fail(PB_ENOMEM, "compare: out of memory");
    if (gmtime_r(&now, &utc)) strftime(today, sizeof today, "%Y-%m-%d", &utc);
    x->baselines = pb_baseline_folder(baselines);
    snprintf(x->accepted_path, sizeof x->accepted_path, "%.1000s/accepted.csv", x->baselines);
    pb_status s = pb_accepted_read(x->accepted_path, today, &x->accepted);
    x->notes = s == PB_OK ? open_memstream(&x->notes_text, &x->notes_size) : NULL;
    if (s == PB_OK && !x->notes) s = pb_fail(PB_ENOMEM, "compare: out of memory");
    if (s != PB_OK) pb_exact_close(x);
    else *out = x;
    return s;
}

void pb_exact_close(pb_exact *x)
{
    if (!x) return;
    for (int i = 0; i < x->stores; i++) pb_exact_store_free(&x->store[i]);
    for (text *t = x->texts, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    pb_accepted_free(&x->accepted);
    if (x->notes) fclose(x->notes);
    free(x->notes_text);
    free(x);
}

int pb_exact_compared(const pb_exact *x) { return x->equal + x->worse + x->better + x->excused; }

const pb_series_set *pb_exact_base(const pb_exact *x)
{
    for (int i = 0; i < x->stores; i++)
        if (x->store[i].t.n) return x->store[i].same.n ? &x->store[i].same : &x->store[i].other;
    return NULL;
}

/* ---- one comparison of two sets ------------------------------------------------------------------- */

/* A set that may hold the base of a counter. */
typedef struct source {
    const pb_series_set *set;
    pb_exact_key key; /* exact key of the set */
} source;

typedef struct matching {
    pb_exact *x;
    const pb_series_set *cand;
    pb_exact_key key;     /* exact key of the candidate's run */
    source from[SOURCES]; /* in the order in which they are searched; .set NULL: none */
    pb_verdicts *vs;
} matching;

/* True if the series has a value. Throttled processes count too, because throttling does not change a counter. */
static bool counted(const pb_series *s)
{
    return s && (pb_series_ok(s) || pb_series_throttled(s)) && isfinite(s->median);
}

/* Finds the base of a counter. *comparable: the exact keys and bench_version agree; such a base is preferred. NULL: no
 * source has the counter. */
static const pb_series *base_of(const matching *m, const pb_series *c, bool *comparable)
{
    const pb_series *found = NULL;
    bool agree = false;
    for (int i = 0; i < SOURCES && !agree; i++) {
        const pb_series *b = m->from[i].set ? pb_series_find(m->from[i].set, c->key, c->metric) : NULL;
        if (!b || !counted(b)) continue;
        agree =
            pb_exact_keys_agree(&m->from[i].key, &m->key, c->metric) && strcmp(b->bench_version, c->bench_version) == 0;
        if (agree || !found) found = b;
    }
    *comparable = agree;
    return found;
}

static const char *list_of(const pb_series *s) { return counted(s) ? s->note : ""; }

/* Writes which kernels are launched more or less often than by the base; "" where a list is not known. Lists of two
 * instruction sets are compared by op. */
static void differing_kernels(const matching *m, const pb_series *c, char *out, size_t n)
{
    bool comparable;
    const pb_series *cand = pb_series_find(m->cand, c->key, "kernel_digest");
    const pb_series *base = cand ? base_of(m, cand, &comparable) : NULL;
    *out = 0;
    if (base) pb_kernel_lists_differ(list_of(base), list_of(cand), !comparable, out, n);
}

/* Returns room for the reason of a verdict, WHY bytes, which x owns. NULL: out of memory. */
static char *new_text(pb_exact *x)
{
    text *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->next = x->texts;
    x->texts = t;
    return t->why;
}

/* The number of a side. */
static double number(const pb_series *s) { return pb_exact_number_of(s, pb_exact_find(s->metric)).value; }

static pb_status append(const matching *m, pb_verdict v)
{
    v.gate = &exact_gate;
    PB_TRY(pb_verdicts_append(m->vs, v));
    if (v.counts) m->vs->count[v.id]++;
    return PB_OK;
}

static void say_kernels(const matching *m, const pb_series *c, char *why)
{
    char kernels[WHY / 2];
    const size_t n = strlen(why);
    differing_kernels(m, c, kernels, sizeof kernels);
    if (*kernels) snprintf(why + n, WHY - n, ": %s", kernels);
}

static void say_why(const matching *m, const pb_series *b, const pb_series *c, pb_verdict_id id, bool listed, char *why)
{
    const double was = number(b), is = number(c);
    switch (id) {
    case PB_VERDICT_INCONCLUSIVE:
        snprintf(why, WHY, "not exact: the processes of a side differ, %.17g to %.17g -> %.17g to %.17g", b->min,
                 b->max, c->min, c->max);
        return;
    case PB_VERDICT_REFERENCE:
        snprintf(why, WHY, "not comparable: machine, library, build or number of threads; %.15g -> %.15g", was, is);
        return;
    default:
        if (listed) snprintf(why, WHY, "as many launches, but of other kernels");
        else snprintf(why, WHY, "exact, %.15g -> %.15g (%+.10g)", was, is, is - was);
        say_kernels(m, c, why);
    }
}

static pb_status add_row(const matching *m, const pb_series *b, const pb_series *c, pb_verdict_id id, bool listed)
{
    char *why = new_text(m->x);
    if (!why) return pb_fail(PB_ENOMEM, "compare: out of memory");
    say_why(m, b, c, id, listed, why);
    const double was = number(b), is = number(c);
    const double ratio = was > 0 && is > 0 && !listed ? is / was : (double)NAN;
    return append(m, (pb_verdict){.base = b,
                                  .cand = c,
                                  .id = id,
                                  .ratio = ratio,
                                  .worse = ratio,
                                  .counts = id == PB_VERDICT_REGRESSED || id == PB_VERDICT_IMPROVED,
                                  .why = why});
}

/* True if accepted.csv accepts the rise; a note then says why. */
static bool excused(const matching *m, const pb_series *b, const pb_series *c)
{
    const double was = number(b), is = number(c);
    const pb_accepted *a = pb_accepted_find(&m->x->accepted, c->key, c->metric, was, is);
    if (!a || !(is > was)) return false;
    fprintf(m->x->notes, "note: accepted: %s of %s, %.15g -> %.15g: %s\n", c->metric, c->key, was, is, a->reason);
    return true;
}

/* True if the number of kernel launches or graph nodes changed in this case. The row of that counter lists the kernels,
 * so that the digest needs no row of its own. */
static bool launches_changed(const matching *m, const char *key)
{
    static const char *const metrics[] = {"kernel_launches", "graph_nodes"};
    bool comparable, changed = false;
    for (int i = 0; i < 2; i++) {
        const pb_series *c = pb_series_find(m->cand, key, metrics[i]);
        const pb_series *b = counted(c) ? base_of(m, c, &comparable) : NULL;
        if (b) changed |= pb_exact_verdict(b, c, pb_exact_find(metrics[i]), true) != PB_VERDICT_SAME;
    }
    return changed;
}

/* Returns the member of x that counts the counters with this verdict. */
static int *count_of(pb_exact *x, pb_verdict_id id, bool comparable, bool accepted)
{
    if (!comparable) return &x->foreign;
    if (accepted) return &x->excused;
    switch (id) {
    case PB_VERDICT_SAME: return &x->equal;
    case PB_VERDICT_REGRESSED: return &x->worse;
    case PB_VERDICT_IMPROVED: return &x->better;
    case PB_VERDICT_SUSPECT: return &x->other;
    default: return &x->unsteady;
    }
}

static pb_status match(const matching *m, const pb_series *c, const pb_exact_counter *counter)
{
    pb_exact *x = m->x;
    bool comparable;
    const pb_series *b = base_of(m, c, &comparable);
    if (!b) {
        x->unstored++;
        return PB_OK;
    }
    const bool accepted = comparable && excused(m, b, c);
    const pb_verdict_id id = pb_exact_verdict(b, c, counter, comparable);
    ++*count_of(x, id, comparable, accepted);
    if (id == PB_VERDICT_SAME || accepted || (counter->listed && launches_changed(m, c->key))) return PB_OK;
    return add_row(m, b, c, id, counter->listed);
}

/* ---- counters that the candidate lacks ---------------------------------------------------------------- */

/* True if the candidate counted what the base's counter b counts in the same case: the exact keys agree already. A run
 * of a metric group counts nothing but the events of its group, so any row of the case tells that it was counted. */
static bool case_was_counted(const matching *m, const pb_series *b)
{
    if (pb_exact_find(b->metric)->depends != PB_EXACT_ON_GROUP)
        return counted(pb_series_find(m->cand, b->key, "kernel_launches"));
    for (size_t i = 0; i < m->cand->n; i++)
        if (strcmp(m->cand->s[i].key, b->key) == 0) return true;
    return false;
}

static pb_status lost(const matching *m, const source *from)
{
    for (size_t i = 0; from->set && i < from->set->n; i++) {
        const pb_series *b = &from->set->s[i];
        if (!counted(b) || !pb_exact_keys_agree(&from->key, &m->key, b->metric)) continue;
        if (!case_was_counted(m, b) || pb_series_find(m->cand, b->key, b->metric)) continue;
        PB_TRY(append(m, (pb_verdict){.base = b,
                                      .id = PB_VERDICT_MISSING,
                                      .ratio = (double)NAN,
                                      .worse = (double)NAN,
                                      .counts = true,
                                      .why = "an exact counter that the candidate does not count"}));
    }
    return PB_OK;
}

/* ---- comparing two results, or a run with stored counters --------------------------------------------- */

/* Removes the rows of exact counters that pb_judge() made and that do not affect the exit code. */
static void drop_undecided(pb_verdicts *vs)
{
    size_t n = 0;
    for (size_t i = 0; i < vs->n; i++) {
        const pb_series *s = vs->v[i].cand ? vs->v[i].cand : vs->v[i].base;
        const bool ours = pb_exact_find(s->metric) && !vs->v[i].counts;
        if (!ours) vs->v[n++] = vs->v[i];
    }
    vs->n = n;
}

static pb_status match_all(const matching *m, const char *suite)
{
    for (size_t i = 0; i < m->cand->n; i++) {
        const pb_series *c = &m->cand->s[i];
        const pb_exact_counter *counter = pb_exact_find(c->metric);
        if (counter && counted(c) && (!suite || pb_key_of(c->key, suite))) PB_TRY(match(m, c, counter));
    }
    return lost(m, &m->from[0]);
}

static const char *machine_of(const pb_series_set *set) { return set->n ? set->s[0].machine_id : ""; }

pb_status pb_exact_two(pb_exact *x, const pb_series_set *base, const char *base_path, const pb_series_set *cand,
                       const char *cand_path, pb_verdicts *vs)
{
    matching m = {.x = x, .cand = cand, .from = {{.set = base}}, .vs = vs};
    pb_exact_key_of(base_path, machine_of(base), &m.from[0].key);
    pb_exact_key_of(cand_path, machine_of(cand), &m.key);
    drop_undecided(vs);
    return match_all(&m, NULL);
}

pb_status pb_exact_stored(pb_exact *x, const char *suite, const pb_series_set *sessions, const pb_series_set *cand,
                          const char *cand_path, pb_verdicts *vs)
{
    if (x->stores == MAX_SUITES) return PB_OK;
    matching m = {.x = x, .cand = cand, .vs = vs};
    pb_exact_store *store = &x->store[x->stores++];
    pb_exact_key_of(cand_path, machine_of(cand), &m.key);
    PB_TRY(pb_exact_store_read(x->baselines, suite, &m.key, store));
    m.from[0] = (source){&store->same, m.key};
    m.from[1].set = sessions;
    if (sessions) pb_exact_key_of("", machine_of(sessions), &m.from[1].key);
    m.from[2].set = &store->other;
    x->against = store->path;
    drop_undecided(vs);
    return match_all(&m, suite);
}

/* ---- writing the notes -------------------------------------------------------------------------------- */

static void note_stale(const pb_exact *x)
{
    for (int i = 0; i < x->accepted.n; i++) {
        const pb_accepted *a = &x->accepted.a[i];
        if (!a->compared || a->justified) continue;
        fprintf(x->notes, "note: %s:%d: ", x->accepted_path, a->line);
        if (a->expired) fprintf(x->notes, "expired after %s: remove the line\n", a->until);
        else
            fprintf(x->notes, "no %s rises from %.15g to %.15g any more: remove the line\n", a->metric, a->from, a->to);
    }
}

/* Prints ", 3 worse"; nothing for 0. */
static void say_count(FILE *f, int n, const char *what)
{
    if (n) fprintf(f, ", %d %s", n, what);
}

static const char *plural(int n) { return n == 1 ? " is" : "s are"; }

pb_status pb_exact_finish(pb_exact *x, const char **notes)
{
    FILE *f = x->notes;
    if (pb_exact_compared(x) + x->unsteady + x->other) {
        const char *against = x->against ? x->against : "";
        fprintf(f, "note: exact counters%s%s: %d equal", *against ? " against " : "", against, x->equal);
        say_count(f, x->worse, "worse");
        say_count(f, x->better, "better");
        say_count(f, x->excused, "worse and accepted");
        say_count(f, x->other, "with other kernels");
        say_count(f, x->unsteady, "that differ between processes");
        fputc('\n', f);
    }
    if (x->foreign)
        fprintf(f,
                "note: %d exact counter%s not comparable: machine, library, build or number of threads differ or are "
                "unknown\n",
                x->foreign, plural(x->foreign));
    if (x->unstored && x->against)
        fprintf(f, "note: %d exact counter%s not stored yet; `bench baseline counters` stores those of a run\n",
                x->unstored, plural(x->unstored));
    note_stale(x);
    if (fflush(f) != 0) return pb_fail(PB_ENOMEM, "compare: out of memory");
    *notes = x->notes_text;
    return PB_OK;
}
