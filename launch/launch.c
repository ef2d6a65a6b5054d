/* launch.c - the launcher: starts mpirun, waits for it, and prints what failed ranks wrote. */
#include "launch/launch.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
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

extern char **environ;

struct pb_launch_state {
    pb_launch_job job;
    pb_monitor *monitor;
    char address[sizeof PB_LAUNCH_VARIABLE + 1 + PB_LAUNCH_ADDRESS]; /* "PB_LAUNCH=..." */
    char errors[sizeof "PB_LAUNCH_ERRORS=" + PATH_MAX];              /* "PB_LAUNCH_ERRORS=..." */
    const char *folder;                                              /* the folder in it */
    char self[PATH_MAX], count[16];
    const char *mpirun, **command, **environment;
};

/* ---- becoming mpirun ---------------------------------------------------------------------------------- */

/* True if both entries "NAME=value" have the same name. */
static bool same_name(const char *a, const char *b)
{
    const size_t n = strcspn(a, "=") + 1;
    return strncmp(a, b, n) == 0;
}

/* Puts the entry into the environment of mpirun, which has room for it; replaces an entry of the same name, or leaves
 * it if `keep`. */
static void put(const char **environment, const char *entry, bool keep)
{
    size_t i = 0;
    while (environment[i] && !same_name(environment[i], entry)) i++;
    if (!environment[i] || !keep) environment[i] = entry;
}

static pb_status make_environment(pb_launch_state *l)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    enum { OWN = 4 };
    size_t had = 0, more = 0;
    while (environ[had]) had++;
    while (l->job.environment && l->job.environment[more]) more++;
    l->environment = calloc(had + more + OWN + 1, sizeof *l->environment);
    if (!l->environment) return pb_fail(PB_ENOMEM, "no memory for the environment of %s", l->mpirun);
    for (size_t i = 0; i < had; i++) l->environment[i] = environ[i];
    for (size_t i = 0; i < more; i++) put(l->environment, l->job.environment[i], false);
    put(l->environment, l->address, false);
    put(l->environment, l->errors, false);
    if (l->job.ranks <= processors) return PB_OK;
    put(l->environment, "OMP_NUM_THREADS=1", true);
    put(l->environment, "OMPI_MCA_mpi_yield_when_idle=1", true);
    return PB_OK;
}

/* Makes the command line of mpirun. The launcher alone decides when the job ends, because mpirun would not say which
 * rank was the first to fail. */
static pb_status make_command(pb_launch_state *l)
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
    while (l->job.argv[given]) given++;
    l->command = calloc(most + given + 1, sizeof *l->command);
    if (!l->command) return pb_fail(PB_ENOMEM, "no memory for the command line of %s", l->mpirun);
    snprintf(l->count, sizeof l->count, "%d", l->job.ranks);
    for (size_t i = 0; i < most; i++) l->command[n++] = own[i];
    l->command[n++] = l->self;
    for (size_t i = 1; i < given; i++) l->command[n++] = l->job.argv[i];
    return PB_OK;
}

void pb_launch_become(const pb_launch_state *l)
{
    execvpe(l->mpirun, (char *const *)l->command, (char *const *)l->environment);
    _exit(MISSING);
}

