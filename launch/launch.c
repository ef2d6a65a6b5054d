/* launch.c - the launcher: starts mpirun, waits for it, and prints what failed ranks wrote. */
#include "launch/launch.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/monitor.h"
#include "launch/start.h"
#include "launch/supervise.h"
#include "os/interrupt.h"

enum { LOST_CODE = 125, MISSING = 127 };

typedef struct launch {
    const pb_launch_job *job;
    pb_monitor *monitor;
    char address[PB_LAUNCH_ADDRESS], errors[PATH_MAX], self[PATH_MAX];
    const char *mpirun, **command;
    char count[16];
} launch;

/* ---- becoming mpirun ---------------------------------------------------------------------------------- */

static void set_environment(const launch *l)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    setenv(PB_LAUNCH_VARIABLE, l->address, 1);
    setenv("PB_LAUNCH_ERRORS", l->errors, 1);
    if (l->job->ranks <= processors) return;
    setenv("OMP_NUM_THREADS", "1", 0);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

/* Makes the command line of mpirun. The launcher alone decides when the job ends, because mpirun would not say which
 * rank was the first to fail. */
static pb_status make_command(launch *l)
{
    const char *own[] = {l->mpirun,
                         "-q",
                         "-np",
                         l->count,
                         "--oversubscribe",
                         "--bind-to",
                         "none",
                         "--mca",
                         "orte_abort_on_non_zero_status",
                         "0",
                         "-x",
                         PB_LAUNCH_VARIABLE,
                         "-x",
                         "PB_LAUNCH_ERRORS",
                         "--allow-run-as-root"};
    const size_t most = sizeof own / sizeof *own - (geteuid() != 0);
    size_t given = 0, n = 0;
    while (l->job->argv[given]) given++;
    l->command = calloc(most + given + 1, sizeof *l->command);
    if (!l->command) return pb_fail(PB_ENOMEM, "no memory for the command line of %s", l->mpirun);
    snprintf(l->count, sizeof l->count, "%d", l->job->ranks);
    for (size_t i = 0; i < most; i++) l->command[n++] = own[i];
    l->command[n++] = l->self;
    for (size_t i = 1; i < given; i++) l->command[n++] = l->job->argv[i];
    return PB_OK;
}

/* The forked process only replaces itself: it may not allocate, because another thread of the launcher may have held
 * the allocator's lock during the fork. */
static _Noreturn void become_mpirun(const void *self, int pipe_fd)
{
    const launch *l = self;
    (void)pipe_fd;
    execvp(l->mpirun, (char *const *)l->command);
    _exit(MISSING);
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

static void stop_ranks(void *user, int sig) { pb_monitor_stop(user, sig); }

/* Prints the end of the errors of rank r, with its number before each line, and deletes the file. */
static void print_errors(const launch *l, int r)
{
    char path[PATH_MAX + 32], line[1024];
    snprintf(path, sizeof path, "%s/rank%d", l->errors, r);
    FILE *f = fopen(path, "r");
    if (!f) return;
    enum { MOST = 8192 };
    if (pb_monitor_failed(l->monitor, r)) {
        if (fseek(f, -MOST, SEEK_END) == 0) (void)!fgets(line, sizeof line, f); /* the rest of a line */
        else rewind(f);
        while (fgets(line, sizeof line, f)) fprintf(stderr, "rank %d: %s%s", r, line, strchr(line, '\n') ? "" : "\n");
    }
    fclose(f);
    unlink(path);
}

static pb_status explain(const launch *l, int status, int joined, int *code)
{
    const bool exited = WIFEXITED(status);
    if (joined) return PB_OK;
    if (exited && WEXITSTATUS(status) == MISSING)
        return pb_fail(PB_EUNSUPPORTED, "%s cannot be started; ranks need Open MPI: apt-get install openmpi-bin",
                       l->mpirun);
    *code = LOST_CODE;
    return pb_interrupted()
               ? PB_OK
               : pb_fail(PB_EIO, "%s ended %s %d before a rank had connected", l->mpirun,
                         exited ? "with exit code" : "by signal", exited ? WEXITSTATUS(status) : WTERMSIG(status));
}

static pb_status run(launch *l, int *code)
{
    pb_child child = {0};
    int joined = 0;
    PB_TRY(make_command(l));
    set_environment(l);
    PB_TRY(pb_start(become_mpirun, l, &child.pid, &child.pipe));
    const pb_supervision rules = {.grace = PB_RANK_GRACE,
                                  .abandon = true,
                                  .wake = pb_monitor_wake(l->monitor),
                                  .stop = stop_ranks,
                                  .user = l->monitor};
    pb_supervise(&rules, &child, 1);
    close(child.pipe);
    *code = pb_monitor_finish(l->monitor, &joined);
    if (joined && joined < l->job->ranks && *code == 0) *code = LOST_CODE;
    for (int r = 1; r < l->job->ranks; r++) print_errors(l, r);
    return explain(l, child.status, joined, code);
}

static pb_status open_monitor(launch *l)
{
    const char *host = getenv("PB_LAUNCH_HOST"), *port = getenv("PB_LAUNCH_PORT");
    char *end = NULL;
    const long number = port ? strtol(port, &end, 10) : 0;
    if (port && (!*port || *end || number < 1 || number > 65535))
        return pb_fail(PB_EINVAL, "PB_LAUNCH_PORT='%s' is not a port: a number from 1 to 65535", port);
    const pb_monitor_options o = {.program = l->job->program,
                                  .listen = host ? host : "127.0.0.1",
                                  .port = (int)number,
                                  .size = l->job->ranks,
                                  .timeout = l->job->rank_timeout,
                                  .self = -1};
    PB_TRY(pb_monitor_open(&o, &l->monitor));
    pb_monitor_address(l->monitor, l->address);
    return PB_OK;
}

pb_status pb_launch(const pb_launch_job *job, int *exit_code)
{
    const char *tmp = getenv("TMPDIR"), *mpirun = getenv("PB_MPIRUN");
    launch l = {.job = job, .mpirun = mpirun && *mpirun ? mpirun : "mpirun"};
    const ssize_t n = readlink("/proc/self/exe", l.self, sizeof l.self - 1);
    if (n <= 0) return pb_fail(PB_EIO, "/proc/self/exe: %s", strerror(errno));
    snprintf(l.errors, sizeof l.errors, "%s/plumb-ranks-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(l.errors)) return pb_fail_errno(errno, "%s", l.errors);
    pb_interrupt_watch();
    pb_status s = open_monitor(&l);
    if (s == PB_OK) s = run(&l, exit_code);
    pb_monitor_close(l.monitor);
    rmdir(l.errors);
    free(l.command);
    return s;
}
