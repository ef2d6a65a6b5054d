/* compare_runs.c - parses cases.txt: splits each line into words, and calls the function for its kind of line. */
#include "tests/bench/compare_runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/metric.h"
#include "os/file.h"

enum { MOST_WORDS = 24 };

typedef struct reader {
    char *at;       /* the next line */
    int line, next; /* numbers of the current line and of the next one */
    pb_compare_table *t;
} reader;

static pb_status refuse(const reader *r, const char *why, const char *what)
{
    return pb_fail(PB_EINVAL, "cases.txt:%d: %s: %s", r->line, why, what);
}

/* Makes room for one more item of a list of n, and clears it. */
static void *one_more(void *list, int n, size_t size)
{
    char *p = realloc(list, ((size_t)n + 1) * size);
    if (!p) abort();
    memset(p + (size_t)n * size, 0, size);
    return p;
}

/* ---- splitting the text into lines and words ------------------------------------------------------- */

/* Returns the next line, joined with the lines on which it continues; NULL after the last one. */
static char *next_line(reader *r)
{
    char *line = r->at, *end;
    if (!*line) return NULL;
    r->line = r->next++;
    while ((end = strchr(line, '\n')) && end > line && end[-1] == '\\') {
        const char *rest = end + 1 + strspn(end + 1, " ");
        memmove(end - 1, rest, strlen(rest) + 1);
        r->next++;
    }
    r->at = end ? end + 1 : line + strlen(line);
    if (end) *end = 0;
    return line;
}

/* Splits a line into words, up to a word that begins with #. Blanks between quotes are part of a word; quotes are
 * removed, except one that begins a word. The list ends with NULL. */
static pb_status split(const reader *r, char *line, char *word[MOST_WORDS])
{
    int n = 0;
    for (char *p = line + strspn(line, " "); *p && *p != '#'; p += strspn(p, " ")) {
        if (n == MOST_WORDS - 1) return refuse(r, "too many words", p);
        char *to = word[n++] = p;
        bool quoted = false;
        for (; *p && (quoted || *p != ' '); p++) {
            if (*p == '"') quoted = !quoted;
            if (*p != '"' || p == word[n - 1]) *to++ = *p;
        }
        if (*p) p++;
        *to = 0;
    }
    word[n] = NULL;
    return PB_OK;
}

static pb_status read_count(const reader *r, const char *text, int *out)
{
    char *end;
    const long n = strtol(text, &end, 10);
    if (*end || n < 1 || n > 1000) return refuse(r, "not a number from 1 to 1000", text);
    *out = (int)n;
    return PB_OK;
}

/* Returns VALUE of a word NAME=VALUE; NULL: the word does not begin with NAME=. */
static const char *named(const char *word, const char *name)
{
    const size_t n = strlen(name);
    return !strncmp(word, name, n) && word[n] == '=' ? word + n + 1 : NULL;
}

/* ---- parsing the rows of a run ---------------------------------------------------------------------- */

static const char *key_of(const reader *r, const char *word)
{
    for (int i = 0; i < r->t->nkeys; i++)
        if (!strcmp(r->t->keys[i].word, word)) return r->t->keys[i].key;
    return strchr(word, '/') || !strcmp(word, "*") ? word : NULL;
}

static pb_run_row *add_row(pb_made_run *run, const char *key, const char *metric)
{
    const pb_metric *m = metric ? pb_metric_find(metric) : NULL;
    run->rows = one_more(run->rows, run->n, sizeof *run->rows);
    pb_run_row *row = &run->rows[run->n++];
    row->key = key, row->metric = metric, row->samples = run->samples;
    if (m) row->unit = m->unit, row->better = m->better;
    return row;
}

static void set_number(pb_run_value *v, double x) { snprintf(v->text, sizeof v->text, "%.9g", x); }

