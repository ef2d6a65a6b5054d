/* pair_launch.c - starts the executable of one side, waits for it, passes signals and the deadline on. */
#define _GNU_SOURCE
#include "bench/pair_launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/start.h"
#include "kernels/core/clock.h"

/* ---- the child -------------------------------------------------------------------------------------- */

static void pad(long n)
{
    char text[PB_PAIR_PADDING + 1];
    memset(text, 'x', sizeof text);
    text[n < PB_PAIR_PADDING ? n : PB_PAIR_PADDING] = 0;
    setenv(PB_PAIR_PADDING_NAME, text, 1);
}

static char **command(const pb_pair_launch *l)
{
    enum { OWN = 16 };
    static char seed[32], slowdown[32]; /* of a process that is about to become another */
    const size_t n = json_array_size(l->options);
    const char **argv = calloc(n + OWN, sizeof *argv);
    size_t at = 0;
    if (!argv) return NULL;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)l->seed);
    snprintf(slowdown, sizeof slowdown, "%.17g", l->slowdown);
    argv[at++] = l->exe, argv[at++] = "run";
    for (size_t i = 0; i < n; i++) argv[at++] = json_string_value(json_array_get(l->options, i));
    const char *const own[] = {"--launches", "1",     "--no-compare", "--quiet",          "--seed",
                               seed,         "--out", l->out,         "--child-slowdown", slowdown};
    const size_t words = sizeof own / sizeof *own - (l->slowdown > 0 ? 0 : 2);
    memcpy(&argv[at], own, words * sizeof *own);
    return (char **)argv;
}

/* The child and its own launches hold the pipe's end until they have ended. */
static _Noreturn void become(const void *self, int pipe_fd)
{
    const pb_pair_launch *l = self;
    (void)pipe_fd;
    const int log = open(l->log, O_WRONLY | O_APPEND | O_CREAT, 0666), none = open("/dev/null", O_RDONLY);
    char **argv = command(l);
    if (log >= 0) dup2(log, STDOUT_FILENO), dup2(log, STDERR_FILENO);
    if (none >= 0) dup2(none, STDIN_FILENO);
    pad(l->padding);
    signal(SIGPIPE, SIG_DFL), signal(SIGXFSZ, SIG_DFL);
    if (argv) execv(l->exe, argv);
    fprintf(stderr, "%s: %s\n", l->exe, strerror(errno));
    _exit(PB_PAIR_CANNOT_RUN);
}

/* ---- the parent --------------------------------------------------------------------------------------- */

/* Until the other end is closed. A signal goes on to the child, the second one kills it; so does a deadline that the
 * child does not heed. */
static bool follow(const pb_pair_launch *l, pid_t pid, int ended)
{
    const double patience = 15;
    double deadline = l->deadline;
    int passed = 0, late = 0;
    for (;;) {
        const double rest = deadline > 0 ? deadline - pb_clock_seconds() : 86400;
        struct pollfd p = {.fd = ended, .events = POLLIN};
        const int n = rest > 0 ? poll(&p, 1, (int)(1e3 * (rest < 86400 ? rest : 86400)) + 1) : 0;
        for (; passed < pb_interrupt_count(); passed++) kill(pid, passed ? SIGKILL : SIGTERM);
        if (n > 0) return late || passed;
        if (deadline > 0 && pb_clock_seconds() >= deadline) {
            kill(pid, late++ ? SIGKILL : SIGTERM);
            deadline = pb_clock_seconds() + patience;
        }
    }
}

pb_status pb_pair_launch_run(const pb_pair_launch *l, int *code, double *seconds, bool *cut)
{
    pid_t pid = -1;
    int ended = -1, status = 0;
    const double began = pb_clock_seconds();
    PB_TRY(pb_start(become, l, &pid, &ended));
    *cut = follow(l, pid, ended);
    close(ended);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    *seconds = pb_clock_seconds() - began;
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return PB_OK;
}

void pb_pair_log_tail(const char *log, char *out, size_t n)
{
    char line[512];
    FILE *f = fopen(log, "r");
    *out = 0;
    if (!f) return;
    if (fseek(f, -4096, SEEK_END) != 0) rewind(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (*line) snprintf(out, n, "%s", line);
    }
    fclose(f);
}
