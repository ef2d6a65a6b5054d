/* fixture_suites.c - small suites for tests, which replace those of bench/suites/suites.c: some succeed, others crash,
 * hang or fail on purpose. Linked with bench/main.c they make the program bench_fixture, which cli_test.sh and other
 * tests run. */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/machine/machine.h"
#include "bench/suites/suite.h"
#include "os/interrupt.h"
#include "kernels/engine/op.h"
#include "kernels/engine/bind.h"
#include "tests/lose_device.h"

static pb_status nap(pb_ctx *ctx, void *self)
{
    (void)ctx;
    nanosleep(&(struct timespec){.tv_nsec = *(const long *)self * 1000000}, NULL);
    return PB_OK;
}

static pb_status time_nap(pb_ctx *ctx, const pb_case *c, long ms, int samples, const pb_suite_env *env)
{
    pb_timing t;
    const pb_measure_opts o =
        pb_env_measure_opts(env, (pb_measure_opts){.warmup = 1, .min_samples = samples, .max_samples = samples});
    PB_TRY(pb_measure(ctx, nap, &ms, &o, &t));
    return pb_emit_timing(env->emitter, c, "kernel_time", &t, "");
}

/* Replaces the function of bench/machine/build_flags.c: the tests store sessions also where this program is built with
 * sanitizers, and FIXTURE_FLAGS pretends another build. */
const char *pb_build_flags(void)
{
    const char *flags = getenv("FIXTURE_FLAGS");
    return flags ? flags : "-O2 -g -DNDEBUG";
}

/* ---- suite ceiling: emits round values without measuring ----------------------------------------- */

static pb_status run_ceiling(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    (void)ctx;
    return strcmp(c->name, "copy") == 0 ? pb_emit(env->emitter, c, "copy_rate", 1e10, 1, PB_ROW_OK, "")
                                        : pb_emit(env->emitter, c, "matmul_rate", 1e11, 1, PB_ROW_OK, "");
}

static const char *const ceilings[] = {"copy,matmul", NULL};
static const pb_suite ceiling = {
    .name = "ceiling", .ranks = true, .what = "made-up ceilings", .axes = "", .grid = ceilings, .run = run_ceiling};

/* ---- suite toy: cases that lose the device or run out of memory ---------------------------------------- */

static pb_status lose(pb_ctx *ctx)
{
    PB_TRY(lose_device(ctx));
    return pb_sync(ctx);
}

/* Under AddressSanitizer, too, the program itself must report that an allocation is too large. The sanitizer
 * prescribes this name. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
/* NOLINTEND(bugprone-reserved-identifier) */

/* Asks for more memory than any machine has. */
static pb_status ask_too_much(pb_ctx *ctx)
{
    void *p;
    return pb_alloc(ctx, (size_t)1 << 50, &p);
}

/* ---- suite toy: cases that hang ------------------------------------------------------------------------ */

static void sleep_for_ever(void)
{
    const pid_t parent = getppid();
    alarm(200); /* ends the process after 200 s, which is longer than any test waits for it */
    while (getppid() == parent || getenv("PB_UNKILLABLE")) pause(); /* pause() returns after a signal */
    _exit(1);
}

/* Hangs or takes long, depending on the case's `mode`. A hanging case ignores signals, as in a driver call that never
 * returns. */
static pb_status hang(pb_ctx *ctx, const pb_suite_env *env, const pb_case *c)
{
    const char *mode = pb_case_get(c, "mode");
    if (strcmp(mode, "hang") == 0 || (strcmp(mode, "hangonce") == 0 && env->emitter->process == 0)) {
        PB_TRY(pb_emit(env->emitter, c, "kernel_rate", 1e9, 0, PB_ROW_OK, "")); /* the case hangs after its first row */
        sleep_for_ever();
    }
    while (strcmp(mode, "dawdle") == 0 && !pb_interrupted()) pause(); /* ends when it is interrupted */
    if (strcmp(mode, "hangatexit") == 0 && env->emitter->process == 0) atexit(sleep_for_ever);
    return strcmp(mode, "paced") == 0 ? time_nap(ctx, c, 50, 60, env) : time_nap(ctx, c, 1, 3, env);
}

static bool hangs(const pb_case *c)
{
    static const char *const modes[] = {"hang", "hangonce", "hangatexit", "hanglast", "dawdle", "paced", NULL};
    int i = 0;
    while (modes[i] && strcmp(pb_case_get(c, "mode"), modes[i]) != 0) i++;
    return modes[i] != NULL;
}

/* ---- suite toy: cases of several ranks, of which the last one behaves differently ---------------------- */