static pb_status set_value(const reader *r, pb_run_value *v, const char *word, const char *note)
{
    const char *colon = strchr(word, ':');
    const int n = colon ? (int)(colon - word) : (int)strlen(word);
    const bool is_empty = n == 1 && *word == '-';
    char *end;
    if (note) v->note = note;
    if (*word == 'x' || *word == '/') {
        const double by = strtod(word + 1, &end), was = strtod(v->text, NULL);
        if (*end || !(by > 0) || !*v->text) return refuse(r, "neither times nor over a value", word);
        return set_number(v, *word == 'x' ? was * by : was / by), PB_OK;
    }
    if (n >= (int)sizeof v->text) return refuse(r, "a long value", word);
    snprintf(v->text, sizeof v->text, "%.*s", is_empty ? 0 : n, word);
    const double x = strtod(v->text, &end);
    if (*v->text && !*end && isfinite(x)) set_number(v, x);
    v->status = colon ? colon + 1 : "ok";
    if (!note) v->note = "";
    return PB_OK;
}

static pb_status set_attribute(const reader *r, const pb_made_run *run, pb_run_row *row, const char *word)
{
    const char *note = named(word, "note"), *samples = named(word, "samples"), *process = named(word, "process");
    const char *unit = named(word, "unit"), *better = named(word, "better");
    if (samples) row->samples = samples;
    if (process) row->process = process;
    if (unit) row->unit = unit;
    if (better) row->better = better;
    for (int i = 0; note && i < run->count; i++) row->v[i].note = note;
    return note || samples || process || unit || better ? PB_OK : refuse(r, "not an attribute of rows", word);
}

/* Parses the words of a row: one value per process or session, each with an optional "note, then attributes
 * NAME=VALUE. */
static pb_status set_row(const reader *r, const pb_made_run *run, pb_run_row *row, char *const *words)
{
    const char *value[PB_RUN_VALUES] = {NULL}, *note[PB_RUN_VALUES] = {NULL};
    int n = 0;
    for (char *const *w = words; *w; w++) {
        if (**w == '"' && n) note[n - 1] = *w + 1;
        else if (strchr(*w, '=')) continue;
        else if (n < run->count) value[n++] = *w;
        else return refuse(r, "more values than processes or sessions", *w);
    }
    if (n != 0 && n != 1 && n != run->count) return refuse(r, "too few values", row->metric);
    if (!n && !row->v[0].status) return refuse(r, "a new row without values", row->metric);
    for (int i = 0; n && i < run->count; i++)
        PB_TRY(set_value(r, &row->v[i], value[n > 1 ? i : 0], note[n > 1 ? i : 0]));
    for (char *const *w = words; *w; w++)
        if (**w != '"' && strchr(*w, '=')) PB_TRY(set_attribute(r, run, row, *w));
    return row->unit && row->better ? PB_OK : refuse(r, "a metric without unit and better", row->metric);
}

static pb_status change_rows(const reader *r, pb_made_run *run, const char *key, char *const *words)
{
    int changed = 0;
    for (int i = 0; i < run->n; i++) {
        pb_run_row *row = &run->rows[i];
        if ((strcmp(key, "*") != 0 && strcmp(key, row->key) != 0) || strcmp(words[0], row->metric) != 0) continue;
        PB_TRY(set_row(r, run, row, words + 1));
        changed++;
    }
    return changed ? PB_OK : refuse(r, "the other run has no such row of the key", words[0]);
}

static pb_status drop_rows(const reader *r, pb_made_run *run, const char *key)
{
    int n = 0;
    for (int i = 0; i < run->n; i++)
        if (strcmp(key, run->rows[i].key) != 0) run->rows[n++] = run->rows[i];
    if (n == run->n) return refuse(r, "the other run has no such row", key);
    run->n = n;
    return PB_OK;
}

static pb_status add_each(const reader *r, pb_made_run *run, int times, const char *key, char *const *words)
{
    for (int i = 1; i <= times; i++) {
        pb_run_row *row = add_row(run, key, words[0]);
        row->number = i;
        PB_TRY(set_row(r, run, row, words + 1));
        for (int k = 0; k < run->count; k++) set_number(&row->v[k], i * strtod(row->v[k].text, NULL));
    }
    return PB_OK;
}

