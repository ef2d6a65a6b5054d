/* import_nvbench.c - reads nvbench's results: CSV, whose columns are axes, "Skipped" and then summaries, or JSON. */
#include <csv.h>
#include <stdlib.h>
#include <string.h>

#include "bench/exchange/import.h"

/* The summaries that are imported: tag in JSON, column in CSV ("": CSV has none), and metric of metrics.def. */
static const struct summary {
    const char *tag, *column, *metric;
} summaries[] = {
    {"nv/cold/time/gpu/mean", "GPU Time (sec)", "gpu_time"},
    {"nv/cold/time/cpu/mean", "CPU Time (sec)", "cpu_time"},
    {"nv/cpu_only/time/cpu/mean", "", "cpu_time"},
    {"nv/batch/time/gpu/mean", "Batch GPU (sec)", "batch_gpu_time"},
    {"nv/cold/bw/item_rate", "Elem/s (elem/sec)", "item_rate"},
    {"nv/cpu_only/bw/item_rate", "", "item_rate"},
    {"nv/cold/bw/global/bytes_per_second", "GlobalMem BW (bytes/sec)", "memory_rate"},
    {"nv/cpu_only/bw/global/bytes_per_second", "", "memory_rate"},
    {"nv/cold/bw/global/utilization", "BWUtil", "memory_share"},
};
enum { NSUMMARIES = sizeof summaries / sizeof *summaries, MAX_COLUMNS = 256, MAX_LINE = 64 << 10 };

static pb_status open_case(const pb_import *im, size_t line, const char *benchmark, const char *device, pb_case *c)
{
    *c = (pb_case){.suite = "nvbench"};
    PB_TRY(pb_import_word(im, line, benchmark, c->name));
    return *device ? pb_import_axis(im, line, c, "device", device) : PB_OK;
}

/* ---- reading the CSV of nvbench -------------------------------------------------------------------- */

typedef enum kind { BENCHMARK, DEVICE, DEVICE_NAME, AXIS, SKIPPED, SAMPLES, FIGURE, OTHER, UNKNOWN } kind;

typedef struct table {
    pb_import *im;
    pb_status status;
    size_t line;
    int n, fields;                 /* n: columns of the header; fields: fields of the current line so far */
    bool header;                   /* the header has been read */
    const char *text[MAX_COLUMNS]; /* fields of the current line; interned */
    struct column {
        const char *name, *metric; /* name of the column; its metric if the kind is FIGURE */
        kind kind;
    } column[MAX_COLUMNS];
    /* name of the first row's benchmark. In its rows all columns after "Skipped" are summaries; other benchmarks may
     * have axes there that the first one lacks */
    const char *first;
} table;

static void on_field(void *bytes, size_t n, void *self)
{
    table *t = self;
    if (t->fields < MAX_COLUMNS) t->text[t->fields] = pb_intern(t->im->text, bytes ? bytes : "", bytes ? n : 0);
    if (t->fields < MAX_COLUMNS && !t->text[t->fields]) t->status = pb_fail(PB_ENOMEM, "import: out of memory");
    t->fields++;
}

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static int find_column(const table *t, const char *name)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->column[i].name, name)) return i;
    return -1;
}

/* Returns the kind of a column after "Skipped". Sets c->metric if the column is imported. */
static kind summary_kind(struct column *c)
{
    static const char *const units[] = {" (sec)", " (elem/sec)", " (bytes)", " (bytes/sec)"};
    for (int i = 0; i < NSUMMARIES; i++)
        if (!strcmp(summaries[i].column, c->name)) {
            c->metric = summaries[i].metric;
            return FIGURE;
        }
    for (int i = 0; i < 4; i++)
        if (ends_in(c->name, units[i])) return OTHER;
    return !strcmp(c->name, "Samples") ? SAMPLES : !strcmp(c->name, "Noise") ? OTHER : UNKNOWN;
}

