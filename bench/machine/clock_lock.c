/* clock_lock.c - the keeper process that locks the GPU's clocks, and the functions with which a run starts and ends it.
 * Keeper and run share a socket. The keeper sends one line when the clocks are locked and one when they are reset; the
 * line is empty, or it is an error message. */
#define _GNU_SOURCE
#include "bench/machine/clock_lock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/machine/nvml.h"
#include "bench/rows/rows.h"

enum { SAID = 256 };

/* ---- the keeper process ----------------------------------------------------------------------------- */

/* Sends one line. False: the run has closed its end of the socket. */
static bool say(int fd, const char *text)
{
    char line[SAID];
    const int n = snprintf(line, sizeof line, "%.*s\n", SAID - 2, text);
    return send(fd, line, (size_t)n, MSG_NOSIGNAL) == n;
}

static void until_closed(int fd)
{
    char byte;
    ssize_t n;
    do n = read(fd, &byte, 1);
    while (n > 0 || (n < 0 && errno == EINTR));
}

static pb_status keep(pb_nvml *n, const char *what, int fd)
{
    PB_TRY(pb_nvml_lock_clocks(n, what));
    say(fd, "");
    until_closed(fd);
    return pb_nvml_reset_clocks(n);
}

pb_exit pb_clock_keeper(const char *clocks, const char *device, int fd)
{
    const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    pb_backend_id id;
    int number;
    pb_nvml *n = NULL;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    pb_status s = pb_device_find(device, &id, &number);
    if (s == PB_OK) s = pb_nvml_open(id, &n);
    if (s == PB_OK) s = keep(n, clocks, fd);
    const bool heard = say(fd, s == PB_OK ? "" : pb_error());
    pb_nvml_close(n);
    return s == PB_OK ? PB_EXIT_OK : heard ? PB_EXIT_HARNESS : pb_complain(PB_EXIT_HARNESS);
}

/* ---- functions that a run calls --------------------------------------------------------------------- */

pb_status pb_clock_lock_check(const char *clocks, const char *device)
{
    pb_backend_id id;
    int number;
    if (!clocks) return PB_OK;
    PB_TRY(pb_nvml_check_clocks(clocks));
    PB_TRY(pb_device_find(device, &id, &number));
    return pb_nvml_concerns(id) ? PB_OK : pb_fail(PB_EINVAL, "--lock-gpu-clocks is for --device cuda");
}

static _Noreturn void become_keeper(const char *clocks, const char *device, int fd)
{
    char number[32];
    const char *argv[] = {"bench", "run", "--child-clocks", clocks, "--device", device, "--child-pipe", number, NULL};
    snprintf(number, sizeof number, "%d", fd);
    setsid(); /* detaches from the terminal, whose Ctrl-C would end the keeper */
    execv("/proc/self/exe", (char *const *)argv);
    _exit(PB_EXIT_HARNESS);
}

/* Reads the keeper's next line. EDEVICE: the line is an error message, or the keeper has ended. */
static pb_status listen_to(int fd)
{
    char line[SAID];
    size_t n = 0;
    while (n < sizeof line) {
        const ssize_t got = read(fd, line + n, 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return pb_fail(
                PB_EDEVICE,
                "the process that holds the GPU's clock lock has ended; reset the clocks with nvidia-smi -rgc");
        if (line[n] == '\n') break;
        n++;
    }
    return n ? pb_fail(PB_EDEVICE, "%.*s", (int)n, line) : PB_OK;
}

static void bury(pb_clock_lock *l)
{
    close(l->fd);
    while (waitpid(l->keeper, NULL, 0) < 0 && errno == EINTR) continue;
    *l = PB_CLOCKS_FREE;
}

pb_status pb_clock_lock_take(const char *clocks, const char *device, pb_clock_lock *out)
{
    int ends[2];
    *out = PB_CLOCKS_FREE;
    if (!clocks) return PB_OK;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return pb_fail(PB_EIO, "--lock-gpu-clocks: %s", strerror(errno));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) become_keeper(clocks, device, dup(ends[1])); /* the duplicate has no close-on-exec flag */
    close(ends[1]);
    pb_clock_lock l = {ends[0], pid};
    pb_status s = pid > 0 ? listen_to(l.fd) : pb_fail(PB_EIO, "--lock-gpu-clocks: %s", strerror(errno));
    if (s == PB_OK) *out = l;
    else if (pid > 0) bury(&l);
    else close(ends[0]);
    return s;
}

pb_status pb_clock_lock_release(pb_clock_lock *l)
{
    if (l->fd < 0) return PB_OK;
    shutdown(l->fd, SHUT_WR);
    const pb_status s = listen_to(l->fd);
    bury(l);
    return s;
}
