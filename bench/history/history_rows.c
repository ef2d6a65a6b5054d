/* history_rows.c - reads sessions from baselines or run folders, and joins their values to rows. */
#include "bench/history/history_rows.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "bench/compare/compare.h"
#include "bench/exchange/exchange.h"
#include "bench/rows/rows.h"
#include "bench/text/text.h"
#include "cli/hint.h"
#include "os/text.h"

/* ---- selecting the rows to show ------------------------------------------------------------------- */

typedef struct reading {
    const pb_history_opts *o;
    pb_gates gates;
    pb_history_rows *h;
    const char *folder; /* name of the machine's folder that is being read; NULL: run folders are read */
    size_t seen;        /* rows that were read, selected or not */
} reading;

static bool matches_any(const pb_history_opts *o, const char *key)
{
    for (int i = 0; i < o->nkeys; i++)
        if (pb_key_matches(o->keys[i], key)) return true;
    return !o->nkeys;
}

static bool gates(const reading *r, const pb_series *s)
{
    const pb_gate *g = pb_gates_find(&r->gates, s->key, s->metric);
    return g->gating || g->gating_pairs;
}

static bool selected(const reading *r, const pb_series *s)
{
    const pb_history_opts *o = r->o;
    if (o->metric && strcmp(o->metric, s->metric) != 0) return false;
    if (!o->metric && !o->all && !gates(r, s)) return false;
    return matches_any(o, s->key) && (!o->machine || pb_key_matches(o->machine, s->machine_id));
}

/* Reads gates.csv if the options select no metrics, because then the gates select them. Otherwise checks the metric's
 * name. */
static pb_status read_gates(reading *r)
{
    if (!r->o->metric && !r->o->all) return pb_baseline_gates(r->o->baselines, r->o->gates, &r->gates);
    pb_hint hint = {.word = r->o->metric ? r->o->metric : ""};
    if (!r->o->metric || pb_metric_find(r->o->metric)) return PB_OK;
    for (const pb_metric *m = pb_metrics; m->name; m++) pb_hint_try(&hint, m->name);
    return pb_fail(PB_EINVAL, "history: '%.60s' is not a metric%s; bench list metrics shows all", r->o->metric,
                   pb_hint_text(&hint));
}

/* ---- reading the values of one file --------------------------------------------------------------- */

static pb_status add_value(pb_history_rows *h, pb_history_value v)
{
    if (h->values == h->room) {
        const size_t room = h->room ? 2 * h->room : 256;
        pb_history_value *more = realloc(h->value, room * sizeof *more);
        if (!more) return pb_fail(PB_ENOMEM, "history: out of memory");
        h->value = more;
        h->room = room;
    }
    h->value[h->values++] = v;
    return PB_OK;
}

/* The commit of a session: that of its first row. */
static const char *commit_of(const pb_table *t, const char *run_id)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].run_id == run_id) return strcmp(t->rows[i].commit, "unknown") ? t->rows[i].commit : "";
    return "";
}

static pb_status add_series(reading *r, const pb_table *t, const pb_series *s, const char *other_commit)
{
    for (int i = 0; i < s->sessions; i++) {
        const char *id = s->session[i].run_id, *commit = commit_of(t, id);
        PB_TRY(add_value(r->h, (pb_history_value){.machine_id = s->machine_id,
                                                  .key = s->key,
                                                  .metric = s->metric,
                                                  .unit = s->unit,
                                                  .better = s->better,
                                                  .bench_version = s->bench_version,
                                                  .run_id = id + (pb_stored(id) ? strlen(PB_BASELINE_RUN) : 0),
                                                  .commit = *commit ? commit : other_commit,
                                                  .value = s->session[i].value}));
    }
    return PB_OK;
}

/* True if the file holds sessions: it is of a run folder, or a baseline of the machine that its folder names. Other
 * files in the folder of the baselines hold no sessions, but runs that documents show, or exact counters. */
static bool has_sessions(const reading *r, const pb_table *t)
{
    if (!r->folder || !t->n) return true;
    return pb_stored(t->rows[0].run_id) && !strcmp(t->rows[0].machine_id, r->folder);
}

/* Adds the rows of a file. other_commit: the commit of rows that name none. The table is kept, because the values point
 * to its strings. */