static pb_status header_line(table *t)
{
    bool skipped = false;
    if (t->fields > MAX_COLUMNS) return pb_import_bad(t->im, t->line, "more than 256 columns", "");
    t->n = t->fields;
    for (int i = 0; i < t->n; i++) t->column[i].name = t->text[i];
    for (int i = 0; i < t->n; i++) {
        struct column *c = &t->column[i];
        char plain[MAX_COLUMNS];
        snprintf(plain, sizeof plain, "%.*s", (int)strcspn(c->name, " "), c->name);
        /* pretty: this column repeats another column's number as a power of two */
        bool pretty = ends_in(c->name, " (pow2)") && find_column(t, plain) >= 0;
        c->kind = !strcmp(c->name, "Benchmark")     ? BENCHMARK
                  : !strcmp(c->name, "Device")      ? DEVICE
                  : !strcmp(c->name, "Device Name") ? DEVICE_NAME
                  : !strcmp(c->name, "Skipped")     ? SKIPPED
                  : skipped                         ? summary_kind(c)
                  : pretty                          ? OTHER
                                                    : AXIS;
        skipped |= c->kind == SKIPPED;
    }
    if (!skipped || find_column(t, "Benchmark") < 0 || find_column(t, "Device Name") < 0)
        return pb_import_bad(t->im, t->line, "not nvbench's CSV: it has no columns Benchmark, Device Name, Skipped",
                             "");
    t->header = true;
    return PB_OK;
}

static const char *cell(const table *t, const char *name)
{
    int i = find_column(t, name);
    return i < 0 ? "" : t->text[i];
}

/* Adds the axes of a row to the case. Fails on a column after "Skipped" with an unknown name in a later benchmark: the
 * CSV does not tell whether it is an axis or a summary of that benchmark. */
static pb_status row_axes(const table *t, const char *benchmark, pb_case *c)
{
    for (int i = 0; i < t->n; i++) {
        const struct column *x = &t->column[i];
        if (!*t->text[i]) continue;
        if (x->kind == AXIS) PB_TRY(pb_import_axis(t->im, t->line, c, x->name, t->text[i]));
        if (x->kind == UNKNOWN && strcmp(benchmark, t->first) != 0)
            return pb_import_bad(
                t->im, t->line,
                "the CSV does not say whether this is an axis or a summary (import the JSON): ", x->name);
        t->im->left_out += x->kind == UNKNOWN;
    }
    return PB_OK;
}

static pb_status row_figures(const table *t, const pb_case *c, const char *machine)
{
    long long samples = 0;
    int taken = 0;
    for (int i = 0; i < t->n; i++) {
        const struct column *x = &t->column[i];
        if (x->kind == SAMPLES) /* the number of samples holds for the summaries in the following columns */
            samples = *t->text[i] ? strtoll(t->text[i], NULL, 10) : 0;
        if (x->kind != FIGURE || !*t->text[i]) continue;
        PB_TRY(pb_import_figure(t->im, t->line, c, machine, x->metric, 1, t->text[i], samples < 0 ? 0 : samples, ""));
        taken++;
    }
    return taken ? PB_OK
                 : pb_import_outcome(t->im, t->line, c, machine, "outcome", PB_ROW_FAILED, "no summary has a value");
}

static pb_status row_line(table *t)
{
    pb_case c;
    const char *benchmark = cell(t, "Benchmark"), *skipped = cell(t, "Skipped");
    if (t->fields != t->n) {
        char counts[64];
        snprintf(counts, sizeof counts, "%d fields where the header has %d", t->fields, t->n);
        return pb_import_bad(t->im, t->line, counts, "");
    }
    if (!t->first) t->first = benchmark;
    const char *machine = pb_import_machine(t->im, 1, cell(t, "Device Name"));
    PB_TRY(open_case(t->im, t->line, benchmark, cell(t, "Device"), &c));
    PB_TRY(row_axes(t, benchmark, &c));
    if (!strcmp(skipped, "Yes"))
        return pb_import_outcome(t->im, t->line, &c, machine, "outcome", PB_ROW_UNSUPPORTED,
                                 "skipped; the CSV does not say why");
    if (strcmp(skipped, "No") != 0) return pb_import_bad(t->im, t->line, "Skipped must be Yes or No, not ", skipped);
    return row_figures(t, &c, machine);
}

