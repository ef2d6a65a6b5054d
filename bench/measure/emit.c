/* emit.c - appends the rows and samples of a suite to results.csv and samples.csv, each by one write. */
#include "bench/measure/emit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/rows/metric.h"
#include "bench/rows/write_csv.h"
#include "bench/stats/trend.h"
#include "os/append.h"
#include "os/file.h"
#include "os/interrupt.h"
#include "os/text.h"

static pb_status open_in(const char *dir, const char *file, int *fd)
{
    char *path;
    PB_TRY(pb_path_join(dir, file, &path));
    const pb_status s = pb_append_open(path, false, fd);
    free(path);
    return s;
}

pb_status pb_sink_open(const char *dir, pb_sink *out)
{
    *out = (pb_sink){.results = -1, .samples = -1, .measure = {.min_time = -1}};
    PB_TRY(open_in(dir, "results.csv", &out->results));
    pb_status s = open_in(dir, "samples.csv", &out->samples);
    if (s != PB_OK) pb_sink_close(out);
    return s;
}

void pb_sink_close(pb_sink *s)
{
    if (s->results >= 0) close(s->results);
    if (s->samples >= 0) close(s->samples);
    free(s->measured);
    s->measured = NULL;
    s->results = s->samples = -1;
    s->n = s->room = 0;
}

/* ---- the sink ------------------------------------------------------------------------------------ */

pb_measure_opts pb_sink_measure(const pb_sink *s, pb_measure_opts suite)
{
    const pb_measure_opts *asked = &s->measure;
    suite.heartbeat = asked->heartbeat;
    suite.time_slice = asked->time_slice;
    if (asked->warmup > 0) suite.warmup = asked->warmup;
    if (asked->min_time >= 0) suite.min_time = asked->min_time;
    if (asked->min_samples > 0) suite.min_samples = suite.max_samples = asked->min_samples;
    suite.slowdown = asked->slowdown;
    return suite;
}

typedef struct pb_measured {
    char key[PB_KEY_TEXT];
    const char *metric;
    double value;
} measured;

/* Rows of one key follow each other, so a key that differs from the previous row's begins a new case. */
const char *pb_sink_key(const pb_sink *s, int i)
{
    for (int k = 0; k < s->n; k++)
        if ((!k || strcmp(s->measured[k].key, s->measured[k - 1].key) != 0) && i-- == 0) return s->measured[k].key;
    return NULL;
}

bool pb_sink_value(const pb_sink *s, const char *key, const char *metric, double *value)
{
    for (int k = 0; k < s->n; k++)
        if (strcmp(s->measured[k].key, key) == 0 && strcmp(s->measured[k].metric, metric) == 0) {
            *value = s->measured[k].value;
            return true;
        }
    return false;
}

double pb_sink_ceiling(const pb_sink *s, const char *metric)
{
    for (int k = 0; k < s->n; k++)
        if (strncmp(s->measured[k].key, "ceiling/", 8) == 0 && strcmp(s->measured[k].metric, metric) == 0)
            return s->measured[k].value;
    return 0;
}

static pb_status remember(pb_sink *s, const char *key, const pb_metric *m, double value)
{
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        measured *more = realloc(s->measured, (size_t)room * sizeof *more);
        if (!more) return pb_fail(PB_ENOMEM, "no memory for %d rows", room);
        s->measured = more;
        s->room = room;
    }
    measured *row = &s->measured[s->n++];
    *row = (measured){.metric = m->name, .value = value};
    snprintf(row->key, sizeof row->key, "%s", key);
    return PB_OK;
}

pb_status pb_sink_restore(pb_sink *s, const pb_row *r)
{
    const pb_metric *m = pb_metric_find(r->metric);
    if (!m) return pb_fail(PB_EINVAL, "metric '%.60s' is not in metrics.def", r->metric);
    return strcmp(r->status, "ok") == 0 ? remember(s, r->key, m, r->value) : PB_OK;
}

/* Remembers a row that was written: its value if it is ok, and that a case was truncated. */
static pb_status notice(pb_sink *s, const pb_case *c, const pb_metric *m, double value, const char *status)
{
    s->truncated |= strcmp(status, "truncated") == 0;
    return strcmp(status, "ok") == 0 ? remember(s, c->key, m, value) : PB_OK;
}

