/* clocks.c - implements clocks.h: rank 0 has a thread that answers, every other rank one that asks when it is told
 * to. */
#include "ranks/clocks.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "ranks/socket.h"

enum { EXCHANGES = 32, SLOTS = 2, REPORTS = 4096 };

/* A message to rank 0, which answers an ASK with two times and does not answer a REPORT. */
typedef struct message {
    enum { ASK, REPORT } kind;
    pb_clock_report report;
} message;

struct pb_clocks {
    pb_clocks_at at;
    char host[64];
    int port;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool stop, wanted[SLOTS], done[SLOTS];
    int64_t tag[SLOTS];
    pb_clock_offset offset[SLOTS];
    pb_clock_report *reports; /* rank 0: [REPORTS] */
    size_t nreports;
    int connected; /* rank 0: ranks */
    int wake[2];   /* rank 0: a pipe that ends the poll */
    int fd;        /* rank 0: the listener; others: the connection, used by the thread; -1: none */
};

static int64_t real_time(void *self)
{
    struct timespec t;
    (void)self;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

/* Reads a message and answers it. False: the connection has ended. */
static bool serve(pb_clocks *c, int fd)
{
    message m;
    int64_t times[2];
    if (pb_socket_receive(fd, &m, sizeof m, pb_seconds() + 1) != PB_IO_OK) return false;
    times[0] = c->at.now(c->at.self);
    if (m.kind == ASK) {
        times[1] = c->at.now(c->at.self);
        return pb_socket_send(fd, times, sizeof times, pb_seconds() + 1) == PB_IO_OK;
    }
    m.report.offset.why[sizeof m.report.offset.why - 1] = 0;
    (void)pthread_mutex_lock(&c->lock);
    if (c->nreports < REPORTS) c->reports[c->nreports++] = m.report;
    (void)pthread_mutex_unlock(&c->lock);
    return true;
}

static void count(pb_clocks *c, int connected)
{
    (void)pthread_mutex_lock(&c->lock);
    c->connected = connected;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

/* Accepts a connection that knows the token. Returns -1 otherwise. */
static int admit(pb_clocks *c)
{
    unsigned char token[sizeof c->at.token];
    const double soon = pb_seconds() + 1;
    const int fd = pb_socket_accept(c->fd, soon);
    if (fd < 0) return -1;
    if (pb_socket_receive(fd, token, sizeof token, soon) == PB_IO_OK && memcmp(token, c->at.token, sizeof token) == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static void *answer(void *self)
{
    pb_clocks *c = self;
    const int room = c->at.ranks + 1;
    struct pollfd *p = calloc((size_t)room, sizeof *p);
    int n = 2;
    if (!p) return NULL;
    p[0] = (struct pollfd){.fd = c->wake[0], .events = POLLIN};
    p[1] = (struct pollfd){.fd = c->fd, .events = POLLIN};
    while (poll(p, (nfds_t)n, -1) >= 0 && !p[0].revents) {
        for (int i = n - 1; i >= 2; i--)
            if (p[i].revents && !serve(c, p[i].fd)) {
                (void)close(p[i].fd);
                p[i] = p[--n];
                count(c, n - 2);
            }
        const int fd = p[1].revents ? admit(c) : -1;
        if (fd >= 0 && n < room) {
            p[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
            count(c, n - 2);
        } else if (fd >= 0) (void)close(fd);
    }
    for (int i = 2; i < n; i++) (void)close(p[i].fd);
    free(p);
    return NULL;
}

/* ---- the other ranks --------------------------------------------------------------------------------------------- */

static bool connected(pb_clocks *c)
{
    const double soon = pb_seconds() + 2;
    if (c->fd >= 0) return true;
    c->fd = pb_socket_connect(c->host, c->port, soon);
    return c->fd >= 0 && pb_socket_send(c->fd, c->at.token, sizeof c->at.token, soon) == PB_IO_OK;
}

static bool exchange(pb_clocks *c, pb_clock_offset *best, double deadline)
{
    const message ask = {.kind = ASK};
    int64_t theirs[2];
    const int64_t sent = c->at.now(c->at.self);
    if (pb_socket_send(c->fd, &ask, sizeof ask, deadline) != PB_IO_OK ||
        pb_socket_receive(c->fd, theirs, sizeof theirs, deadline) != PB_IO_OK)
        return false;
    const int64_t received = c->at.now(c->at.self);
    const int64_t trip = (received - sent) - (theirs[1] - theirs[0]), half = trip / 2 + 1;
    if (trip < 0 || (best->known && half >= best->uncertainty_ns)) return true; /* negative: the clock was set */
    *best = (pb_clock_offset){.known = true,
                              .at_ns = sent + (received - sent) / 2,
                              .offset_ns = ((theirs[0] - sent) + (theirs[1] - received)) / 2,
                              .uncertainty_ns = half};
    return true;
}

static pb_clock_offset measure(pb_clocks *c, int slot, int64_t tag)
{
    pb_clock_offset best = {.why = "rank 0 was not reached"};
    const double deadline = pb_seconds() + 2;
    bool ok = connected(c);
    for (int i = 0; ok && i < EXCHANGES; i++) ok = exchange(c, &best, deadline);
    if (!best.known && ok) snprintf(best.why, sizeof best.why, "the clock was set during the exchanges");
    const message m = {.kind = REPORT, .report = {c->at.rank, slot, tag, best}};
    ok = ok && pb_socket_send(c->fd, &m, sizeof m, deadline) == PB_IO_OK;
    if (!ok && c->fd >= 0) {
        (void)close(c->fd);
        c->fd = -1;
    }
    return best;
}

static void *ask(void *self)
{
    pb_clocks *c = self;
    (void)pthread_mutex_lock(&c->lock);
    for (;;) {
        int slot = 0;
        while (slot < SLOTS && !c->wanted[slot]) slot++;
        if (slot == SLOTS && c->stop) break;
        if (slot == SLOTS) {
            (void)pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        const int64_t tag = c->tag[slot];
        c->wanted[slot] = false;
        (void)pthread_mutex_unlock(&c->lock);
        const pb_clock_offset found = measure(c, slot, tag);
        (void)pthread_mutex_lock(&c->lock);
        c->offset[slot] = found;
        c->done[slot] = !c->wanted[slot];
        (void)pthread_cond_broadcast(&c->changed);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void destroy(pb_clocks *c)
{
    if (c->fd >= 0) (void)close(c->fd);
    for (int i = 0; i < 2; i++)
        if (c->wake[i] >= 0) (void)close(c->wake[i]);
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    free(c->reports);
    free(c);
}

static pb_status start(pb_clocks *c, int *port)
{
    const bool leads = c->at.rank == 0;
    if (leads) {
        c->reports = calloc(REPORTS, sizeof *c->reports);
        if (!c->reports) return pb_fail(PB_ENOMEM, "clocks: no memory for the reports of ranks");
        c->fd = pb_socket_listen(0, port);
        if (c->fd < 0 || pipe(c->wake) != 0) return pb_fail(PB_EIO, "clocks: rank 0 cannot listen for the other ranks");
    }
    c->port = *port;
    if (pthread_create(&c->thread, NULL, leads ? answer : ask, c) != 0)
        return pb_fail(PB_EIO, "clocks: the thread that compares them could not be started");
    c->running = true;
    return PB_OK;
}

pb_status pb_clocks_open_at(const pb_clocks_at *at, int *port, pb_clocks **out)
{
    *out = NULL;
    pb_clocks *c = calloc(1, sizeof *c);
    if (!c) return pb_fail(PB_ENOMEM, "clocks: no memory");
    c->at = *at;
    c->fd = c->wake[0] = c->wake[1] = -1;
    if (!c->at.now) c->at.now = real_time;
    snprintf(c->host, sizeof c->host, "%s", at->host ? at->host : "");
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    const pb_status s = start(c, port);
    if (s == PB_OK) *out = c;
    else destroy(c);
    return s;
}

pb_status pb_clocks_open(pb_world *w, pb_clocks **out)
{
    struct {
        int port;
        unsigned char token[16];
    } where = {0};
    char host[64];
    pb_status s = PB_OK;
    *out = NULL;
    if (pb_world_size(w) == 1) return PB_OK;
    pb_world_rank0_address(w, host, sizeof host);
    pb_clocks_at at = {.rank = pb_world_rank(w), .ranks = pb_world_size(w), .host = host};
    if (at.rank == 0) {
        if (getrandom(at.token, sizeof at.token, 0) != sizeof at.token) s = pb_fail(PB_EIO, "clocks: no random bytes");
        if (s == PB_OK) s = pb_clocks_open_at(&at, &where.port, out);
        memcpy(where.token, at.token, sizeof where.token);
    }
    s = pb_world_agree(w, "the clocks", s);
    if (s == PB_OK) s = pb_world_broadcast(w, "the clocks", 0, &where, sizeof where);
    if (s == PB_OK && at.rank) {
        memcpy(at.token, where.token, sizeof at.token);
        s = pb_clocks_open_at(&at, &where.port, out);
    }
    s = pb_world_agree(w, "the clocks", s);
    if (s == PB_OK) return PB_OK;
    pb_clocks_close(*out);
    *out = NULL;
    return s;
}

void pb_clocks_ask(pb_clocks *c, int slot, int64_t tag)
{
    if (!c || c->at.rank == 0) return;
    (void)pthread_mutex_lock(&c->lock);
    c->wanted[slot] = true;
    c->done[slot] = false;
    c->tag[slot] = tag;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

static struct timespec seconds_from_now(double seconds)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += (time_t)seconds;
    t.tv_nsec += (long)(1e9 * (seconds - (double)(time_t)seconds));
    if (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    return t;
}

pb_clock_offset pb_clocks_wait(pb_clocks *c, int slot, double seconds)
{
    const struct timespec deadline = seconds_from_now(seconds);
    pb_clock_offset found = {.known = true};
    if (!c || c->at.rank == 0) return found;
    (void)pthread_mutex_lock(&c->lock);
    while (!c->done[slot] && pthread_cond_timedwait(&c->changed, &c->lock, &deadline) == 0) continue;
    found = c->done[slot] ? c->offset[slot] : (pb_clock_offset){.why = "rank 0 did not answer in time"};
    (void)pthread_mutex_unlock(&c->lock);
    return found;
}

size_t pb_clocks_reports(pb_clocks *c, double seconds, const pb_clock_report **out)
{
    const struct timespec deadline = seconds_from_now(seconds);
    *out = NULL;
    if (!c || c->at.rank != 0) return 0;
    (void)pthread_mutex_lock(&c->lock);
    while (c->connected && pthread_cond_timedwait(&c->changed, &c->lock, &deadline) == 0) continue;
    const size_t n = c->nreports;
    (void)pthread_mutex_unlock(&c->lock);
    *out = c->reports;
    return n;
}

void pb_clocks_close(pb_clocks *c)
{
    if (!c) return;
    (void)pthread_mutex_lock(&c->lock);
    c->stop = true;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
    if (c->at.rank == 0) (void)!write(c->wake[1], "", 1);
    if (c->running) (void)pthread_join(c->thread, NULL);
    destroy(c);
}
