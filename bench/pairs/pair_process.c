/* pair_process.c - starts the executables of a pair, waits for them, and passes on signals and the deadline. */
#define _GNU_SOURCE
#include "bench/pairs/pair_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/run/run.h"
#include "launch/start.h"
#include "launch/supervise.h"
#include "os/append.h"
#include "os/file.h"

/* ---- the child -------------------------------------------------------------------------------------- */

static void pad(long n)
{
    char text[PB_PAIR_PADDING + 1];
    memset(text, 'x', sizeof text);
    text[n < PB_PAIR_PADDING ? n : PB_PAIR_PADDING] = 0;
    setenv(PB_PAIR_PADDING_NAME, text, 1);
}

/* A process and its ends of the two interleaving pipes; from, to: -1 without interleaving. */
typedef struct child {
    const pb_pair_process *l;
    double time_slice;
    int from, to, first;
    int log; /* descriptor of the log, opened for appending */
} child;

static char **command(const child *c)
{
    enum { OWN = 16, TEXT = 96 };
    static char seed[TEXT], slowdown[TEXT], slices[TEXT]; /* static: they must outlive this function until execv() */
    const pb_pair_process *l = c->l;
    const size_t n = json_array_size(l->options);
    const char **argv = calloc(n + OWN, sizeof *argv);
    size_t at = 0;
    if (!argv) return NULL;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)l->seed);
    snprintf(slowdown, sizeof slowdown, "%.17g", l->slowdown);
    snprintf(slices, sizeof slices, "%.17g:%d:%d:%d", c->time_slice, c->from, c->to, c->first);
    /* Uses the old names of options (renames.def), because a program built before the renaming knows only these. */
    argv[at++] = l->exe, argv[at++] = "run";
    for (size_t i = 0; i < n; i++) argv[at++] = json_string_value(json_array_get(l->options, i));
    const char *const own[] = {"--launches", "1", "--no-compare", "--quiet", "--seed", seed, "--out", l->out};
    memcpy(&argv[at], own, sizeof own);
    at += sizeof own / sizeof *own;
    if (l->slowdown > 0) argv[at++] = "--child-slowdown", argv[at++] = slowdown;
    if (c->time_slice > 0) argv[at++] = "--child-turns", argv[at++] = slices;
    return (char **)argv;
}

/* Replaces the child by the executable. pipe_fd stays open on purpose, also in processes that the child starts: the
 * parent reads end-of-file when all of them have ended. */
static _Noreturn void become(const void *self, int pipe_fd)
{
    const child *c = self;
    const pb_pair_process *l = c->l;
    (void)pipe_fd;
    const int none = open("/dev/null", O_RDONLY);
    char **argv = command(c);
    dup2(c->log, STDOUT_FILENO), dup2(c->log, STDERR_FILENO);
    if (none >= 0) dup2(none, STDIN_FILENO);
    if (c->from >= 0) fcntl(c->from, F_SETFD, 0), fcntl(c->to, F_SETFD, 0);
    pad(l->padding);
    setenv("PB_DISTURBANCE", "ignore", 1); /* process_state.h says why */
    setenv("PB_CONTROLS", "no", 1);        /* bench/run/controls.h says why; an older executable has no option for it */
    signal(SIGPIPE, SIG_DFL), signal(SIGXFSZ, SIG_DFL);
    if (argv) execv(l->exe, argv);
    fprintf(stderr, "%s: %s\n", l->exe, strerror(errno));
    _exit(PB_PAIR_CANNOT_RUN);
}

/* ---- the parent --------------------------------------------------------------------------------------- */

_Static_assert((int)PB_PAIR_PROCESSES <= (int)PB_CHILDREN, "both processes of a pair are supervised at once");

/* Makes the two pipes between the interleaved processes, one for each direction. */
static pb_status connect_slices(child c[PB_PAIR_PROCESSES])
{
    int there[2], back[2];
    if (pipe2(there, O_CLOEXEC) != 0) return pb_fail(PB_EIO, "pipe: %s", strerror(errno));
    if (pipe2(back, O_CLOEXEC) != 0) {
        close(there[0]), close(there[1]);
        return pb_fail(PB_EIO, "pipe: %s", strerror(errno));
    }
    c[0].to = there[1], c[1].from = there[0];
    c[1].to = back[1], c[0].from = back[0];
    return PB_OK;
}

/* Closes the pipes and fills in out[n]. Returns true if a process was ended by the deadline or by a signal. */
static bool ended(const pb_child *c, int n, pb_pair_ended *out)
{
    bool stopped = false;
    for (int i = 0; i < n; i++) {
        const int status = c[i].status;
        close(c[i].pipe);
        out[i].seconds = c[i].took;
        out[i].code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        stopped |= c[i].late || c[i].signalled;
    }
    return stopped;
}

pb_status pb_pair_process_run(const pb_pair_process *l, int n, double time_slice, double deadline, pb_pair_ended *out,
                              bool *cut)
{
    /* The first signal ends an executable in an orderly way, whichever it was. `grace` is longer than PB_GRACE, which
     * the executable itself gives to its measuring process. */
    const pb_supervision rules = {.deadline = deadline, .grace = 15, .forward = SIGTERM};
    child c[PB_PAIR_PROCESSES];
    pb_child started[PB_PAIR_PROCESSES] = {0};
    int made = 0;
    for (int i = 0; i < PB_PAIR_PROCESSES; i++)
        c[i] = (child){.time_slice = time_slice, .from = -1, .to = -1, .first = i == 0};
    if (time_slice > 0) PB_TRY(connect_slices(c));
    pb_status s = PB_OK;
    for (; made < n && s == PB_OK; made += s == PB_OK) {
        c[made].l = &l[made];
        s = pb_append_open(l[made].log, true, &c[made].log);
        if (s != PB_OK) break;
        s = pb_start(become, &c[made], &started[made].pid, &started[made].pipe);
        close(c[made].log);
    }
    for (int i = 0; i < PB_PAIR_PROCESSES && time_slice > 0; i++) close(c[i].from), close(c[i].to);
    if (s != PB_OK) pb_kill_children(started, made);
    pb_supervise(&rules, started, made);
    const bool stopped = ended(started, made, out);
    if (s == PB_OK) *cut = stopped;
    return s;
}

void pb_pair_log_tail(const char *log, char *out, size_t n)
{
    char line[512];
    FILE *f;
    *out = 0;
    if (pb_file_read(log, &f) != PB_OK) return;
    if (fseek(f, -4096, SEEK_END) != 0) rewind(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line) snprintf(out, n, "%s", line);
    }
    fclose(f);
}