static void on_row(int terminator, void *self)
{
    table *t = self;
    (void)terminator;
    if (t->status == PB_OK && t->fields) t->status = t->header ? row_line(t) : header_line(t);
    t->fields = 0;
}

static pb_status read_csv(pb_import *im, const char *bytes, size_t n)
{
    struct csv_parser csv;
    table *t = calloc(1, sizeof *t);
    if (!t || csv_init(&csv, CSV_STRICT | CSV_STRICT_FINI | CSV_APPEND_NULL)) {
        free(t);
        return pb_fail(PB_ENOMEM, "import: out of memory");
    }
    t->im = im;
    for (t->line = 1; n && t->status == PB_OK; t->line++) {
        const char *end = memchr(bytes, '\n', n);
        size_t len = end ? (size_t)(end - bytes) + 1 : n;
        if (!end) t->status = pb_import_bad(im, t->line, "cut off: the last line has no newline", "");
        else if (len > MAX_LINE) t->status = pb_import_bad(im, t->line, "a line of more than 64 KiB", "");
        else if (csv_parse(&csv, bytes, len, on_field, on_row, t) != len)
            t->status = pb_import_bad(im, t->line, "a quote out of place", "");
        bytes += len;
        n -= len;
    }
    if (t->status == PB_OK && csv_fini(&csv, on_field, on_row, t) != 0)
        t->status = pb_import_bad(im, t->line - 1, "a quote is never closed", "");
    csv_free(&csv);
    pb_status s = t->status;
    free(t);
    return s;
}

/* ---- reading the JSON of nvbench ------------------------------------------------------------------- */

/* A state's position in the document, benchmarks[b].states[s], for messages. */
typedef struct place {
    pb_import *im;
    const json_t *devices;
    const char *benchmark;
    size_t b, s;
} place;

static pb_status bad(const place *p, const char *what, const char *detail)
{
    char text[160];
    snprintf(text, sizeof text, "benchmarks[%zu].states[%zu]: %s", p->b, p->s, what);
    return pb_import_bad(p->im, 0, text, detail);
}

static const char *string_of(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));
    return text ? text : "";
}

/* Returns the value of a summary, which nvbench writes as text. "": it has no value. */
static const char *summary_value(const json_t *summary)
{
    size_t i;
    json_t *d;
    json_array_foreach(json_object_get(summary, "data"), i,
                       d) if (!strcmp(string_of(d, "name"), "value")) return string_of(d, "value");
    return "";
}

static const json_t *find_summary(const json_t *state, const char *tag)
{
    size_t i;
    json_t *s;
    json_array_foreach(json_object_get(state, "summaries"), i, s) if (!strcmp(string_of(s, "tag"), tag)) return s;
    return NULL;
}

/* Returns the number of samples of a summary: for "nv/cold/time/gpu/mean" the value of "nv/cold/sample_size". */
static long long samples_of(const json_t *state, const char *tag)
{
    char name[PB_AXIS_TEXT];
    size_t n = strcspn(tag + strlen("nv/"), "/") + strlen("nv/");
    snprintf(name, sizeof name, "%.*s/sample_size", (int)n, tag);
    const json_t *s = find_summary(state, name);
    long long samples = s ? strtoll(summary_value(s), NULL, 10) : 0;
    return samples < 0 ? 0 : samples;
}

static const char *machine_of(const place *p, const json_t *id)
{
    size_t i;
    json_t *d;
    json_array_foreach(p->devices, i, d)
    {
        if (!json_is_integer(id) || json_integer_value(json_object_get(d, "id")) != json_integer_value(id)) continue;
        return pb_import_machine(p->im, 1, string_of(d, "name"));
    }
    return "";
}