static pb_status add_file(reading *r, const char *path, const char *other_commit)
{
    pb_series_set set;
    pb_history_rows *h = r->h;
    pb_table *more = realloc(h->table, ((size_t)h->tables + 1) * sizeof *more), *t;
    if (!more) return pb_fail(PB_ENOMEM, "history: out of memory");
    h->table = more;
    t = &h->table[h->tables];
    PB_TRY(pb_table_read(path, t));
    h->tables++;
    if (!has_sessions(r, t)) return PB_OK;
    PB_TRY(pb_series_make(t, &set));
    pb_status s = PB_OK;
    for (size_t i = 0; i < set.n && s == PB_OK; i++) {
        const pb_series *one = &set.s[i];
        if (pb_key_of(one->key, "requirement") || !pb_series_ok(one) || !one->sessions) continue;
        r->seen++;
        if (selected(r, one)) s = add_series(r, t, one, other_commit);
    }
    pb_series_free(&set);
    return s;
}

/* ---- finding the files in the folders of baselines or runs ---------------------------------------- */

static int not_hidden(const struct dirent *e) { return e->d_name[0] != '.' && pb_is_printable(e->d_name); }

/* Calls `each` for every entry of a folder, sorted by name, until it fails. */
static pb_status each_entry(reading *r, const char *folder, pb_status (*each)(reading *r, const char *path))
{
    struct dirent **entry;
    char path[PB_PATH_TEXT];
    pb_status s = PB_OK;
    const int n = scandir(folder, &entry, not_hidden, alphasort);
    if (n < 0) return pb_fail_errno(errno, "%s", folder);
    for (int i = 0; i < n; i++) {
        const int length = snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (s == PB_OK && length >= (int)sizeof path)
            s = pb_fail(PB_EINVAL, "the path is too long (%d characters)", length);
        if (s == PB_OK) s = each(r, path);
        free(entry[i]);
    }
    free(entry);
    return s;
}

