/* emit.c - appends the rows and samples of a suite to results.csv and samples.csv, each by one write. */
#include "bench/measure/emit.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/rows/rows.h"
#include "bench/stats/stats.h"
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

pb_status pb_emitter_open(const char *dir, pb_emitter *out)
{
    *out = (pb_emitter){.results = -1, .samples = -1};
    PB_TRY(open_in(dir, "results.csv", &out->results));
    pb_status s = open_in(dir, "samples.csv", &out->samples);
    if (s != PB_OK) pb_emitter_close(out);
    return s;
}

pb_status pb_emitter_open_silent(pb_emitter *out)
{
    *out = (pb_emitter){.results = open("/dev/null", O_WRONLY | O_CLOEXEC)};
    out->samples = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (out->results >= 0 && out->samples >= 0) return PB_OK;
    pb_emitter_close(out);
    return pb_fail_errno(errno, "/dev/null");
}

void pb_emitter_close(pb_emitter *e)
{
    if (e->results >= 0) close(e->results);
    if (e->samples >= 0) close(e->samples);
    free(e->measured);
    free(e->checks);
    e->measured = NULL;
    e->checks = NULL;
    e->results = e->samples = -1;
    e->n = e->room = e->n_checks = 0;
}

/* ---- remembering the rows that were emitted ---------------------------------------------------------- */

typedef struct pb_measured {
    char key[PB_KEY_TEXT];
    const char *metric;
    double value;
    bool first; /* no earlier row has this key */
} measured;

const char *pb_emitted_key(const pb_emitter *e, int i)
{
    for (int k = 0; k < e->n; k++)
        if (!pb_key_is_control(e->measured[k].key) && e->measured[k].first && i-- == 0) return e->measured[k].key;
    return NULL;
}

bool pb_emitted_value(const pb_emitter *e, const char *key, const char *metric, double *value)
{
    for (int k = 0; k < e->n; k++)
        if (strcmp(e->measured[k].key, key) == 0 && strcmp(e->measured[k].metric, metric) == 0) {
            *value = e->measured[k].value;
            return true;
        }
    return false;
}

bool pb_emitted_by_suite(const pb_emitter *e, const char *suite, const char *metric, double *value)
{
    const size_t n = strlen(suite);
    for (int k = 0; k < e->n; k++) {
        const measured *m = &e->measured[k];
        if (strncmp(m->key, suite, n) != 0 || m->key[n] != '/' || strcmp(m->metric, metric) != 0) continue;
        *value = m->value;
        return true;
    }
    return false;
}

/* True if no row has this key. Searches backwards, because most rows have the key of the row before. */
static bool is_new(const pb_emitter *e, const char *key)
{
    for (int k = e->n; k-- > 0;)
        if (strcmp(e->measured[k].key, key) == 0) return false;
    return true;
}

static pb_status remember(pb_emitter *e, const char *key, const pb_metric *m, double value)
{
    if (e->n == e->room) {
        int room = e->room ? 2 * e->room : 64;
        measured *more = realloc(e->measured, (size_t)room * sizeof *more);
        if (!more) return pb_fail(PB_ENOMEM, "no memory for %d rows", room);
        e->measured = more;
        e->room = room;
    }
    measured *row = &e->measured[e->n];
    *row = (measured){.metric = m->name, .value = value, .first = is_new(e, key)};
    e->n++;
    snprintf(row->key, sizeof row->key, "%s", key);
    return PB_OK;
}

pb_status pb_emitter_restore(pb_emitter *e, const pb_row *r)
{
    const pb_metric *m = pb_metric_find(r->metric);
    if (!m) return pb_fail(PB_EINVAL, "metric '%.60s' is not in metrics.def", r->metric);
    return r->status == PB_ROW_OK ? remember(e, r->key, m, r->value) : PB_OK;
}

typedef struct pb_long_check {
    char key[PB_KEY_TEXT];
    double error, seconds;
    int process;
} long_check;

pb_status pb_emitter_checked(pb_emitter *e, const char *key, double error, int process, double seconds)
{
    long_check *more = realloc(e->checks, ((size_t)e->n_checks + 1) * sizeof *more);
    if (!more) return pb_fail(PB_ENOMEM, "no memory for %d checks", e->n_checks + 1);
    e->checks = more;
    more[e->n_checks] = (long_check){.error = error, .seconds = seconds, .process = process};
    snprintf(more[e->n_checks++].key, sizeof more->key, "%s", key);
    return PB_OK;
}

bool pb_checked_earlier(const pb_emitter *e, const char *key, double *error, int *process, double *seconds)
{
    for (int i = 0; i < e->n_checks; i++) {
        const long_check *c = &e->checks[i];
        if (strcmp(c->key, key) != 0) continue;
        *error = c->error, *process = c->process, *seconds = c->seconds;
        return true;
    }
    return false;
}

