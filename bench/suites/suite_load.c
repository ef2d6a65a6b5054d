/* suite_load.c - loading a model: load time against the time to read its files, quantisation while loading, peak
 * memory.
 *
 * Each case writes its model folder first. The files then stay in the page cache for both the reader and the loader,
 * so that the suite compares their work and not the disk. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/derived/derived.h"
#include "bench/suites/suite.h"
#include "bench/suites/train_case.h"
#include "kernels/engine/op.h"
#include "os/file.h"
#include "os/memory.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/hf_save.h"

enum { READ_CHUNK = 1 << 20 };

typedef struct folder {
    char dir[256], file[300];
    double bytes;
} folder;

typedef struct reading {
    const folder *f;
    unsigned char *room; /* [f->bytes] */
} reading;

/* ---- writing the model folder of a case ----------------------------------------------------------- */

static pb_status config(const pb_case *c, bool load, pb_model_config *out)
{
    pb_train_config t;
    pb_case plain = *c;
    if (!load) PB_TRY(pb_case_set(&plain, "tuning", "full"));
    PB_TRY(pb_train_case_config(&plain, &t));
    t.model.frozen = true;
    t.model.blank = load;
    *out = t.model;
    return PB_OK;
}

static pb_status write_folder(pb_ctx *ctx, const pb_case *c, folder *f)
{
    pb_model_config cfg;
    pb_model m;
    struct stat st;
    const char *tmp = getenv("TMPDIR");
    snprintf(f->dir, sizeof f->dir, "%s/plumb-load-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    PB_TRY(config(c, false, &cfg));
    if (!mkdtemp(f->dir)) return pb_fail(PB_EIO, "%s: the folder cannot be created", f->dir);
    snprintf(f->file, sizeof f->file, "%s/model.safetensors", f->dir);
    PB_TRY(pb_model_open(ctx, &cfg, &m));
    const pb_status s = pb_model_save_hf(&m, f->dir, &(pb_hf_save_config){.shard = (size_t)1 << 62});
    pb_model_close(&m);
    PB_TRY(s);
    if (stat(f->file, &st) != 0) return pb_fail(PB_EIO, "%s: the model was not written", f->file);
    f->bytes = (double)st.st_size;
    return PB_OK;
}

static void remove_folder(const folder *f)
{
    char config[300];
    snprintf(config, sizeof config, "%s/config.json", f->dir);
    (void)unlink(f->file), (void)unlink(config), (void)rmdir(f->dir);
}

/* ---- timing the reader and the loader ---------------------------------------------------------------- */

/* Does the least that any loader must do: reads all bytes into memory, with all threads. */
static pb_status read_files(pb_ctx *ctx, void *self)
{
    const reading *r = self;
    const int fd = open(r->f->file, O_RDONLY | O_CLOEXEC);
    const size_t n = (size_t)r->f->bytes, pieces = (n + READ_CHUNK - 1) / READ_CHUNK;
    char why[512] = ""; /* message of a failed read, copied because each thread has its own pb_error() */
    pb_status failed = PB_OK;
    (void)ctx;
    if (fd < 0) return pb_fail_errno(errno, "%s", r->f->file);
#pragma omp parallel for schedule(static)
    for (size_t p = 0; p < pieces; p++) {
        const size_t at = p * READ_CHUNK, want = n - at < READ_CHUNK ? n - at : READ_CHUNK;
        const pb_status s = pb_file_read_at(fd, r->f->file, at, r->room + at, want);
        if (s == PB_OK) continue;
#pragma omp critical
        failed = s, snprintf(why, sizeof why, "%s", pb_error());
    }
    close(fd);
    return failed == PB_OK ? PB_OK : pb_fail(failed, "%s", why);
}

typedef struct loading {
    pb_model m;
    const folder *f;
} loading;

static pb_status load(pb_ctx *ctx, void *self)
{
    loading *l = self;
    (void)ctx;
    return pb_model_load_hf(&l->m, l->f->dir, NULL);
}

static pb_status requirements(const pb_ctx *ctx, const pb_case *c, pb_emitter *emitter, const folder *f, double ratio,
                              double seconds, double excess)
{
    const bool quantised = strcmp(pb_case_get(c, "tuning"), "qlora") == 0;
    char how[128];
    snprintf(how, sizeof how, "%.3g GB in the page cache", 1e-9 * f->bytes);
    if (quantised) PB_TRY(pb_requirement_emit(emitter, "LOAD-NF4", c->axes, c->n, f->bytes / seconds, true, how));
    else PB_TRY(pb_requirement_emit(emitter, "LOAD-RATIO", c->axes, c->n, ratio, true, how));
    return pb_requirement_emit(emitter, "LOAD-PEAK", c->axes, c->n, excess, ctx->id == PB_CPU, how);
}

static pb_measure_opts usual(const pb_suite_env *env)
{
    return pb_env_measure_opts(env, (pb_measure_opts){.warmup = 1, .min_samples = 3, .max_samples = 9, .min_time = 1});
}

static pb_status measure_reading(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, const folder *f, pb_timing *t)
{
    const pb_measure_opts o = usual(env);
    reading r = {f, malloc((size_t)f->bytes)};
    if (!r.room) return pb_fail(PB_ENOMEM, "no memory for the %.3g GB of the files", 1e-9 * f->bytes);
    const pb_status s = pb_measure(ctx, read_files, &r, &o, t); /* the warm-up call touches the pages */
    free(r.room);
    PB_TRY(s);
    return pb_emit_timing(env->emitter, c, "read_time", t, "");
}

static pb_status measure(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env, const folder *f, pb_timing *t)
{
    loading l = {.f = f};
    pb_model_config cfg;
    double before, peak = 0, weights;
    const pb_measure_opts o = usual(env);
    PB_TRY(measure_reading(ctx, c, env, f, t));
    const double read_time = t->median;
    PB_TRY(config(c, true, &cfg));
    PB_TRY(pb_memory_reset_peak());
    PB_TRY(pb_memory_peak(&before));
    PB_TRY(pb_model_open(ctx, &cfg, &l.m));
    weights = (double)l.m.weights.size;
    pb_status s = pb_measure(ctx, load, &l, &o, t);
    if (s == PB_OK) s = pb_memory_peak(&peak);
    pb_model_close(&l.m);
    PB_TRY(s);
    PB_TRY(pb_emit_timing(env->emitter, c, "load_time", t, ""));
    PB_TRY(pb_emit(env->emitter, c, "load_rate", f->bytes / t->median, 0, PB_ROW_OK, ""));
    PB_TRY(pb_emit(env->emitter, c, "peak_memory", peak, 0, PB_ROW_OK, ""));
    return requirements(ctx, c, env->emitter, f, t->median / read_time, t->median, peak - before - weights);
}

static pb_status run(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    folder f = {0};
    pb_timing *t = malloc(sizeof *t);
    pb_status s = t ? write_folder(ctx, c, &f) : pb_fail(PB_ENOMEM, "no memory for samples");
    if (s == PB_OK) s = measure(ctx, c, env, &f, t);
    if (*f.dir) remove_folder(&f);
    free(t);
    return s;
}

static double expect(const pb_case *c) { return 4 + 20 * pb_train_case_seconds(c); }

/* Estimate for a GPU from the bytes of the files: 1 GB/s to write them, four readings at 10 GB/s, four loadings at 2
 * GB/s (requirement LOAD-NF4 demands 1). Reading and loading each take at least 2 s (usual()). */
static double device_expect(const pb_case *c)
{
    const char *dtype = pb_case_get(c, "dtype");
    const double bytes = pb_train_case_weights(c) * (dtype && strcmp(dtype, "f32") == 0 ? 4 : 2);
    return 2 + bytes / 1e9 + fmax(2, 4 * bytes / 1e10) + fmax(2, 4 * bytes / 2e9);
}

static const char *const grid[] = {"tuning=full,qlora", NULL};
static const char *const full_grid[] = {"tuning=full,qlora dtype=f32,bf16 model=smollm2-135m,qwen2.5-0.5b,qwen2.5-1.5b",
                                        NULL};

const pb_suite pb_suite_load = {
    .name = "load",
    .what = "loading a Hugging Face folder, dense and NF4, compared with reading its files",
    .axes = "batch=1 clip=multi dtype=bf16 layers=0 mode=eager model=qwen2.5-1.5b rank=16 seq=128 targets=q+v "
            "tuning=full",
    .grid = grid,
    .full_grid = full_grid,
    .check = pb_train_case_check,
    .expect = expect,
    .device_expect = device_expect,
    .run = run,
};