/* True if nvbench shows the summary to its user, and `summaries` has no metric for it. */
static bool without_metric(const json_t *summary)
{
    const char *tag = string_of(summary, "tag");
    for (int i = 0; i < NSUMMARIES; i++)
        if (!strcmp(summaries[i].tag, tag)) return false;
    return !json_object_get(summary, "hide") && !strstr(tag, "/sample_size") && !strstr(tag, "/stdev/");
}

static pb_status state_figures(const place *p, const json_t *state, const pb_case *c, const char *machine)
{
    size_t taken = 0, i;
    json_t *s;
    for (int k = 0; k < NSUMMARIES; k++) {
        const json_t *found = find_summary(state, summaries[k].tag);
        if (!found) continue;
        const char *text = summary_value(found);
        if (!*text) return bad(p, "no value in the summary ", summaries[k].tag);
        PB_TRY(pb_import_figure(p->im, 0, c, machine, summaries[k].metric, 1, text, samples_of(state, summaries[k].tag),
                                ""));
        taken++;
    }
    json_array_foreach(json_object_get(state, "summaries"), i, s) p->im->left_out += without_metric(s);
    if (taken) return PB_OK;
    return pb_import_outcome(p->im, 0, c, machine, "outcome", PB_ROW_FAILED, "no summary has a value");
}

static pb_status read_state(const place *p, const json_t *state)
{
    pb_case c;
    char device[32] = "";
    size_t i;
    json_t *axis;
    const json_t *id = json_object_get(state, "device");
    if (!json_is_object(state)) return bad(p, "the state is not an object", "");
    if (json_is_integer(id)) snprintf(device, sizeof device, "%lld", (long long)json_integer_value(id));
    PB_TRY(open_case(p->im, 0, p->benchmark, device, &c));
    json_array_foreach(json_object_get(state, "axis_values"), i, axis)
        PB_TRY(pb_import_axis(p->im, 0, &c, string_of(axis, "name"), string_of(axis, "value")));
    const char *machine = machine_of(p, id);
    if (!machine) return pb_fail(PB_ENOMEM, "import: out of memory");
    if (!json_is_boolean(json_object_get(state, "is_skipped"))) return bad(p, "is_skipped is missing", "");
    if (!json_is_true(json_object_get(state, "is_skipped"))) return state_figures(p, state, &c, machine);
    const char *reason = string_of(state, "skip_reason");
    return pb_import_outcome(p->im, 0, &c, machine, "outcome", PB_ROW_UNSUPPORTED, *reason ? reason : "skipped");
}

static pb_status read_document(pb_import *im, const json_t *root)
{
    const json_t *benchmarks = json_object_get(root, "benchmarks");
    place p = {.im = im, .devices = json_object_get(root, "devices")};
    if (!json_is_array(benchmarks)) return pb_import_bad(im, 0, "not nvbench's JSON: no list 'benchmarks'", "");
    for (p.b = 0; p.b < json_array_size(benchmarks); p.b++) {
        const json_t *b = json_array_get(benchmarks, p.b), *states = json_object_get(b, "states");
        p.s = 0;
        p.benchmark = string_of(b, "name");
        if (!json_is_array(states) && !json_is_null(states)) return bad(&p, "no list 'states'", "");
        for (; p.s < json_array_size(states); p.s++) PB_TRY(read_state(&p, json_array_get(states, p.s)));
    }
    return PB_OK;
}

pb_status pb_import_nvbench(pb_import *im, const char *bytes, size_t n)
{
    json_t *root;
    if (!pb_import_is_json(bytes, n)) return read_csv(im, bytes, n);
    PB_TRY(pb_import_json(im, bytes, n, &root));
    pb_status s = read_document(im, root);
    json_decref(root);
    return s;
}
