/* member.c - the helper thread of a rank: sends heartbeats, and obeys the monitor. */
#include "launch/member.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/engine/clock.h"
#include "launch/message.h"
#include "launch/monitor.h"
#include "ranks/socket.h"

enum { LOST_CODE = 125 };

static struct {
    int fd;
    pthread_t thread;
    pthread_mutex_t sending, calling; /* sending: also guards hello.device; calling: guards fn and self */
    pb_launch_message hello;          /* what every message says: token, rank, host, device */
    double every, silence; /* seconds between heartbeats; without a word of the monitor after which it is lost */
    atomic_bool leaving;
    atomic_int lost;
    void *self;
    void (*fn)(void *self, int code, const char *why);
    pb_monitor *hosted;
} me = {.fd = -1, .sending = PTHREAD_MUTEX_INITIALIZER, .calling = PTHREAD_MUTEX_INITIALIZER, .lost = -1};

bool pb_launched(void) { return getenv(PB_LAUNCH_VARIABLE) != NULL; }
int pb_launch_lost(void) { return me.lost; }

void pb_launch_on_lost(void (*fn)(void *self, int code, const char *why), void *self)
{
    (void)pthread_mutex_lock(&me.calling);
    me.self = self;
    me.fn = fn;
    if (fn && me.lost >= 0) fn(self, me.lost, "the job was lost before");
    (void)pthread_mutex_unlock(&me.calling);
}

static void copy(char *out, size_t n, const char *text) { snprintf(out, n, "%s", text ? text : ""); }

void pb_launch_device(const char *device)
{
    (void)pthread_mutex_lock(&me.sending);
    copy(me.hello.device, sizeof me.hello.device, device);
    (void)pthread_mutex_unlock(&me.sending);
}

static bool send_where(pb_launch_kind kind, int code)
{
    pb_where w;
    pthread_mutex_lock(&me.sending);
    pb_launch_message m = me.hello;
    pb_where_read(&w);
    m.kind = kind, m.code = code;
    m.progress = w.progress, m.step = w.step, m.sequence = w.sequence;
    copy(m.phase, sizeof m.phase, w.phase);
    copy(m.collective, sizeof m.collective, w.collective);
    for (int i = 0; i < PB_WHERE_PHASES; i++) {
        copy(m.phases[i].name, sizeof m.phases[i].name, w.phases[i].name);
        m.phases[i].least = w.phases[i].least, m.phases[i].middle = w.phases[i].middle;
    }
    const bool sent = pb_socket_send(me.fd, &m, sizeof m, pb_seconds() + me.silence) == PB_IO_OK;
    pthread_mutex_unlock(&me.sending);
    return sent;
}

/* Ends this process if it does not end by itself in time. */
static void *end_late(void *unused)
{
    const double end = pb_seconds() + PB_RANK_GRACE;
    (void)unused;
    while (pb_seconds() < end && !me.leaving) poll(NULL, 0, 20);
    if (!me.leaving) _exit(me.lost);
    return NULL;
}

/* The job is lost: calls the program's function. A thread of its own ends the process late, because the function may
 * not return. */
static void lose(int code, const char *why)
{
    pthread_t guard;
    (void)pthread_mutex_lock(&me.calling);
    me.lost = code;
    if (pthread_create(&guard, NULL, end_late, NULL) != 0) _exit(code);
    if (me.fn) me.fn(me.self, code, why);
    else raise(SIGTERM); /* a program without such a function stops as it does for this signal */
    (void)pthread_mutex_unlock(&me.calling);
    (void)pthread_join(guard, NULL);
}

/* Reads what the monitor says until the next heartbeat is due. Returns false when there is nothing more to hear. */
static bool listen_until(double due, double *heard)
{
    pb_launch_message m;
    do {
        const double left = due - pb_seconds();
        struct pollfd p = {.fd = me.fd, .events = POLLIN};
        if (poll(&p, 1, left > 0 ? (int)ceil(1e3 * left) : 0) <= 0) continue;
        if (pb_socket_receive(me.fd, &m, sizeof m, pb_seconds() + me.silence) != PB_IO_OK ||
            m.magic != PB_LAUNCH_MAGIC) {
            if (!me.leaving) lose(LOST_CODE, "the process that watches the ranks has ended");
            return false;
        }
        *heard = pb_seconds();
        m.text[sizeof m.text - 1] = 0;
        if (m.kind == PB_LAUNCH_STOP) kill(getpid(), m.code);
        if (m.kind == PB_LAUNCH_END) {
            lose(m.code, m.text);
            return false;
        }
    } while (pb_seconds() < due && !me.leaving);
    return true;
}