pb_status pb_emit(pb_sink *s, const pb_case *c, const char *metric, double value, int samples, const char *status,
                  const char *note)
{
    const pb_metric *m = pb_metric_find(metric);
    char text[512];
    pb_page p;
    if (!m) return pb_fail(PB_EINVAL, "metric '%s' is not in metrics.def", metric);
    if (!isfinite(value) && strcmp(status, "ok") == 0) status = "failed", note = "the value is not finite";
    snprintf(text, sizeof text, "%s", note ? note : "");
    pb_make_printable(text, ' '); /* one line per row, so that grep finds whole rows */
    const pb_row r = {.bench_version = PB_BENCH_VERSION,
                      .run_id = s->run_id,
                      .machine_id = s->machine_id,
                      .process = s->process,
                      .key = c->key,
                      .metric = m->name,
                      .unit = m->unit,
                      .better = m->better,
                      .value = value,
                      .samples = samples,
                      .status = status,
                      .note = text};
    PB_TRY(pb_page_open(&p));
    pb_csv_row(p.f, &r);
    pb_status st = pb_page_append(&p, s->results, "results.csv");
    s->write_failed |= st != PB_OK;
    return st == PB_OK ? notice(s, c, m, value, status) : st;
}

/* Appends the samples: their times if work is 0, else work / time. */
static pb_status emit_samples(pb_sink *s, const pb_case *c, const char *metric, double work, const pb_timing *t)
{
    pb_page p;
    PB_TRY(pb_page_open(&p));
    for (int i = 0; i < t->n; i++) {
        fprintf(p.f, "%s,%d,%s,%s,%d,", s->run_id, s->process, c->key, metric, i);
        pb_csv_number(p.f, work > 0 ? work / t->seconds[i] : t->seconds[i]);
        fputc('\n', p.f);
    }
    pb_status st = pb_page_append(&p, s->samples, "samples.csv");
    s->write_failed |= st != PB_OK;
    return st;
}

static pb_status emit_measured(pb_sink *s, const pb_case *c, const char *metric, double work, const pb_timing *t,
                               const char *note)
{
    char text[512];
    const char *status = "ok";
    const double trend = pb_trend(t->seconds, t->n);
    if (trend > 0) pb_trend_note(note ? note : "", trend, text, sizeof text), note = text;
    if (pb_interrupted()) { /* there may be fewer samples than requested */
        snprintf(text, sizeof text, "interrupted after %d samples", t->n);
        status = "truncated", note = text;
    }
    PB_TRY(emit_samples(s, c, metric, work, t));
    PB_TRY(pb_emit(s, c, metric, work > 0 ? work / t->median : t->median, t->n, status, note));
    return pb_emit_slowed(s, c, t->slowed);
}

pb_status pb_emit_slowed(pb_sink *s, const pb_case *c, double share)
{
    double before;
    if (!(share > 0) || pb_sink_value(s, c->key, "slowdown", &before)) return PB_OK;
    return pb_emit(s, c, "slowdown", share, 0, "ok", "slowed down on purpose");
}

pb_status pb_emit_timing(pb_sink *s, const pb_case *c, const char *metric, const pb_timing *t, const char *note)
{
    return emit_measured(s, c, metric, 0, t, note);
}

pb_status pb_emit_rate(pb_sink *s, const pb_case *c, const char *metric, double work, const pb_timing *t,
                       const char *note)
{
    return emit_measured(s, c, metric, work, t, note);
}

pb_status pb_emit_graph(pb_sink *s, const pb_case *c, const pb_timing *t)
{
    PB_TRY(pb_emit(s, c, "graph_nodes", (double)t->nodes, 0, "ok", ""));
    return pb_emit(s, c, "record_time", t->record_seconds, 1, "ok", "");
}

pb_status pb_emit_outcome(pb_sink *s, const pb_case *c, const char *status, const char *note)
{
    return pb_emit(s, c, "outcome", (double)NAN, 0, status, note);
}