/* Updates the emitter after a row was written: remembers its value if it is ok, and whether a case was truncated. */
static pb_status notice(pb_emitter *e, const pb_case *c, const pb_metric *m, double value, pb_row_status status)
{
    e->truncated |= status == PB_ROW_TRUNCATED;
    return status == PB_ROW_OK ? remember(e, c->key, m, value) : PB_OK;
}

/* ---- appending rows and samples to the files --------------------------------------------------------- */

pb_status pb_emit(pb_emitter *e, const pb_case *c, const char *metric, double value, int samples, pb_row_status status,
                  const char *note)
{
    const pb_metric *m = pb_metric_find(metric);
    char text[PB_NOTE_TEXT];
    pb_page p;
    if (!m) return pb_fail(PB_EINVAL, "metric '%s' is not in metrics.def", metric);
    if (!isfinite(value) && status == PB_ROW_OK) status = PB_ROW_FAILED, note = "the value is not finite";
    const pb_row_class class = pb_row_class_of(status);
    snprintf(text, sizeof text, "%s", note ? note : "");
    if (e->profiled && (class == PB_ROW_FIGURE || class == PB_ROW_VERDICT)) {
        snprintf(text, sizeof text, "%.4g %s while a trace was recorded%s%s", value, m->unit, note && *note ? "; " : "",
                 note ? note : "");
        status = PB_ROW_PROFILED, value = (double)NAN;
    }
    pb_make_printable(text, ' '); /* one line per row, so that grep finds whole rows */
    const pb_row r = {.bench_version = PB_BENCH_VERSION,
                      .run_id = e->run_id,
                      .machine_id = e->machine_id,
                      .process = e->process,
                      .key = c->key,
                      .metric = m->name,
                      .unit = m->unit,
                      .better = m->better,
                      .value = value,
                      .samples = samples,
                      .status = status,
                      .note = text,
                      .commit = e->commit,
                      .host = e->host};
    PB_TRY(pb_page_open(&p));
    pb_csv_row(p.f, &r);
    pb_status st = pb_page_append(&p, e->results, "results.csv");
    e->write_failed |= st != PB_OK;
    return st == PB_OK ? notice(e, c, m, value, status) : st;
}

/* Appends the samples: their times if work is 0, else work / time. */
static pb_status emit_samples(pb_emitter *e, const pb_case *c, const char *metric, double work, const pb_timing *t)
{
    pb_page p;
    if (e->profiled) return PB_OK;
    PB_TRY(pb_page_open(&p));
    for (int i = 0; i < t->n; i++) {
        fprintf(p.f, "%s,%d,%s,%s,%d,", e->run_id, e->process, c->key, metric, i);
        pb_csv_number(p.f, work > 0 ? work / t->seconds[i] : t->seconds[i]);
        fputc('\n', p.f);
    }
    pb_status st = pb_page_append(&p, e->samples, "samples.csv");
    e->write_failed |= st != PB_OK;
    return st;
}

static pb_status emit_measured(pb_emitter *e, const pb_case *c, const char *metric, double work, const pb_timing *t,
                               const char *note)
{
    char text[512];
    pb_row_status status = PB_ROW_OK;
    const double trend = pb_trend(t->seconds, t->n);
    if (trend > 0) pb_trend_note(note ? note : "", trend, text, sizeof text), note = text;
    if (pb_interrupted()) { /* truncated: there may be fewer samples than requested */
        snprintf(text, sizeof text, "interrupted after %d samples", t->n);
        status = PB_ROW_TRUNCATED, note = text;
    }
    PB_TRY(emit_samples(e, c, metric, work, t));
    PB_TRY(pb_emit(e, c, metric, work > 0 ? work / t->median : t->median, t->n, status, note));
    return pb_emit_slowed(e, c, t->slowed);
}

pb_status pb_emit_slowed(pb_emitter *e, const pb_case *c, double share)
{
    double before;
    if (!(share > 0) || pb_emitted_value(e, c->key, "slowdown", &before)) return PB_OK;
    return pb_emit(e, c, "slowdown", share, 0, PB_ROW_OK, "with an injected delay");
}

pb_status pb_emit_timing(pb_emitter *e, const pb_case *c, const char *metric, const pb_timing *t, const char *note)
{
    return emit_measured(e, c, metric, 0, t, note);
}

pb_status pb_emit_rate(pb_emitter *e, const pb_case *c, const char *metric, double work, const pb_timing *t,
                       const char *note)
{
    return emit_measured(e, c, metric, work, t, note);
}

pb_status pb_emit_graph(pb_emitter *e, const pb_case *c, const pb_timing *t)
{
    return pb_emit(e, c, "record_time", t->record_seconds, 1, PB_ROW_OK, "");
}

pb_status pb_emit_outcome(pb_emitter *e, const pb_case *c, pb_row_status status, const char *note)
{
    return pb_emit(e, c, "outcome", (double)NAN, 0, status, note);
}
