/* suite_self.c - the cost of the benchmark program itself: timing a sample, writing a row, comparing two results. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/derived/derived.h"
#include "bench/rows/rows.h"
#include "bench/stats/stats.h"
#include "bench/suites/self_compare.h"
#include "bench/suites/suite.h"
#include "kernels/engine/op.h"
#include "os/interrupt.h"

enum { SAMPLES = PB_MAX_SAMPLES, ROWS = 256 };

/* ---- the cost of timing one sample ------------------------------------------------------------------ */

static pb_status nothing(pb_ctx *ctx, void *self)
{
    (void)ctx, (void)self;
    return PB_OK;
}

/* Makes one complete measurement of an empty function, including the medians. */
static pb_status measure_nothing(pb_ctx *ctx, void *self)
{
    return pb_measure(ctx, nothing, NULL,
                      &(pb_measure_opts){.warmup = 1, .min_samples = SAMPLES, .max_samples = SAMPLES}, self);
}

/* Measures the cost of one sample. CPU only: on a GPU every sample includes a host sync. */
static pb_status measure_sample(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    static const char how[] = "two events, two clock readings, counters, medians";
    pb_timing t;
    const pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    pb_timing *inner = malloc(sizeof *inner);
    const pb_status s =
        inner ? pb_measure(ctx, measure_nothing, inner, &o, &t) : pb_fail(PB_ENOMEM, "no memory for samples");
    free(inner);
    PB_TRY(s);
    for (int i = 0; i < t.n; i++) t.seconds[i] /= SAMPLES;
    t.median /= SAMPLES;
    PB_TRY(pb_emit_timing(env->emitter, c, "sample_overhead", &t, how));
    return t.n ? pb_requirement_emit(env->emitter, "SELF-SAMPLE", NULL, 0, t.median, true, how) : PB_OK;
}

/* ---- the cost of writing one row -------------------------------------------------------------------- */

typedef struct rows {
    const pb_case *c;
    pb_emitter emitter;
    char dir[256];
} rows;

static pb_status write_rows(pb_ctx *ctx, void *self)
{
    rows *r = self;
    (void)ctx;
    for (int i = 0; i < ROWS; i++)
        PB_TRY(
            pb_emit(&r->emitter, r->c, "row_time", 1.0 / (i + 1), 5, PB_ROW_OK, "a row whose contents do not matter"));
    return PB_OK;
}

/* Restores the state before the first row: an empty file and no remembered values. */
static pb_status forget_rows(pb_ctx *ctx, void *self)
{
    rows *r = self;
    (void)ctx;
    r->emitter.n = 0;
    return ftruncate(r->emitter.results, 0) == 0
               ? PB_OK
               : pb_fail(PB_EIO, "%s/results.csv: the file cannot be truncated", r->dir);
}

static pb_status open_rows(const pb_case *c, const pb_emitter *like, rows *r)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(r->dir, sizeof r->dir, "%s/plumb-self-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(r->dir)) return pb_fail_errno(errno, "%s", r->dir);
    PB_TRY(pb_results_create(r->dir));
    PB_TRY(pb_emitter_open(r->dir, &r->emitter));
    r->c = c;
    r->emitter.run_id = like->run_id, r->emitter.machine_id = like->machine_id, r->emitter.host = like->host;
    r->emitter.commit = like->commit;
    r->emitter.process = like->process;
    return PB_OK;
}

static void close_rows(rows *r)
{
    static const char *const files[] = {"results.csv", "samples.csv"};
    char path[300];
    pb_emitter_close(&r->emitter);
    for (int i = 0; i < 2; i++) snprintf(path, sizeof path, "%s/%s", r->dir, files[i]), (void)unlink(path);
    (void)rmdir(r->dir);
}

static pb_status measure_row(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_timing t;
    rows r = {.emitter = {.results = -1, .samples = -1}};
    pb_measure_opts o = pb_env_measure_opts(env, (pb_measure_opts){PB_MEASURE_USUAL});
    o.before = forget_rows, o.before_self = &r;
    pb_status s = open_rows(c, env->emitter, &r);
    if (s == PB_OK) s = pb_measure(ctx, write_rows, &r, &o, &t);
    close_rows(&r);
    PB_TRY(s);
    for (int i = 0; i < t.n; i++) t.seconds[i] = t.host[i] / ROWS; /* host time on every device */
    t.median = t.host_median / ROWS;
    return pb_emit_timing(env->emitter, c, "row_time", &t, "formatted and appended by one write");
}

/* ---- the cost of comparing two results files -------------------------------------------------------- */

enum { COMPARED_ROWS = 100000, COMPARISONS = 5 };

/* Times the comparison of two files of COMPARED_ROWS rows, including reading and printing. */
static pb_status compare_files(const pb_case *c, const pb_self_files *f, const pb_suite_env *env)
{
    static const char how[] = "two results CSVs of 100,000 rows each";
    const pb_measure_opts o = pb_env_measure_opts(
        env, (pb_measure_opts){.warmup = 1, .min_samples = COMPARISONS, .max_samples = COMPARISONS});
    double peak = 0;
    pb_timing t = {0};
    while (t.n < o.max_samples && !pb_interrupted()) {
        pb_self_figures x;
        PB_TRY(pb_self_compare(f, &x));
        t.seconds[t.n++] = x.seconds;
        peak = x.peak_bytes > peak ? x.peak_bytes : peak;
    }
    if (!t.n) return PB_OK;
    t.median = pb_median_of(t.seconds, t.n);
    PB_TRY(pb_emit_timing(env->emitter, c, "compare_time", &t, how));
    PB_TRY(pb_emit(env->emitter, c, "peak_memory", peak, 0, PB_ROW_OK, "of the whole process"));
    PB_TRY(pb_requirement_emit(env->emitter, "SELF-COMPARE-TIME", NULL, 0, t.median, true, how));
    return pb_requirement_emit(env->emitter, "SELF-COMPARE-PEAK", NULL, 0, peak, true, how);
}

static pb_status measure_compare(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    pb_self_files *f;
    (void)ctx;
    PB_TRY(pb_self_files_make(COMPARED_ROWS, &f));
    const pb_status s = compare_files(c, f, env);
    pb_self_files_free(f);
    return s;
}

/* ---- the suite: grids, estimate, entry points ----------------------------------------------------------- */

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    static const struct {
        const char *name;
        pb_status (*measure)(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env);
    } cases[] = {{"sample", measure_sample}, {"row", measure_row}, {"compare", measure_compare}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, c->name) == 0) return cases[i].measure(ctx, c, env);
    return pb_fail(PB_EINVAL, "suite self has no case '%s'", c->name);
}

static double expect(const pb_case *c) { return strcmp(c->name, "compare") == 0 ? 4 : 0.3; }

static const char *const grid[] = {"sample,row,compare", NULL};
static const char *const device_grid[] = {"row,compare", NULL}; /* on a GPU a sample includes a host sync */

const pb_suite pb_suite_self = {
    .name = "self",
    .what = "the cost of measuring: the harness around a sample, writing a row, a comparison",
    .axes = "",
    .grid = grid,
    .device_grid = device_grid,
    .expect = expect,
    .device_expect = expect, /* both cases work on the host */
    .run = run,
};