static pb_status read_row(const reader *r, pb_made_run *run, char *const *w)
{
    const bool drop = !strcmp(w[0], "drop"), last = !strcmp(w[0], "+"), each = !strcmp(w[0], "each") && w[1];
    int times = 0;
    if (each) PB_TRY(read_count(r, w[1], &times));
    w += each ? 2 : drop || last;
    const char *key = w[0] ? key_of(r, w[0]) : NULL;
    if (!key) return refuse(r, "not a key", w[0] ? w[0] : "");
    if (drop) return drop_rows(r, run, key);
    if (!w[1]) return refuse(r, "no metric", key);
    if (each) return add_each(r, run, times, key, w + 1);
    if (run->inherits && !last) return change_rows(r, run, key, w + 1);
    pb_run_row *row = add_row(run, key, w[1]);
    row->last = last;
    return set_row(r, run, row, w + 2);
}

/* ---- parsing runs, keys and comparisons ---------------------------------------------------------------- */

static const pb_made_run *find_run(const reader *r, const char *name)
{
    for (int i = 0; i < r->t->nruns; i++)
        if (!strcmp(r->t->runs[i].name, name)) return &r->t->runs[i];
    return NULL;
}

/* Fills the run with a copy of run `other`, but with its own name and the run_id "r2". */
static pb_status inherit(const reader *r, pb_made_run *run, const char *other)
{
    const pb_made_run *from = find_run(r, other);
    if (!from) return refuse(r, "no such run above", other);
    const char *name = run->name;
    const size_t bytes = ((size_t)from->n + 1) * sizeof *run->rows;
    *run = *from;
    run->name = name, run->ids = "r2", run->inherits = true;
    run->rows = malloc(bytes);
    if (!run->rows) abort();
    memcpy(run->rows, from->rows, bytes - sizeof *run->rows);
    return PB_OK;
}

static pb_status set_run(const reader *r, pb_made_run *run, const char *word)
{
    const char *count = named(word, "count"), *id = named(word, "id"), *machine = named(word, "machine");
    const char *hosts = named(word, "host");
    const char *version = named(word, "version"), *samples = named(word, "samples"), *cut = named(word, "cut");
    const int most = run->count;
    if (id) run->ids = id;
    else if (machine) run->machine = machine;
    else if (version) run->versions = version;
    else if (hosts) run->hosts = hosts;
    else if (samples) run->samples = samples;
    else if (cut) return read_count(r, cut, &run->cut);
    else if (!strcmp(word, "layout=other")) run->other_layout = true;
    else if (!count) return refuse(r, "not an attribute of runs", word);
    if (count) PB_TRY(read_count(r, count, &run->count));
    return run->count <= most ? PB_OK : refuse(r, "more than the values", word);
}

static pb_status read_run(const reader *r, char *const *w)
{
    pb_compare_table *t = r->t;
    pb_made_run run = {
        .name = w[1], .machine = "m1", .samples = "0", .ids = "r1", .versions = PB_BENCH_VERSION, .hosts = r->t->host};
    run.sessions = !strcmp(w[0], "sessions"), run.file = !strcmp(w[0], "file");
    run.count = run.sessions ? PB_RUN_VALUES : 3;
    if (!run.name || find_run(r, run.name)) return refuse(r, "want a name of its own", run.name ? run.name : w[0]);
    const char *from = w[2] ? named(w[2], "from") : NULL;
    if (from) PB_TRY(inherit(r, &run, from));
    t->runs = one_more(t->runs, t->nruns, sizeof run);
    t->runs[t->nruns++] = run;
    for (w += from ? 3 : 2; *w; w++) PB_TRY(set_run(r, &t->runs[t->nruns - 1], *w));
    return PB_OK;
}

static pb_status read_key(const reader *r, char *const *w)
{
    pb_compare_table *t = r->t;
    if (!w[1] || !w[2]) return refuse(r, "key WORD KEY", "is meant");
    t->keys = one_more(t->keys, t->nkeys, sizeof *t->keys);
    t->keys[t->nkeys++] = (pb_key_word){w[1], w[2]};
    return PB_OK;
}

/* Returns the next field of a line, which ends at the character |, without the blanks around it. NULL: the line has no
 * more fields. */
static char *next_field(char **at)
{
    char *field = *at, *bar = field ? strchr(field, '|') : NULL;
    if (!field) return NULL;
    *at = bar ? bar + 1 : NULL;
    if (bar) *bar = 0;
    field += strspn(field, " ");
    for (char *end = field + strlen(field); end > field && end[-1] == ' ';) *--end = 0;
    return field;
}

