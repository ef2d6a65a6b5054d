/* monitor.c - the thread that listens to the ranks of a job and ends the job when one of them is lost. */
#include "launch/monitor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kernels/engine/clock.h"
#include "launch/judge.h"
#include "launch/place.h"
#include "os/open_files.h"

enum { STRANGERS = 32, NONE = -1, LOST_CODE = 125 };
static const double settle = 10, starter_time = 3, join_time = 60, hello_time = 5;

typedef struct connection {
    int fd, rank; /* fd -1: unused; rank NONE: it has not said who it is */
    double opened;
    size_t have; /* bytes of `in` */
    pb_launch_message in;
} connection;

typedef struct member {
    pb_launch_message said;
    double heard, changed; /* heard: last heartbeat; changed: when the progress counter last changed */
    bool joined, left, gone, lost;
    bool lags[PB_WHERE_PHASES]; /* reported already */
} member;

struct pb_monitor {
    pb_monitor_options o;
    char program[16], given[64], token[PB_LAUNCH_TOKEN], host[64];
    int listener, port, n; /* n: connections */
    int wake[2], call[2];  /* pipes: wake tells the caller; call brings a byte from the caller: a signal, or 0 */
    connection *c;         /* [n] */
    member *m;             /* [size] */
    pthread_t thread;
    bool ending, starter_ended, finished;
    double now, started, ended, over, last_alive, starter_time, failed;
    char loss[440];   /* why the job was lost; "": it was not */
    char behind[300]; /* pb_monitor_behind */
    int failed_rank;  /* the first that ended with another exit code than 0, at the time `failed` */
    int code, stop;   /* stop: the signal with which the ranks were asked to stop; 0: none */
};

/* ---- sending ------------------------------------------------------------------------------------------ */