static void *beat(void *unused)
{
    double heard = pb_seconds(), last = heard;
    (void)unused;
    while (!me.leaving) {
        const double now = pb_seconds();
        if (now - last > 1 + me.every) heard += now - last; /* this process itself did not run */
        last = now;
        if (now - heard > me.silence) {
            lose(LOST_CODE, "the process that watches the ranks is silent");
            break;
        }
        if (!send_where(PB_LAUNCH_BEAT, 0) && !me.leaving) {
            lose(LOST_CODE, "the process that watches the ranks has ended");
            break;
        }
        if (!listen_until(now + me.every, &heard)) break;
    }
    return NULL;
}

/* ---- connecting --------------------------------------------------------------------------------------- */

/* Splits "ADDRESS:PORT:TOKEN:TIMEOUT". */
static pb_status parse(const char *text, char host[64], int *port, double *timeout)
{
    char token[PB_LAUNCH_TOKEN];
    if (!text || sscanf(text, "%63[^:]:%d:%32[0-9a-f]:%lf", host, port, token, timeout) != 4 ||
        strlen(token) != PB_LAUNCH_TOKEN - 1 || *port < 1 || *port > 65535 || !(*timeout > 0))
        return pb_fail(PB_EINVAL, PB_LAUNCH_VARIABLE " is not an address of a launcher; only the launcher sets it");
    memcpy(me.hello.token, token, sizeof token);
    return PB_OK;
}

/* Ranks of a launcher, except rank 0, print nothing; their errors go to a file that the launcher prints when they
 * fail. */
static pb_status redirect(int rank)
{
    char path[512];
    const char *dir = getenv("PB_LAUNCH_ERRORS");
    if (rank == 0) return PB_OK;
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDOUT_FILENO) < 0) return pb_fail_errno(errno, "/dev/null");
    close(null);
    snprintf(path, sizeof path, "%s/rank%d", dir ? dir : "", rank);
    const int fd = dir ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return PB_OK; /* on another host: mpirun passes it on */
    const int bad = dup2(fd, STDERR_FILENO);
    close(fd);
    return bad < 0 ? pb_fail_errno(errno, "%s", path) : PB_OK;
}

static pb_status start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&me.thread, NULL, beat, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? pb_fail(PB_EIO, "the thread that sends heartbeats cannot be started: %s", strerror(error)) : PB_OK;
}

pb_status pb_launch_join(const pb_launch_self *self, const char *address)
{
    char host[64];
    int port;
    double timeout;
    if (!address) PB_TRY(redirect(self->rank));
    PB_TRY(parse(address ? address : getenv(PB_LAUNCH_VARIABLE), host, &port, &timeout));
    me.every = fmin(1, timeout / 8);
    me.silence = fmax(1, fmin(PB_RANK_GRACE, timeout));
    me.hello.magic = PB_LAUNCH_MAGIC;
    me.hello.rank = self->rank, me.hello.size = self->size, me.hello.pid = (int32_t)getpid();
    gethostname(me.hello.host, sizeof me.hello.host - 1);
    copy(me.hello.device, sizeof me.hello.device, self->device);
    me.fd = pb_socket_connect(host, port, pb_seconds() + PB_RANK_GRACE);
    if (me.fd < 0) return pb_fail(PB_EIO, "the launcher at %s:%d does not answer", host, port);
    return start_thread();
}

pb_status pb_launch_host(int size, double rank_timeout, char address[PB_LAUNCH_ADDRESS])
{
    const pb_monitor_options o = {
        .program = "rank 0", .given = getenv("PB_LAUNCH_HOST"), .size = size, .timeout = rank_timeout};
    PB_TRY(pb_monitor_open(&o, &me.hosted));
    pb_monitor_address(me.hosted, address);
    return PB_OK;
}

void pb_launch_leave(int exit_code)
{
    if (me.fd < 0) return;
    (void)send_where(PB_LAUNCH_LEAVES, exit_code);
    me.leaving = true;
    (void)shutdown(me.fd, SHUT_RD); /* wakes the helper thread */
    pthread_join(me.thread, NULL);
    close(me.fd);
    me.fd = -1;
    if (!me.hosted) return;
    int joined;
    (void)pb_monitor_finish(me.hosted, &joined); /* the others end at the same time, or are lost */
    pb_monitor_close(me.hosted);
    me.hosted = NULL;
}