static pb_status read_options(const reader *r, pb_comparison *c, char *const *w)
{
    for (; *w; w++) {
        const char *gates = named(*w, "--gates");
        const char *confirmed = named(*w, "--confirmed");
        if (gates) c->gates = gates;
        else if (confirmed) c->confirmed = confirmed;
        else if (!strcmp(*w, "--strict")) c->opts.strict = true;
        else if (!strcmp(*w, "--subset")) c->opts.subset = true;
        else if (!strcmp(*w, "--allow-mismatch")) c->opts.allow_mismatch = true;
        else if (!strcmp(*w, "--need-verdict")) c->opts.need_verdict = true;
        else if (!strcmp(*w, "--all")) c->opts.all = true;
        else if (!strcmp(*w, "--explain")) c->opts.explain = true;
        else return refuse(r, "not an option", *w);
    }
    return PB_OK;
}

static pb_status read_comparison(const reader *r, char *line)
{
    char *at = line, *what = next_field(&at), *ends = next_field(&at), *counts = next_field(&at), *w[MOST_WORDS];
    char *text = next_field(&at), *end = NULL;
    if (!text || at || strncmp(ends, "exit ", 5) != 0) return refuse(r, "want four fields", what);
    PB_TRY(split(r, what, w));
    if (!w[0] || !w[1] || !w[2]) return refuse(r, "want two runs", what);
    pb_comparison c = {.line = r->line, .against = !strcmp(w[0], "against"), .base = w[1], .cand = w[2]};
    c.gates = "gates", c.exit = (int)strtol(ends + 5, &end, 10);
    if (*end || end == ends + 5) return refuse(r, "not an exit code", ends);
    PB_TRY(read_options(r, &c, w + 3));
    c.counts = strcmp(counts, "error") != 0 ? counts : NULL;
    c.text = *text ? text : NULL;
    for (char *p; (p = strstr(text, "\\n"));) *p = '\n', memmove(p + 1, p + 2, strlen(p + 2) + 1);
    r->t->comparisons = one_more(r->t->comparisons, r->t->ncomparisons, sizeof c);
    r->t->comparisons[r->t->ncomparisons++] = c;
    return PB_OK;
}

static pb_status read_line(const reader *r, char *line)
{
    pb_made_run *run = r->t->nruns ? &r->t->runs[r->t->nruns - 1] : NULL;
    char *w[MOST_WORDS];
    if (*line == ' ' && run && run->file) return add_row(run, line + strspn(line, " "), NULL), PB_OK;
    if (!strncmp(line, "compare ", 8) || !strncmp(line, "against ", 8)) return read_comparison(r, line);
    const bool of_run = *line == ' ';
    PB_TRY(split(r, line, w));
    if (!w[0]) return PB_OK;
    if (of_run && run) return read_row(r, run, w);
    if (!strcmp(w[0], "key")) return read_key(r, w);
    if (!strcmp(w[0], "host") && w[1] && !w[2]) return r->t->host = w[1], PB_OK;
    if (!strcmp(w[0], "run") || !strcmp(w[0], "sessions") || !strcmp(w[0], "file")) return read_run(r, w);
    return refuse(r, "not a line of this file", w[0]);
}

pb_status pb_compare_table_read(const char *path, pb_compare_table *out)
{
    pb_map map;
    pb_status s = PB_OK;
    PB_TRY(pb_map_open(path, &map));
    *out = (pb_compare_table){.bytes = calloc(1, map.n + 1), .host = ""};
    if (!out->bytes) abort();
    memcpy(out->bytes, map.p, map.n);
    pb_map_close(&map);
    reader r = {.at = out->bytes, .next = 1, .t = out};
    for (char *line; s == PB_OK && (line = next_line(&r));) s = read_line(&r, line);
    if (s != PB_OK) pb_compare_table_free(out);
    return s;
}

void pb_compare_table_free(pb_compare_table *t)
{
    for (int i = 0; i < t->nruns; i++) free(t->runs[i].rows);
    free(t->runs);
    free(t->comparisons);
    free(t->keys);
    free(t->bytes);
    *t = (pb_compare_table){0};
}