static void say(const pb_monitor *m, connection *c, pb_launch_kind kind, int code, const char *text)
{
    pb_launch_message out = {.magic = PB_LAUNCH_MAGIC, .kind = kind, .code = code, .rank = c->rank};
    (void)m;
    snprintf(out.text, sizeof out.text, "%s", text);
    /* A rank that does not read for long fills its buffer. It is silent then, and lost for that reason. */
    (void)send(c->fd, &out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say_to_all(pb_monitor *m, pb_launch_kind kind, int code, const char *text)
{
    for (int i = 0; i < m->n; i++)
        if (m->c[i].fd >= 0 && m->c[i].rank != NONE && !m->m[m->c[i].rank].left) say(m, &m->c[i], kind, code, text);
}

/* ---- ending the job ----------------------------------------------------------------------------------- */

static void kill_rank(const pb_monitor *m, int r)
{
    const member *x = &m->m[r];
    /* An open connection means that the process exists, so its id belongs to no other. */
    if (x->joined && !x->gone && r != m->o.self && x->said.pid > 1 && strcmp(x->said.host, m->host) == 0)
        kill(x->said.pid, SIGKILL);
}

static void end_job(pb_monitor *m, int code, const char *why)
{
    if (m->ending) return;
    m->ending = true;
    m->ended = m->now;
    m->code = code;
    say_to_all(m, PB_LAUNCH_END, code, why);
}

static void __attribute__((format(printf, 3, 4))) lose(pb_monitor *m, int r, const char *format, ...)
{
    char why[200], *text = m->loss;
    const size_t room = sizeof m->loss;
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (m->ending) return;
    if (m->m[r].joined) {
        char at[240];
        snprintf(text, room, "%s %s", pb_rank_place(&m->m[r].said, at, sizeof at), why);
    } else snprintf(text, room, "rank %d %s", r, why);
    m->m[r].lost = true;
    fprintf(stderr, "%s: %s; the job ends\n", m->program, text);
    end_job(m, m->m[r].left && m->m[r].said.code ? m->m[r].said.code : LOST_CODE, text);
    kill_rank(m, r);
}

/* ---- receiving ---------------------------------------------------------------------------------------- */

static void drop(pb_monitor *m, connection *c)
{
    close(c->fd);
    c->fd = -1;
    if (c->rank == NONE) return;
    member *x = &m->m[c->rank];
    x->gone = true;
    if (!x->left)
        lose(m, c->rank, "died: its last heartbeat came %.2g s ago, its connection has closed", m->now - x->heard);
}

static bool is_ours(const pb_monitor *m, const connection *c)
{
    const pb_launch_message *s = &c->in;
    return s->magic == PB_LAUNCH_MAGIC && memcmp(s->token, m->token, PB_LAUNCH_TOKEN) == 0 && s->rank >= 0 &&
           s->rank < m->o.size && (c->rank == s->rank || (c->rank == NONE && !m->m[s->rank].joined));
}

static void end_texts(pb_launch_message *s)
{
    s->host[sizeof s->host - 1] = s->device[sizeof s->device - 1] = s->phase[sizeof s->phase - 1] = 0;
    s->collective[sizeof s->collective - 1] = s->text[sizeof s->text - 1] = 0;
    for (int i = 0; i < PB_WHERE_PHASES; i++) s->phases[i].name[sizeof s->phases[i].name - 1] = 0;
}

static void hear(pb_monitor *m, connection *c)
{
    if (!is_ours(m, c)) {
        fprintf(stderr, "%s: refused a connection that is not of a rank of this job\n", m->program);
        close(c->fd);
        c->fd = -1;
        return;
    }
    member *x = &m->m[c->in.rank];
    end_texts(&c->in);
    if (!x->joined || x->said.progress != c->in.progress) x->changed = m->now;
    x->said = c->in;
    x->heard = m->now;
    x->joined = true;
    const bool first = c->rank == NONE, late = first && m->ending;
    c->rank = c->in.rank;
    if (first && m->stop) say(m, c, PB_LAUNCH_STOP, m->stop, ""); /* it was asked to stop before it connected */
    if (late) say(m, c, PB_LAUNCH_END, m->code, "the job was lost before this rank connected");
    if (c->in.kind != PB_LAUNCH_LEAVES) return;
    x->left = true;
    if (c->in.code == 0 || m->failed > 0) return;
    m->failed = m->now;
    m->failed_rank = c->rank;
    if (!m->ending) m->code = c->in.code;
}

static void listen_to(pb_monitor *m, connection *c)
{
    while (c->fd >= 0) {
        const ssize_t n = recv(c->fd, (char *)&c->in + c->have, sizeof c->in - c->have, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            drop(m, c);
            return;
        }
        c->have += (size_t)n;
        if (c->have < sizeof c->in) continue;
        c->have = 0;
        hear(m, c);
    }
}

static void accept_one(pb_monitor *m)
{
    const int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    for (int i = 0; i < m->n; i++) {
        if (m->c[i].fd >= 0) continue;
        m->c[i] = (connection){.fd = fd, .rank = NONE, .opened = m->now};
        return;
    }
    close(fd);
}

/* ---- judging ------------------------------------------------------------------------------------------ */

static void report_lags(pb_monitor *m, const pb_rank_view *v)
{
    for (int r = 0; r < m->o.size; r++) {
        char at[240];
        double median;
        const int p = pb_judge_lag(v, m->o.size, r, &median);
        if (p < 0 || m->m[r].lags[p]) continue;
        const pb_launch_message *s = v[r].said;
        m->m[r].lags[p] = true;
        (void)pb_rank_name(s, at, sizeof at);
        fprintf(stderr,
                "%s: %s is slow: phase %s took at least %.3g s in each of the three steps before step %lld, the median "
                "of the ranks is %.3g s\n",
                m->program, at, s->phases[p].name, s->phases[p].least, (long long)s->step, median);
    }
}

static double beat_time(const pb_monitor *m) { return fmin(1, m->o.timeout / 8); } /* as in member.c */

static void judge(pb_monitor *m)
{
    pb_rank_view *v = calloc((size_t)m->o.size, sizeof *v);
    bool all = true, everyone;
    for (int r = 0; v && r < m->o.size; r++) {
        v[r] = (pb_rank_view){&m->m[r].said, m->now - m->m[r].changed, m->m[r].left};
        /* While a heartbeat is overdue, no rank is called hung: a stopped one soon counts as silent, and is the
         * cause. */
        all &= m->m[r].joined && (m->m[r].left || m->now - m->m[r].heard < 3 * beat_time(m));
    }
    const int r = v && all ? pb_judge_hung(v, m->o.size, m->o.timeout, &everyone) : NONE;
    if (r != NONE && everyone) lose(m, r, "and all other ranks wait in the same collective for %.3g s", v[r].still);
    else if (r != NONE && v[r].left) lose(m, r, "ended with exit code %d while others wait for it", m->m[r].said.code);
    else if (r != NONE) lose(m, r, "hangs: no progress for %.3g s while others wait for it", v[r].still);
    else if (v && all) report_lags(m, v);
    free(v);
}

/* Notes for which rank the others wait, by the last heartbeats. */
static void note_behind(pb_monitor *m)
{
    pb_rank_view *v = calloc((size_t)m->o.size, sizeof *v);
    bool all = true;
    char at[240];
    for (int r = 0; v && r < m->o.size; r++) {
        v[r] = (pb_rank_view){.said = &m->m[r].said, .left = m->m[r].left};
        all &= m->m[r].joined;
    }
    const int r = v && all ? pb_judge_hung(v, m->o.size, 0, &all) : NONE;
    if (r != NONE)
        snprintf(m->behind, sizeof m->behind, "%s %s",
                 all ? "all ranks wait in the same collective:" : "the others wait for",
                 pb_rank_place(&m->m[r].said, at, sizeof at));
    free(v);
}

static void look_for_silence(pb_monitor *m)
{
    const double silence = fmax(1, fmin(PB_RANK_GRACE, m->o.timeout));
    for (int r = 0; r < m->o.size; r++) {
        const member *x = &m->m[r];
        if (!x->joined && m->now - m->started > fmax(join_time, m->o.timeout))
            lose(m, r, "never connected within %.3g s", m->now - m->started);
        else if (x->joined && !x->left && m->now - x->heard > silence)
            lose(m, r, "is silent: no heartbeat for %.3g s (stopped, or its host is lost)", m->now - x->heard);
    }
}

/* True if no rank runs any longer, as far as this process can bring that about: a stopped rank on another host gets its
 * SIGKILL from mpirun, which is ended now. */
static bool all_gone(const pb_monitor *m)
{
    bool gone = true;
    if (m->ending && m->now - m->ended > PB_RANK_GRACE + 3) return true;
    for (int r = 0; r < m->o.size; r++)
        gone &= m->m[r].joined ? m->m[r].gone || r == m->o.self : m->starter_ended || m->ending;
    return gone;
}

static void tick(pb_monitor *m)
{
    const double late = pb_clock_seconds() - m->now;
    m->now += late;
    for (int r = 0; late > 1 && r < m->o.size; r++) /* this process itself did not run: the ranks were not silent */
        m->m[r].heard += late, m->m[r].changed += late;
    if (m->now - m->last_alive >= beat_time(m)) {
        m->last_alive = m->now;
        say_to_all(m, PB_LAUNCH_ALIVE, 0, "");
    }
    for (int i = 0; i < m->n; i++)
        if (m->c[i].fd >= 0 && m->c[i].rank == NONE && m->now - m->c[i].opened > hello_time) drop(m, &m->c[i]);
    if (all_gone(m)) {
        if (!(m->over > 0)) m->over = m->now;
        if (m->now - m->over >= (m->ending ? starter_time / 3 : starter_time) && write(m->wake[1], "", 1) != 1)
            m->over = m->now;
        if (m->starter_ended) m->finished = true;
        return;
    }
    if (!m->ending) look_for_silence(m), judge(m);
    if (!m->ending && m->starter_ended && m->now - m->starter_time > settle)
        end_job(m, m->code ? m->code : LOST_CODE, "the program that started the ranks has ended");
    if (m->failed > 0 && m->now - m->failed > fmin(PB_RANK_GRACE, m->o.timeout))
        lose(m, m->failed_rank, "ended with exit code %d, but others continue", m->code);
    for (int r = 0; m->ending && m->now - m->ended > PB_RANK_GRACE + 1 && r < m->o.size; r++) kill_rank(m, r);
    if (m->ending && m->starter_ended && m->now - m->ended > PB_RANK_GRACE + 3) m->finished = true;
}

static void obey(pb_monitor *m)
{
    char what;
    if (read(m->call[0], &what, 1) != 1) return;
    if (what && !m->stop) note_behind(m);
    if (what) m->stop = (unsigned char)what, say_to_all(m, PB_LAUNCH_STOP, m->stop, "");
    else m->starter_ended = true, m->starter_time = m->now;
}

static void *watch(void *self)
{
    pb_monitor *m = self;
    struct pollfd *p = calloc((size_t)m->n + 2, sizeof *p);
    while (p && !m->finished) {
        for (int i = 0; i < m->n; i++) p[i] = (struct pollfd){.fd = m->c[i].fd, .events = POLLIN};
        p[m->n] = (struct pollfd){.fd = m->listener, .events = POLLIN};
        p[m->n + 1] = (struct pollfd){.fd = m->call[0], .events = POLLIN};
        const int n = poll(p, (nfds_t)m->n + 2, 100);
        for (int i = 0; n > 0 && i < m->n; i++)
            if (p[i].revents && m->c[i].fd == p[i].fd) listen_to(m, &m->c[i]);
        if (n > 0 && p[m->n].revents) accept_one(m);
        if (n > 0 && p[m->n + 1].revents) obey(m);
        tick(m);
    }
    free(p);
    return NULL;
}

/* ---- opening and closing ------------------------------------------------------------------------------ */

static pb_status open_socket(pb_monitor *m)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)m->o.port)};
    socklen_t n = sizeof at;
    if (m->o.listen && inet_pton(AF_INET, m->o.listen, &at.sin_addr) != 1)
        return pb_fail(PB_EINVAL, "'%s' is not an IPv4 address of this host", m->o.listen);
    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (m->listener < 0 || bind(m->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(m->listener, SOMAXCONN) != 0 || getsockname(m->listener, (struct sockaddr *)&at, &n) != 0)
        return pb_fail(PB_EIO, "the launcher cannot listen on port %d: %s", m->o.port, strerror(errno));
    m->port = ntohs(at.sin_port);
    return PB_OK;
}

