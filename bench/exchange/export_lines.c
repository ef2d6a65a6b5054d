/* export_lines.c - writes the formats with a line per key and process: Go's benchmark text and MLPerf's log. */
#define _GNU_SOURCE
#include <ctype.h>
#include <jansson.h>
#include <string.h>

#include "bench/exchange/export.h"

/* Returns the index after the last of the consecutive rows that begin with row `from` and have its key, run and
 * process. */
static size_t process_end(const pb_export_page *p, size_t from)
{
    const pb_row *a = p->row[from];
    size_t to = from + 1;
    while (to < p->n && p->row[to]->key == a->key && p->row[to]->run_id == a->run_id &&
           p->row[to]->process == a->process)
        to++;
    return to;
}

/* ---- Go's benchmark text -------------------------------------------------------------------------- */

/* Prints the metric as a unit for benchstat, such as backward_time-ns. benchstat scales the suffixes -ns and -B; the
 * units "1" and "1/s" are omitted. */
static void go_unit(const pb_row *r, FILE *out)
{
    bool bare = !strcmp(r->unit, "1") || !strcmp(r->unit, "1/s");
    fprintf(out, "%s%s%s", r->metric, bare ? "" : "-", bare ? "" : pb_export_unit(r->unit));
}

/* Prints the key suite/name?axis=value&... as BenchmarkSuite/name/axis=value/... */
static void go_name(const char *key, FILE *out)
{
    fprintf(out, "Benchmark%c", toupper((unsigned char)*key));
    for (const char *c = key + 1; *c; c++) fputc(*c == '?' || *c == '&' ? '/' : *c, out);
}

/* True if an earlier row has the same metric as row i. */
static bool seen_before(const pb_export_page *p, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (p->row[k]->metric == p->row[i]->metric) return true;
    return false;
}

/* Prints a "Unit" line per metric. A run has few metrics, so seen_before() finds a repeated metric soon. */
static void go_units(const pb_export_page *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const pb_row *r = p->row[i];
        if (!strcmp(r->better, "none") || seen_before(p, i)) continue;
        fputs("Unit ", p->out);
        go_unit(r, p->out);
        fprintf(p->out, " better=%s\n", r->better);
    }
}

static void go_line(pb_export_page *p, size_t from, size_t to)
{
    long long iterations = 1;
    size_t figures = 0;
    for (size_t i = from; i < to; i++) {
        if (!pb_row_ok(p->row[i])) pb_export_leave_out(p, PB_NO_FIGURE);
        figures += pb_row_ok(p->row[i]);
        if (p->row[i]->samples > iterations) iterations = p->row[i]->samples;
    }
    if (!figures) return;
    go_name(p->row[from]->key, p->out);
    fprintf(p->out, " %lld", iterations);
    for (size_t i = from; i < to; i++) {
        const pb_row *r = p->row[i];
        if (!pb_row_ok(r)) continue;
        fprintf(p->out, " %.9g ", pb_export_value(r->value, r->unit));
        go_unit(r, p->out);
    }
    fputc('\n', p->out);
    p->written += figures;
}

pb_status pb_export_benchfmt(pb_export_page *p)
{
    const char *machine = "", *version = "";
    if (!p->n) return PB_OK;
    go_units(p);
    for (size_t from = 0, to; from < p->n; from = to) {
        const pb_row *r = p->row[from];
        to = process_end(p, from);
        if (strcmp(machine, r->machine_id) != 0) fprintf(p->out, "machine-id: %s\n", r->machine_id);
        if (strcmp(version, r->bench_version) != 0) fprintf(p->out, "bench-version: %s\n", r->bench_version);
        machine = r->machine_id;
        version = r->bench_version;
        go_line(p, from, to);
    }
    return PB_OK;
}

/* ---- MLPerf's log --------------------------------------------------------------------------------- */

/* Prints one event. Takes ownership of value and metadata. */
static pb_status ml_event(const pb_export_page *p, const pb_row *r, const char *key, json_t *value, json_t *metadata)
{
    struct tm utc;
    if (!pb_export_time(r->run_id, &utc)) {
        json_decref(value);
        json_decref(metadata);
        return pb_fail(PB_EINVAL, "%s: mllog needs a time, but the run_id '%.80s' does not begin with one", p->path,
                       r->run_id);
    }
    json_object_set_new(metadata, "key", json_string(r->key));
    json_object_set_new(metadata, "process", json_integer(r->process));
    json_object_set_new(metadata, "run_id", json_string(r->run_id));
    json_object_set_new(metadata, "machine_id", json_string(r->machine_id));
    json_t *e = json_pack("{s:s,s:I,s:s,s:s,s:o,s:o}", "namespace", "", "time_ms", (json_int_t)timegm(&utc) * 1000,
                          "event_type", "POINT_IN_TIME", "key", key, "value", value, "metadata", metadata);
    fputs(":::MLLOG ", p->out);
    int failed = json_dumpf(e, p->out, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    fputc('\n', p->out);
    json_decref(e);
    return failed ? pb_fail(PB_ENOMEM, "export: out of memory") : PB_OK;
}

/* Prints the value of an axis as the MLPerf event `key`. Does nothing if the case lacks the axis. */
static pb_status ml_axis(const pb_export_page *p, const pb_row *r, const char *axis, const char *key)
{
    pb_case c;
    long value;
    PB_TRY(pb_case_parse(r->key, &c));
    if (!pb_case_get(&c, axis) || pb_case_int(&c, axis, &value) != PB_OK) return PB_OK;
    return ml_event(p, r, key, json_integer(value), json_object());
}

static pb_status ml_process(pb_export_page *p, size_t from, size_t to)
{
    json_t *value = json_object(), *units = json_object();
    const pb_row *first = p->row[from];
    for (size_t i = from; i < to; i++) {
        const pb_row *r = p->row[i];
        if (!pb_row_ok(r)) {
            pb_export_leave_out(p, PB_NO_FIGURE);
            continue;
        }
        json_object_set_new(value, r->metric, json_real(r->value));
        json_object_set_new(units, r->metric, json_string(r->unit));
        p->written++;
    }
    pb_status s = PB_OK;
    if (json_object_size(value)) {
        s = ml_axis(p, first, "batch", "global_batch_size");
        if (s == PB_OK) s = ml_axis(p, first, "seq", "max_sequence_length");
        if (s == PB_OK) s = ml_event(p, first, "tracked_stats", json_incref(value), json_pack("{s:O}", "units", units));
    }
    json_decref(value);
    json_decref(units);
    return s;
}

pb_status pb_export_mllog(pb_export_page *p)
{
    for (size_t from = 0, to; from < p->n; from = to) {
        to = process_end(p, from);
        PB_TRY(ml_process(p, from, to));
    }
    return PB_OK;
}