static pb_status differ(pb_ctx *ctx, const pb_suite_env *env, const pb_case *c)
{
    const char *mode = pb_case_get(c, "mode");
    const bool last = !env->lockstep || pb_world_rank(env->lockstep->world) == pb_lockstep_size(env->lockstep) - 1;
    if (last && strcmp(mode, "rankfails") == 0) return pb_fail(PB_EINVAL, "the last rank said no");
    if (last && strcmp(mode, "rankdies") == 0) raise(SIGKILL);
    if (last && strcmp(mode, "rankhangs") == 0) sleep_for_ever();
    PB_TRY(pb_emit(env->emitter, c, "kernel_rate", 1e9, 0, PB_ROW_OK, ""));
    return time_nap(ctx, c, last ? 40 : 1, 3, env);
}

/* True if the text is in the command line of this process. */
static bool called_with(const char *text)
{
    char words[4096] = "";
    FILE *f = fopen("/proc/self/cmdline", "r");
    const size_t n = f ? fread(words, 1, sizeof words - 1, f) : 0;
    if (f) fclose(f);
    return n && memmem(words, n, text, strlen(text));
}

/* Returns true in a measuring process, false in the parent, which only plans. */
static bool is_process(void) { return called_with("--child-dir"); }

/* Replaces kill() in bench_fixture: while PB_UNKILLABLE is set, even SIGKILL does not end a process. */
int __real_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig) { return sig == SIGKILL && getenv("PB_UNKILLABLE") ? 0 : __real_kill(pid, sig); }

/* ---- suite toy: the axis `mode` selects what a case does ---------------------------------------------- */

static pb_status run_toy(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    const char *mode = pb_case_get(c, "mode");
    if (pb_env_ceiling(env, "copy_rate") < 1e10) return pb_fail(PB_EINVAL, "the ceilings were not measured first");
    if (hangs(c)) return hang(ctx, env, c);
    if (strncmp(mode, "rank", 4) == 0) return differ(ctx, env, c);
    if (strcmp(mode, "slow") == 0) return time_nap(ctx, c, 50, 100, env);
    if (strcmp(mode, "crash") == 0 && env->emitter->process == 1)
        signal(SIGSEGV, SIG_DFL), raise(SIGSEGV); /* a sanitizer must not catch it */
    if (strcmp(mode, "exit") == 0 && env->emitter->process == 1) exit(1);
    if (strcmp(mode, "failed") == 0) return pb_fail(PB_EDEVICE, "the device said no");
    if (strcmp(mode, "lost") == 0 && env->emitter->process == 1) return lose(ctx);
    if (strcmp(mode, "memory") == 0) return ask_too_much(ctx);
    if (strcmp(mode, "unsupported") == 0) return pb_fail(PB_EUNSUPPORTED, "not on this device");
    if (strcmp(mode, "wrong") == 0) return pb_emit(env->emitter, c, "error", 0.5, 0, PB_ROW_WRONG, "off by half");
    if (strcmp(mode, "nan") == 0) return pb_emit(env->emitter, c, "error", (double)NAN, 0, PB_ROW_OK, "");
    /* the same value on every machine, so that runs can be compared */
    PB_TRY(pb_emit(env->emitter, c, "kernel_rate", 1e9, 0, PB_ROW_OK, ""));
    return time_nap(ctx, c, 1, 3, env);
}

static pb_status check_toy(const pb_case *c)
{
    if (strcmp(pb_case_get(c, "mode"), "hangfirst") == 0 && is_process()) sleep_for_ever();
    if (strcmp(pb_case_get(c, "mode"), "few") == 0 && strcmp(pb_case_get(c, "batch"), "8") == 0)
        return pb_fail(PB_EINVAL, "mode few cannot be with batch 8");
    return strcmp(pb_case_get(c, "mode"), "never") == 0 ? pb_fail(PB_EINVAL, "mode never cannot be") : PB_OK;
}

/* Emits the number of cases that this process measured, ceilings included. */
static pb_status conclude_toy(pb_ctx *ctx, pb_emitter *emitter)
{
    pb_case c = {.suite = "requirement", .name = "T-1"};
    int n = 0;
    (void)ctx;
    for (; pb_emitted_key(emitter, n); n++)
        if (strstr(pb_emitted_key(emitter, n), "mode=hanglast") && emitter->process == 0) sleep_for_ever();
    pb_case_finish(&c);
    return pb_emit(emitter, &c, "requirement", n, 0, PB_ROW_PASS, "cases that were measured");
}