static pb_status allow_connections(const pb_monitor *m)
{
    char why[48];
    snprintf(why, sizeof why, "to watch %d ranks", m->o.size);
    return pb_allow_open_files((size_t)m->n, why);
}

static pb_status make_token(char token[PB_LAUNCH_TOKEN])
{
    unsigned char random[PB_LAUNCH_TOKEN / 2];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return pb_fail(PB_EIO, "no random numbers for the launcher's token: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++) snprintf(token + 2 * i, 3, "%02x", random[i]);
    return PB_OK;
}

static pb_status start_thread(pb_monitor *m)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the main thread */
    const int error = pthread_create(&m->thread, NULL, watch, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? pb_fail(PB_EIO, "the thread that watches the ranks cannot be started: %s", strerror(error)) : PB_OK;
}

static pb_status open_all(pb_monitor *m)
{
    const pb_monitor_options *o = &m->o;
    m->n = o->size + STRANGERS;
    PB_TRY(allow_connections(m));
    m->c = calloc((size_t)m->n, sizeof *m->c);
    m->m = calloc((size_t)o->size, sizeof *m->m);
    if (!m->c || !m->m) return pb_fail(PB_ENOMEM, "no memory to watch %d ranks", o->size);
    for (int i = 0; i < m->n; i++) m->c[i].fd = -1;
    if (pipe2(m->wake, O_CLOEXEC) != 0 || pipe2(m->call, O_CLOEXEC) != 0)
        return pb_fail(PB_EIO, "pipe: %s", strerror(errno));
    gethostname(m->host, sizeof m->host - 1);
    snprintf(m->program, sizeof m->program, "%s", o->program);
    snprintf(m->given, sizeof m->given, "%s", o->given ? o->given : o->listen ? o->listen : m->host);
    PB_TRY(make_token(m->token));
    PB_TRY(open_socket(m));
    m->started = m->now = pb_clock_seconds();
    return start_thread(m);
}

static void free_all(pb_monitor *m)
{
    const int fds[] = {m->listener, m->wake[0], m->wake[1], m->call[0], m->call[1]};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) close(fds[i]);
    for (int i = 0; m->c && i < m->n; i++)
        if (m->c[i].fd >= 0) close(m->c[i].fd);
    free(m->c);
    free(m->m);
    free(m);
}

