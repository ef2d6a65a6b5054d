/* counted.c - a run with --counters: checks its options and the machine. */
#include "bench/run/counted.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/measure/measure.h"
#include "bench/suites/suites.h"

/* Returns the first option that counting excludes, with the reason; NULL: none. */
static const char *excluded(const pb_options *o, pb_backend_id device)
{
    if (o->instructions) return "--instructions: both count";
    if (o->profile_out) return "--profile-out: a trace and counters never share a process";
    if (o->ranks > 1) return "--ranks: a kernel that waits for another rank cannot be run again for each pass";
    if (o->samples > 0) return "--samples: each case is counted in 10 calls";
    if (o->min_time >= 0) return "--min-time: each case is counted in 10 calls";
    if (o->ceilings && strcmp(o->ceilings, "yes") == 0) return "--ceilings yes: ceilings are times";
    if (device == PB_CPU && o->threads > 1) return "--threads: the events of one thread are counted";
    return NULL;
}

static pb_status check_suite(const char *name)
{
    char names[128] = "";
    const pb_suite *suite = name ? pb_suite_find(name) : NULL;
    if (!suite || suite->counted) return PB_OK; /* the plan refuses an unknown suite */
    for (const pb_suite *const *s = pb_suites; *s; s++)
        if ((*s)->counted)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? ", " : "", (*s)->name);
    return pb_fail(
        PB_EINVAL,
        "--counters: suite %s measures graphs, steps or ranks, whose kernels cannot be run again one by one; "
        "events are counted in %s",
        name, names);
}

pb_status pb_counted_options(pb_options *o)
{
    pb_counter_group g;
    pb_backend_id device;
    if (!o->counters) return PB_OK;
    PB_TRY(pb_options_backend(o, &device));
    const char *other = excluded(o, device);
    if (other) return pb_fail(PB_EINVAL, "--counters excludes %s", other);
    PB_TRY(check_suite(o->suite));
    PB_TRY(pb_group_counter_find(o->counters, device, &g));
    o->ceilings = "no";
    if (device == PB_CPU) o->threads = 1;
    return PB_OK;
}

/* ---- trying it ---------------------------------------------------------------------------------------- */

static pb_status try_here(const pb_options *o, pb_backend_id device)
{
    pb_ctx ctx;
    pb_group_counter counter;
    PB_TRY(pb_ctx_open(&ctx, device, 0));
    const pb_status s = pb_group_counter_open(o->counters, &ctx, &counter);
    if (s == PB_OK) pb_group_counter_close(&counter);
    pb_ctx_close(&ctx);
    return s;
}

/* The child: writes what went wrong into the pipe; its exit code is the status. */
static _Noreturn void try_and_tell(const pb_options *o, pb_backend_id device, int pipe_end)
{
    const pb_status s = try_here(o, device);
    const char *why = s == PB_OK ? "" : pb_error();
    const ssize_t told = write(pipe_end, why, strlen(why));
    _exit(told < 0 ? (int)PB_EIO : (int)s);
}

/* A process of its own, because the process that starts the measuring ones creates no CUDA context. */
pb_status pb_counted_begin(const pb_options *o)
{
    char why[400] = "";
    int ends[2], code = 0;
    pb_backend_id device;
    if (!o->counters || o->dry_run) return PB_OK;
    PB_TRY(pb_options_backend(o, &device));
    if (pipe(ends) != 0) return pb_fail_errno(errno, "a pipe");
    const pid_t pid = fork();
    if (pid == 0) try_and_tell(o, device, ends[1]);
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got = 1; pid > 0 && got > 0 && n<sizeof why - 1; n += got> 0 ? (size_t)got : 0)
        got = read(ends[0], why + n, sizeof why - 1 - n);
    close(ends[0]);
    why[n] = 0;
    if (pid < 0) return pb_fail_errno(errno, "a process that tries to count");
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR) continue;
    if (WIFEXITED(code) && WEXITSTATUS(code) == PB_OK) return PB_OK;
    if (WIFEXITED(code)) return pb_fail((pb_status)WEXITSTATUS(code), "%s", why);
    return pb_fail(PB_EDEVICE, "--counters %s: the process that tried to count was ended by signal %d", o->counters,
                   WTERMSIG(code));
}

pb_status pb_counted_name(const pb_options *o, char out[PB_COUNTED_NAME])
{
    pb_counter_group g;
    PB_TRY(pb_group_find(o->counters, &g));
    snprintf(out, PB_COUNTED_NAME, "%s of %s", g.name, g.chip);
    return PB_OK;
}