static double expect_toy(const pb_case *c)
{
    const bool soon = hangs(c) || strcmp(pb_case_get(c, "mode"), "rankhangs") == 0;
    return soon ? 0.05 : strcmp(c->name, "other") == 0 ? 10 : 2;
}

static const char *const toys[] = {"batch=1,2", "other batch=8", "batch=2", NULL};
static const char *const all_toys[] = {"batch=1,2,4,8 width=16,32", NULL};
static const pb_suite toy = {.name = "toy",
                             .ranks = true,
                             .what = "naps that behave as their mode says",
                             .axes = "batch=1 mode=fine width=16",
                             .grid = toys,
                             .full_grid = all_toys,
                             .check = check_toy,
                             .expect = expect_toy,
                             .run = run_toy,
                             .conclude = conclude_toy};

/* ---- suite clumsy: its grid has an invalid case ---- */

static const char *const clumsy_cases[] = {"mode=fine,never", NULL};
static const pb_suite clumsy = {.name = "clumsy",
                                .what = "a grid with a case that cannot be",
                                .axes = "batch=1 mode=fine",
                                .grid = clumsy_cases,
                                .check = check_toy,
                                .run = run_toy};

/* ---- suite paired: measures a simulated clock; environment variables set its speed and noise ------------------ */

/* A call takes 1 ms x n x FIXTURE_SPEED x exp(FIXTURE_NOISE z). z is normal, drawn from FIXTURE_SEED once per
 * process; each call has noise of its own, with 1 % of FIXTURE_NOISE. */
typedef struct made_up {
    double now, at[PB_MARK_SLOTS], seconds;
    uint64_t seed, draws;
    double noise;
} made_up;

static double normal(uint64_t seed, uint64_t i)
{
    return sqrt(-2 * log(1 - pb_uniform(seed, 2 * i))) * cos(8 * atan(1) * pb_uniform(seed, 2 * i + 1));
}

static pb_status made_up_work(pb_ctx *ctx, void *self)
{
    made_up *m = self;
    (void)ctx;
    m->now += m->seconds * exp(0.01 * m->noise * normal(m->seed, m->draws++));
    return PB_OK;
}
static pb_status made_up_delay(pb_ctx *ctx, double seconds)
{
    ((made_up *)ctx->priv)->now += seconds;
    return PB_OK;
}
static pb_status made_up_sync(pb_ctx *ctx)
{
    (void)ctx;
    return PB_OK;
}
static pb_status made_up_mark(pb_ctx *ctx, int slot)
{
    made_up *m = ctx->priv;
    m->at[slot] = m->now;
    return PB_OK;
}
static pb_status made_up_between(pb_ctx *ctx, int from, int to, double *seconds)
{
    const made_up *m = ctx->priv;
    *seconds = m->at[to] - m->at[from];
    return PB_OK;
}
static const pb_backend made_up_backend = {
    .name = "made-up", .sync = made_up_sync, .mark = made_up_mark, .between = made_up_between, .delay = made_up_delay};

static double number(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text ? atof(text) : otherwise;
}

/* True if the environment variable names a file that exists. */
static bool names_file(const char *name)
{
    const char *path = getenv(name);
    return path && access(path, F_OK) == 0;
}