/* Adds the file of a suite. gate_score.csv, which scripts/gate-score stores next to them, has other columns. */
static pb_status add_baseline(reading *r, const char *path)
{
    const char *dot = strrchr(path, '.'), *name = strrchr(path, '/') + 1;
    return dot && !strcmp(dot, ".csv") && strcmp(name, "gate_score.csv") != 0 ? add_file(r, path, "") : PB_OK;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static pb_status add_machine(reading *r, const char *path)
{
    r->folder = strrchr(path, '/') + 1;
    return is_folder(path) ? each_entry(r, path, add_baseline) : PB_OK;
}

/* The commit in the run.json of a run folder; "": the run has none. Results of older programs have it only there. */
static pb_status commit_of_run(reading *r, const char *folder, const char **out)
{
    char path[PB_PATH_TEXT + 16];
    struct stat st;
    json_t *about;
    *out = "";
    snprintf(path, sizeof path, "%s/run.json", folder);
    if (stat(path, &st) != 0) return PB_OK;
    PB_TRY(pb_json_read(path, &about));
    const char *commit = json_string_value(json_object_get(about, "commit"));
    if (commit && strcmp(commit, "unknown") != 0 && pb_is_printable(commit))
        *out = pb_intern(r->h->strings, commit, strlen(commit));
    json_decref(about);
    return *out ? PB_OK : pb_fail(PB_ENOMEM, "history: out of memory");
}

static pb_status add_run(reading *r, const char *path)
{
    char results[PB_PATH_TEXT + 16];
    struct stat st;
    const char *commit;
    snprintf(results, sizeof results, "%s/results.csv", path);
    if (stat(results, &st) != 0) return PB_OK; /* not a run, such as the folder of a comparison */
    PB_TRY(commit_of_run(r, path, &commit));
    return add_file(r, path, commit);
}

/* ---- making rows of the values -------------------------------------------------------------------- */

static int row_order(const pb_history_value *x, const pb_history_value *y)
{
    const int by_machine = strcmp(x->machine_id, y->machine_id);
    return by_machine ? by_machine : pb_series_order(x->key, x->metric, y->key, y->metric);
}

static int value_order(const void *a, const void *b)
{
    const pb_history_value *x = a, *y = b;
    const int by_row = row_order(x, y);
    return by_row ? by_row : strcmp(x->run_id, y->run_id);
}

/* Makes the row of the sorted values v[0..n). Values of other bench_versions than the newest one's are moved to the
 * front and left out. */
static pb_status add_row(pb_history_rows *h, pb_history_value *v, int n)
{
    int from = n;
    for (int i = 1; i < n; i++)
        if (strcmp(v[i].run_id, v[i - 1].run_id) == 0)
            return pb_fail(PB_EINVAL, "history: run %s is there twice, with %s of %s", v[i].run_id, v[i].metric,
                           v[i].key);
    for (int i = n - 1; i >= 0; i--)
        if (!strcmp(v[i].bench_version, v[n - 1].bench_version)) v[--from] = v[i];
    h->other_version += from;
    h->row[h->n++] = (pb_history_row){.v = v + from, .n = n - from};
    return PB_OK;
}

static pb_status find_changes(pb_history_row *row, const pb_change_rule *rule, double *x, pb_change_point *out)
{
    for (int i = 0; i < row->n; i++) x[i] = row->v[i].value;
    row->change = out;
    return pb_change_points(x, row->n, rule, out, &row->changes);
}

static pb_status make_rows(pb_history_rows *h, const pb_change_rule *rule)
{
    h->row = malloc((h->values + 1) * sizeof *h->row);
    h->change = malloc((h->values + 1) * sizeof *h->change);
    double *x = malloc((h->values + 1) * sizeof *x);
    pb_status s = h->row && h->change && x ? PB_OK : pb_fail(PB_ENOMEM, "history: out of memory");
    if (s == PB_OK && h->values) qsort(h->value, h->values, sizeof *h->value, value_order);
    for (size_t i = 0, end; i < h->values && s == PB_OK; i = end) {
        for (end = i + 1; end < h->values && !row_order(&h->value[i], &h->value[end]);) end++;
        s = add_row(h, &h->value[i], (int)(end - i));
        if (s == PB_OK) s = find_changes(&h->row[h->n - 1], rule, x, h->change + i);
    }
    free(x);
    return s;
}

static pb_status no_row(const reading *r)
{
    const char *from = r->o->runs ? r->o->runs : pb_baseline_folder(r->o->baselines);
    if (!r->seen && r->o->runs) return pb_fail(PB_EINVAL, "%s: the folder holds no run with a value", from);
    if (!r->seen) return pb_fail(PB_EINVAL, "%s: no stored session; `bench baseline update` adds one", from);
    return pb_fail(PB_EINVAL, "%s: none of %zu rows is selected%s", from, r->seen,
                   r->o->all || r->o->metric ? "" : "; --all selects also the metrics that do not gate");
}

pb_status pb_history_rows_read(const pb_history_opts *o, pb_history_rows *out)
{
    *out = (pb_history_rows){.strings = pb_strings_new()};
    reading *r = calloc(1, sizeof *r);
    pb_status s = r && out->strings ? PB_OK : pb_fail(PB_ENOMEM, "history: out of memory");
    if (s == PB_OK) {
        r->o = o;
        r->h = out;
        s = read_gates(r);
    }
    if (s == PB_OK)
        s = o->runs ? each_entry(r, o->runs, add_run) : each_entry(r, pb_baseline_folder(o->baselines), add_machine);
    if (s == PB_OK && !out->values) s = no_row(r);
    if (s == PB_OK) s = make_rows(out, &o->rule);
    free(r);
    return s;
}

void pb_history_rows_free(pb_history_rows *h)
{
    for (int i = 0; i < h->tables; i++) pb_table_free(&h->table[i]);
    free(h->table);
    free(h->value);
    free(h->row);
    free(h->change);
    if (h->strings) pb_strings_free(h->strings);
    *h = (pb_history_rows){0};
}

/* ---- text of sessions -------------------------------------------------------------------------------- */

bool pb_history_time(const char *run_id, char out[PB_HISTORY_TIME])
{
    struct tm utc;
    const bool known = pb_export_time(run_id, &utc);
    if (known) strftime(out, PB_HISTORY_TIME, "%Y-%m-%dT%H:%M:%SZ", &utc);
    else snprintf(out, PB_HISTORY_TIME, "%.39s", run_id);
    return known;
}

void pb_history_commits(const pb_history_row *r, const pb_change_point *c, char out[PB_HISTORY_COMMITS])
{
    const char *before = r->v[c->at - 1].commit, *after = r->v[c->at].commit;
    if (!*before || !*after) snprintf(out, PB_HISTORY_COMMITS, "unknown");
    else if (!strcmp(before, after)) snprintf(out, PB_HISTORY_COMMITS, "%.70s", after);
    else snprintf(out, PB_HISTORY_COMMITS, "%.70s..%.70s", before, after);
}