pb_status pb_monitor_open(const pb_monitor_options *o, pb_monitor **out)
{
    pb_monitor *m = calloc(1, sizeof *m);
    if (!m) return pb_fail(PB_ENOMEM, "no memory to watch %d ranks", o->size);
    m->o = *o;
    if (!(m->o.timeout > 0)) m->o.timeout = PB_RANK_TIMEOUT;
    m->listener = m->wake[0] = m->wake[1] = m->call[0] = m->call[1] = -1;
    const pb_status s = open_all(m);
    if (s == PB_OK) *out = m;
    else free_all(m);
    return s;
}

void pb_monitor_address(const pb_monitor *m, char out[PB_LAUNCH_ADDRESS])
{
    snprintf(out, PB_LAUNCH_ADDRESS, "%s:%d:%s:%.9g", m->given, m->port, m->token, m->o.timeout);
}

static void call(pb_monitor *m, char what)
{
    while (write(m->call[1], &what, 1) < 0 && errno == EINTR) continue;
}

void pb_monitor_stop(pb_monitor *m, int sig) { call(m, (char)sig); }
int pb_monitor_wake(const pb_monitor *m) { return m->wake[0]; }

int pb_monitor_finish(pb_monitor *m, int *joined)
{
    call(m, 0);
    pthread_join(m->thread, NULL);
    *joined = 0;
    for (int r = 0; r < m->o.size; r++) *joined += m->m[r].joined;
    return m->code;
}

bool pb_monitor_failed(const pb_monitor *m, int r) { return m->m[r].lost || (m->m[r].left && m->m[r].said.code); }

const char *pb_monitor_loss(const pb_monitor *m) { return m->loss; }
const char *pb_monitor_behind(const pb_monitor *m) { return m->behind; }

void pb_monitor_close(pb_monitor *m)
{
    if (m) free_all(m);
}
