/* self_compare.c - creates two large results CSVs and times their comparison. */
#include "bench/suites/self_compare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/compare/compare.h"
#include "bench/rows/rows.h"
#include "kernels/engine/clock.h"
#include "os/draft.h"
#include "os/memory.h"

enum { PROCESSES = 3, PER_CASE = 3, MIN_ROWS = 100, MAX_ROWS = 10000000 };

struct pb_self_files {
    char folder[64], base[96], cand[96], gates[96];
    size_t cases;
};

static pb_row figure(const char *run, int process, const char *key, const char *metric, const char *unit,
                     const char *better, double value)
{
    return (pb_row){.bench_version = PB_BENCH_VERSION,
                    .run_id = run,
                    .machine_id = "cpu-self-compare-00000000",
                    .process = process,
                    .key = key,
                    .metric = metric,
                    .unit = unit,
                    .better = better,
                    .value = value * (1 + 1e-3 * process),
                    .samples = 10,
                    .status = PB_ROW_OK,
                    .note = "",
                    .commit = "",
                    .host = "self-compare/"};
}

static void write_process(FILE *f, const char *run, int process, size_t cases, double slower)
{
    char key[PB_KEY_TEXT];
    pb_row r = figure(run, process, "ceiling/matmul?backend=cpu", "matmul_rate", "FLOP/s", "higher", 1e11);
    pb_csv_row(f, &r);
    for (size_t i = 0; i < cases; i++) {
        const double seconds = slower * (0.1 + 1e-6 * (double)i);
        snprintf(key, sizeof key, "backward/step?batch=%zu&clip=fused&dtype=f32&mode=graph&model=smollm2-135m&seq=128",
                 i + 1);
        const pb_row rows[PER_CASE] = {
            figure(run, process, key, "backward_time", "s", "lower", seconds),
            figure(run, process, key, "tokens_per_second", "1/s", "higher", 128 / seconds),
            figure(run, process, key, "kernel_launches", "1", "none", 1),
        };
        for (int m = 0; m < PER_CASE; m++) pb_csv_row(f, &rows[m]);
    }
}

/* Appends the rows of one process as CSV text; the first process also writes the header. */
static pb_status put_process(pb_draft *d, const char *run, int process, size_t cases, double slower)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return pb_fail(PB_ENOMEM, "self-comparison: out of memory");
    if (!process) pb_csv_header(f);
    write_process(f, run, process, cases, slower);
    const pb_status s =
        fclose(f) == 0 ? pb_draft_put(d, text, n) : pb_fail(PB_ENOMEM, "self-comparison: out of memory");
    free(text);
    return s;
}

static pb_status write_run(const char *path, const char *run, size_t cases, double slower)
{
    pb_draft d;
    PB_TRY(pb_draft_open(&pb_disk_posix, path, &d));
    pb_status s = PB_OK;
    for (int process = 0; process < PROCESSES && s == PB_OK; process++)
        s = put_process(&d, run, process, cases, slower);
    if (s == PB_OK) return pb_draft_keep(&d);
    pb_draft_drop(&d);
    return s;
}

static pb_status write_gates(const char *path)
{
    static const char text[] =
        "suite,metric,better,stored_limit,ceiling,gating\nbackward,backward_time,lower,0.15,matmul_rate,yes\n";
    return pb_file_replace(path, text, sizeof text - 1);
}

static pb_status fill_folder(pb_self_files *f)
{
    snprintf(f->base, sizeof f->base, "%s/base.csv", f->folder);
    snprintf(f->cand, sizeof f->cand, "%s/cand.csv", f->folder);
    snprintf(f->gates, sizeof f->gates, "%s/gates.csv", f->folder);
    PB_TRY(write_gates(f->gates));
    PB_TRY(write_run(f->base, "20250101T000000Z-self-0000", f->cases, 1));
    return write_run(f->cand, "20250102T000000Z-self-0000", f->cases, 1.001);
}

pb_status pb_self_files_make(size_t rows, pb_self_files **out)
{
    static const char pattern[] = "/tmp/plumb_self_XXXXXX";
    if (rows < MIN_ROWS || rows > MAX_ROWS)
        return pb_fail(PB_EINVAL, "self-comparison: %zu rows, need %d to %d", rows, MIN_ROWS, MAX_ROWS);
    pb_self_files *f = calloc(1, sizeof *f);
    if (!f) return pb_fail(PB_ENOMEM, "self-comparison: out of memory");
    f->cases = (rows - PROCESSES) / (PROCESSES * PER_CASE);
    memcpy(f->folder, pattern, sizeof pattern);
    if (!mkdtemp(f->folder)) {
        free(f);
        return pb_fail_errno(errno, "%s", pattern);
    }
    pb_status s = fill_folder(f);
    if (s == PB_OK) *out = f;
    else pb_self_files_free(f);
    return s;
}

void pb_self_files_free(pb_self_files *f)
{
    if (!f) return;
    unlink(f->base);
    unlink(f->cand);
    unlink(f->gates);
    rmdir(f->folder);
    free(f);
}

pb_status pb_self_compare(const pb_self_files *f, pb_self_figures *out)
{
    const pb_compare_opts o = {.gates = f->gates};
    char *text = NULL;
    char want[48];
    size_t n = 0;
    double peak = 0;
    FILE *page = open_memstream(&text, &n);
    if (!page) return pb_fail(PB_ENOMEM, "self-comparison: out of memory");
    pb_status s = pb_memory_reset_peak();
    const double from = pb_clock_seconds();
    const pb_exit e = pb_compare_files(f->base, f->cand, &o, page);
    const double seconds = pb_clock_seconds() - from;
    if (s == PB_OK) s = pb_memory_peak(&peak);
    if (fclose(page) != 0) s = pb_fail(PB_ENOMEM, "self-comparison: out of memory");
    snprintf(want, sizeof want, " same=%zu ", f->cases + 1); /* one of them is `all rows` */
    if (s == PB_OK && (e != PB_EXIT_OK || !strstr(text, want)))
        s = pb_fail(PB_EWRONG, "self-comparison: exit code %d, and not %s", (int)e, want);
    if (s == PB_OK) *out = (pb_self_figures){seconds, peak};
    free(text);
    return s;
}