static void become_mpirun(const void *self, int pipe_fd)
{
    (void)pipe_fd;
    pb_launch_become(self);
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

int pb_launch_wake(const pb_launch_state *l) { return pb_monitor_wake(l->monitor); }
void pb_launch_stop(void *launch, int sig) { pb_monitor_stop(((pb_launch_state *)launch)->monitor, sig); }
const char *pb_launch_loss(const pb_launch_state *l) { return pb_monitor_loss(l->monitor); }
const char *pb_launch_behind(const pb_launch_state *l) { return pb_monitor_behind(l->monitor); }

/* Prints the end of the errors of rank r, with its number before each line, and deletes the file. */
static void print_errors(const pb_launch_state *l, int r)
{
    char path[PATH_MAX + 32], line[1024];
    snprintf(path, sizeof path, "%s/rank%d", l->folder, r);
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

static pb_status explain(const pb_launch_state *l, int status, int joined, int *code)
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

pb_status pb_launch_finish(pb_launch_state *l, int status, int *exit_code)
{
    int joined = 0;
    *exit_code = pb_monitor_finish(l->monitor, &joined);
    if (joined && joined < l->job.ranks && *exit_code == 0) *exit_code = LOST_CODE;
    for (int r = 1; r < l->job.ranks; r++) print_errors(l, r);
    return explain(l, status, joined, exit_code);
}

/* ---- opening and closing ------------------------------------------------------------------------------ */

static pb_status open_monitor(pb_launch_state *l)
{
    const char *host = getenv("PB_LAUNCH_HOST"), *port = getenv("PB_LAUNCH_PORT");
    char *end = NULL;
    const long number = port ? strtol(port, &end, 10) : 0;
    if (port && (!*port || *end || number < 1 || number > 65535))
        return pb_fail(PB_EINVAL, "PB_LAUNCH_PORT='%s' is not a port: a number from 1 to 65535", port);
    const pb_monitor_options o = {.program = l->job.program,
                                  .listen = host ? host : "127.0.0.1",
                                  .port = (int)number,
                                  .size = l->job.ranks,
                                  .timeout = l->job.rank_timeout,
                                  .self = -1};
    PB_TRY(pb_monitor_open(&o, &l->monitor));
    const int n = snprintf(l->address, sizeof l->address, "%s=", PB_LAUNCH_VARIABLE);
    pb_monitor_address(l->monitor, l->address + n);
    return PB_OK;
}

static pb_status open_all(pb_launch_state *l)
{
    const char *tmp = getenv("TMPDIR"), *mpirun = getenv("PB_MPIRUN");
    const ssize_t n = readlink("/proc/self/exe", l->self, sizeof l->self - 1);
    if (n <= 0) return pb_fail(PB_EIO, "/proc/self/exe: %s", strerror(errno));
    l->mpirun = mpirun && *mpirun ? mpirun : "mpirun";
    snprintf(l->errors, sizeof l->errors, "PB_LAUNCH_ERRORS=%s/plumb-ranks-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    char *folder = strchr(l->errors, '=') + 1;
    if (!mkdtemp(folder)) return pb_fail_errno(errno, "%s", folder);
    l->folder = folder;
    pb_interrupt_watch();
    PB_TRY(open_monitor(l));
    PB_TRY(make_command(l));
    return make_environment(l);
}

void pb_launch_close(pb_launch_state *l)
{
    if (!l) return;
    pb_monitor_close(l->monitor);
    if (l->folder) rmdir(l->folder);
    free(l->command);
    free(l->environment);
    free(l);
}

pb_status pb_launch_open(const pb_launch_job *job, pb_launch_state **out)
{
    pb_launch_state *l = calloc(1, sizeof *l);
    if (!l) return pb_fail(PB_ENOMEM, "no memory to start %d ranks", job->ranks);
    l->job = *job;
    const pb_status s = open_all(l);
    if (s == PB_OK) *out = l;
    else pb_launch_close(l);
    return s;
}

static pb_status run(pb_launch_state *l, int *code)
{
    pb_child child = {0};
    PB_TRY(pb_start(become_mpirun, l, &child.pid, &child.pipe));
    const pb_supervision rules = {
        .grace = PB_RANK_GRACE, .abandon = true, .wake = pb_launch_wake(l), .stop = pb_launch_stop, .user = l};
    pb_supervise(&rules, &child, 1);
    close(child.pipe);
    return pb_launch_finish(l, child.status, code);
}

pb_status pb_launch(const pb_launch_job *job, int *exit_code)
{
    pb_launch_state *l;
    PB_TRY(pb_launch_open(job, &l));
    const pb_status s = run(l, exit_code);
    pb_launch_close(l);
    return s;
}