/* Creates the file `mark`, if any, and waits for a signal. */
static void wait_for_signal(const char *mark)
{
    FILE *f = mark ? fopen(mark, "w") : NULL;
    if (f) fclose(f);
    while (!pb_interrupted()) nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

/* Runs a case of the suite `paired`. Three environment variables change it: FIXTURE_OUTLIER is a factor of the first
 * two samples, FIXTURE_NAP the ms for which the process sleeps; if FIXTURE_LACKS is set, kernel_time is not emitted.
 * Processes of a run from the fourth one on wait for a signal if FIXTURE_STALL is a part of their command line; they
 * create the file FIXTURE_STALLED when they begin to wait.
 * While the file FIXTURE_SLOW exists, calls take 4 times as long; while the file FIXTURE_WRONG exists, the result is
 * wrong. */
static pb_status run_paired(pb_ctx *real, const pb_case *c, const pb_suite_env *env)
{
    static made_up m; /* too large for the stack */
    pb_ctx ctx = {.be = &made_up_backend, .id = PB_CPU, .priv = &m};
    pb_timing t;
    const char *stall = getenv("FIXTURE_STALL");
    long n = 1;
    (void)real;
    PB_TRY(pb_case_int(c, "n", &n));
    m = (made_up){.noise = number("FIXTURE_NOISE", 0.001), .seed = (uint64_t)number("FIXTURE_SEED", 1) + (uint64_t)n};
    m.seconds = 1e-3 * (double)n * number("FIXTURE_SPEED", 1) * exp(m.noise * normal(m.seed, 1000));
    if (names_file("FIXTURE_SLOW")) m.seconds *= 4;
    if (names_file("FIXTURE_WRONG")) return pb_emit(env->emitter, c, "error", 0.5, 0, PB_ROW_WRONG, "off by half");
    const pb_measure_opts o =
        pb_env_measure_opts(env, (pb_measure_opts){.warmup = 1, .min_samples = 5, .max_samples = 5});
    if (env->emitter->process > 2 && stall && called_with(stall)) wait_for_signal(getenv("FIXTURE_STALLED"));
    if (getenv("FIXTURE_NAP")) nanosleep(&(struct timespec){.tv_nsec = 1000000 * (long)number("FIXTURE_NAP", 0)}, NULL);
    PB_TRY(pb_measure(&ctx, made_up_work, &m, &o, &t));
    for (int i = 0; i < 2; i++) t.seconds[i] *= number("FIXTURE_OUTLIER", 1);
    PB_TRY(pb_emit(env->emitter, c, "kernel_rate", 1e9, 0, PB_ROW_OK, ""));
    return getenv("FIXTURE_LACKS") ? PB_OK : pb_emit_timing(env->emitter, c, "kernel_time", &t, "");
}

static double expect_paired(const pb_case *c)
{
    (void)c;
    return 0.2;
}

static const char *const paired_cases[] = {"n=1,2,3", NULL};
static const pb_suite paired = {.name = "paired",
                                .what = "made-up times, for comparisons of executables",
                                .axes = "n=1",
                                .grid = paired_cases,
                                .expect = expect_paired,
                                .run = run_paired};

/* ---- suite alone: each case in a process of its own; the rows name the process ------------------------------- */

static pb_status run_alone(pb_ctx *ctx, const pb_case *c, const pb_suite_env *env)
{
    static int cases;
    const char *mode = pb_case_get(c, "mode");
    (void)ctx;
    if (cases++) return pb_fail(PB_EINVAL, "this process has measured a case before");
    if (strcmp(mode, "memory") == 0) return ask_too_much(ctx);
    if (strcmp(mode, "wait") == 0)
        while (names_file("FIXTURE_SLOW") && !pb_interrupted())
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    PB_TRY(pb_emit(env->emitter, c, "kernel_rate", getpid(), 0, PB_ROW_OK, ""));
    return pb_emit(env->emitter, c, "step_time", strcmp(pb_case_get(c, "n"), "1") == 0 ? 2 : 3, 0, PB_ROW_OK, "");
}

/* Emits the number of cases of the process number, whose rows the last process has read. */
static pb_status conclude_alone(pb_ctx *ctx, pb_emitter *emitter)
{
    pb_case c = {.suite = "requirement", .name = "T-2"};
    int n = 0;
    (void)ctx;
    while (pb_emitted_key(emitter, n)) n++;
    pb_case_finish(&c);
    return pb_emit(emitter, &c, "requirement", n, 0, PB_ROW_PASS, "cases that were measured");
}

static const char *const lone_cases[] = {"n=1,2,3", NULL};
static const pb_suite alone = {.name = "alone",
                               .what = "cases that must not share a process",
                               .alone = true,
                               .axes = "mode=fine n=1",
                               .grid = lone_cases,
                               .run = run_alone,
                               .conclude = conclude_alone};

/* ---- suite refused: no measuring process can start; the parent writes its pid to the file FIXTURE_PLANNED ---- */

static pb_status enumerate_once(pb_ctx *ctx, bool full, pb_status (*add)(void *user, const pb_case *c), void *user)
{
    const char *planned = getenv("FIXTURE_PLANNED");
    FILE *f = fopen(planned ? planned : "/dev/null", "a+");
    pb_case c = {.suite = "refused", .name = "step"};
    int first = 0;
    (void)ctx, (void)full;
    if (!f) return pb_fail(PB_EIO, "FIXTURE_PLANNED=%s cannot be written", planned);
    rewind(f);
    if (fscanf(f, "%d", &first) != 1) rewind(f), fprintf(f, "%d", getpid());
    fclose(f);
    if (first && first != getpid()) return pb_fail(PB_ENOMEM, "no memory for a process");
    pb_case_finish(&c);
    return add(user, &c);
}
static const pb_suite refused = {.name = "refused",
                                 .what = "a process that cannot begin",
                                 .axes = "",
                                 .enumerate = enumerate_once,
                                 .run = run_ceiling};

const pb_suite *const pb_suites[] = {&ceiling, &toy, &clumsy, &paired, &alone, &refused, NULL};
