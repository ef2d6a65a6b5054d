/* gates.c - reads and checks gates.csv, and finds the gate of a key and metric. */
#include "bench/compare/gates.h"

#include <csv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"
#include "os/disk.h"
#include "os/text.h"

enum { SUITE, METRIC, BETTER, LIMIT, CEILING, GATING, NFIELDS };
static const char *const header[NFIELDS] = {"suite", "metric", "better", "stored_limit", "ceiling", "gating"};
enum { MAX_BYTES = 64 << 10 };

typedef struct reader {
    const char *path;
    pb_gates *out;
    pb_status status;
    int line, field;
    char text[NFIELDS][PB_AXIS_TEXT];
} reader;

static void fail(reader *r, const char *what, const char *detail)
{
    if (r->status == PB_OK) r->status = pb_fail(PB_EINVAL, "%s:%d: %s%s", r->path, r->line, what, detail);
}

static void on_field(void *bytes, size_t n, void *self)
{
    reader *r = self;
    if (r->field < NFIELDS) {
        const char *text = bytes ? bytes : "";
        if (n >= PB_AXIS_TEXT) fail(r, "a field of 64 or more characters in the column ", header[r->field]);
        if (strlen(text) != n || !pb_is_printable(text))
            fail(r, "a control character in the column ", header[r->field]);
        snprintf(r->text[r->field], PB_AXIS_TEXT, "%s", text);
    }
    r->field++;
}

static void header_line(reader *r)
{
    for (int i = 0; i < NFIELDS; i++)
        if (strcmp(r->text[i], header[i]) != 0)
            fail(r, "the header must be suite,metric,better,stored_limit,ceiling,gating", "");
}

/* Translates a metric name of bench_version 1 to the current one: the user's gates.csv may still have old names. */
static void rename_metric(char text[PB_AXIS_TEXT])
{
    const char *present = pb_renamed_metric(text);
    if (present != text) snprintf(text, PB_AXIS_TEXT, "%s", present);
}

static void gate_line(reader *r)
{
    pb_gates *g = r->out;
    rename_metric(r->text[METRIC]);
    rename_metric(r->text[CEILING]);
    char *end;
    double limit = strtod(r->text[LIMIT], &end);
    const pb_metric *m = pb_metric_find(r->text[METRIC]);
    const bool yes = !strcmp(r->text[GATING], "yes"), pairs = yes || !strcmp(r->text[GATING], "pairs"),
               stored = yes || !strcmp(r->text[GATING], "stored");
    if (!*r->text[SUITE] || strchr(r->text[SUITE], '/'))
        fail(r, "the column suite has no suite's name: ", r->text[SUITE]);
    if (!m) fail(r, "unknown metric (see bench list metrics): ", r->text[METRIC]);
    if (m && strcmp(m->better, r->text[BETTER]) != 0) fail(r, "for this metric the column better must be ", m->better);
    if (m && (pairs || stored) && !strcmp(m->better, "none"))
        fail(r, "a metric without a direction cannot gate: ", m->name);
    if (end == r->text[LIMIT] || *end || !(limit > 0 && limit < 10))
        fail(r, "stored_limit must be a number above 0 and below 10, not ", r->text[LIMIT]);
    if (*r->text[CEILING] && !pb_metric_find(r->text[CEILING]))
        fail(r, "unknown ceiling (see bench list metrics): ", r->text[CEILING]);
    if (!pairs && !stored && strcmp(r->text[GATING], "no") != 0)
        fail(r, "gating must be yes, no, pairs or stored, not ", r->text[GATING]);
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->gate[i].suite, r->text[SUITE]) && !strcmp(g->gate[i].metric, r->text[METRIC]))
            fail(r, "a second line for this suite and the metric ", r->text[METRIC]);
    if (g->n == PB_MAX_GATES) fail(r, "more than 256 lines", "");
    if (r->status != PB_OK) return;
    pb_gate *gate = &g->gate[g->n++];
    memcpy(gate->suite, r->text[SUITE], PB_AXIS_TEXT);
    memcpy(gate->metric, r->text[METRIC], PB_AXIS_TEXT);
    memcpy(gate->ceiling, r->text[CEILING], PB_AXIS_TEXT);
    gate->stored_limit = limit;
    gate->gating = stored;
    gate->gating_pairs = pairs;
}

static void on_line(int terminator, void *self)
{
    reader *r = self;
    (void)terminator;
    if (r->field != NFIELDS)
        fail(r, "a line must have six fields: suite,metric,better,stored_limit,ceiling,gating", "");
    else if (r->line == 1) header_line(r);
    else gate_line(r);
    r->field = 0;
    r->line++;
}

static pb_status parse(reader *r, const char *bytes, size_t n)
{
    struct csv_parser csv;
    if (csv_init(&csv, CSV_STRICT | CSV_STRICT_FINI | CSV_APPEND_NULL))
        return pb_fail(PB_ENOMEM, "%s: out of memory", r->path);
    if (csv_parse(&csv, bytes, n, on_field, on_line, r) != n || csv_fini(&csv, on_field, on_line, r))
        fail(r, "a quote out of place", "");
    csv_free(&csv);
    if (r->line == 1) fail(r, "the file is empty", "");
    return r->status;
}

pb_status pb_gates_parse(const char *name, const char *bytes, size_t n, pb_gates *out)
{
    reader r = {.path = name, .out = out, .line = 1};
    out->n = 0;
    return parse(&r, bytes, n);
}

pb_status pb_gates_read(const char *path, pb_gates *out)
{
    char *bytes = NULL, why[PB_PATH_TEXT];
    size_t n = 0;
    pb_status s = pb_disk_read_file(&pb_disk_posix, path, MAX_BYTES, &bytes, &n);
    if (s == PB_EPATH) {
        snprintf(why, sizeof why, "%s", pb_error());
        pb_fail(s, "%s (this file says which metrics gate)", why);
    }
    if (s == PB_OK) s = pb_gates_parse(path, bytes, n, out);
    free(bytes);
    return s;
}

pb_status pb_gates_read_for_pairs(const char *path, pb_gates *out)
{
    PB_TRY(pb_gates_read(path, out));
    for (int i = 0; i < out->n; i++) out->gate[i].gating = out->gate[i].gating_pairs;
    return PB_OK;
}

const pb_gate *pb_gates_find(const pb_gates *g, const char *key, const char *metric)
{
    static const pb_gate none = {.stored_limit = PB_DEFAULT_LIMIT};
    size_t n = strcspn(key, "/");
    for (int i = 0; i < g->n; i++)
        if (strlen(g->gate[i].suite) == n && !strncmp(g->gate[i].suite, key, n) && !strcmp(g->gate[i].metric, metric))
            return &g->gate[i];
    return &none;
}

bool pb_gates_name(const pb_gates *g, const char *metric)
{
    for (int i = 0; i < g->n; i++)
        if (!strcmp(g->gate[i].ceiling, metric)) return true;
    return false;
}
