/* store.c - rank 0 listens, the others connect; exchanges of bytes between all ranks through rank 0. */
#include "ranks/store.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/open_files.h"
#include "ranks/socket.h"

/* Each kind of message begins with a value of its own, so that a peer that sends back what it gets is not taken for
 * rank 0. */
enum { HELLO = 0x506c7548, REQUEST = 0x506c7571, REPLY = 0x506c7572, PROTOCOL = 2 };

typedef struct hello {
    uint32_t magic, protocol;
    int32_t rank, size;
    unsigned char token[16];
    pb_world_member me;
} hello;

typedef struct request {
    uint32_t magic, number;
    int32_t root; /* -1: a gather */
    uint32_t unused;
    uint64_t bytes;
    char what[PB_STORE_WHAT];
} request;

typedef struct reply {
    uint32_t magic, number;
    int32_t status; /* a pb_status; other than PB_OK: the bytes are its message */
    uint32_t unused;
    uint64_t bytes;
} reply;

/* ---- failing: a world that failed once stays broken -------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static pb_status breaks(pb_store *s, pb_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->why, sizeof s->why, fmt, ap);
    va_end(ap);
    s->broken = status;
    return pb_fail(status, "%s", s->why);
}

/* Sends a reply to every connected rank; those that are gone are passed over. */
static void answer(const pb_store *s, pb_status status, const void *bytes, size_t n)
{
    const reply r = {.magic = REPLY, .number = s->number, .status = (int32_t)status, .bytes = n};
    const double deadline = pb_seconds() + s->timeout;
    for (int i = 1; i < s->size; i++)
        if (s->fd[i] >= 0 && pb_socket_send(s->fd[i], &r, sizeof r, deadline) == PB_IO_OK)
            (void)pb_socket_send(s->fd[i], bytes, n, deadline);
}

/* Rank 0, after breaks(): tells the others why. */
static pb_status answer_failure(const pb_store *s)
{
    answer(s, s->broken, s->why, strlen(s->why) + 1);
    return pb_fail(s->broken, "%s", s->why);
}

/* ---- the connections -------------------------------------------------------------------------------------------- */

pb_status pb_store_listen(pb_store_address *a, int *listener)
{
    const int first = a->port, ports = a->port ? a->ports : 1;
    *listener = -1;
    for (int i = 0; i < ports && *listener < 0; i++) *listener = pb_socket_listen(first ? first + i : 0, &a->port);
    if (*listener >= 0) return PB_OK;
    return pb_fail(PB_EIO, "rank 0 cannot listen at %s %d to %d: the ports are in use", "ports", first,
                   first + ports - 1);
}

static pb_status prepare(pb_store *s, int connections)
{
    s->fd = malloc((size_t)connections * sizeof *s->fd);
    s->members = calloc((size_t)s->size, sizeof *s->members);
    if (!s->fd || !s->members) return pb_fail(PB_ENOMEM, "no memory for the table of %d ranks", s->size);
    for (int i = 0; i < connections; i++) s->fd[i] = -1;
    return PB_OK;
}

/* Reads one hello. A process that is not a rank of this job is dismissed without an error. */
static pb_status greet(pb_store *s, const pb_store_address *a, int fd, int *missing)
{
    hello h;
    if (pb_socket_receive(fd, &h, sizeof h, pb_seconds() + 5) != PB_IO_OK || h.magic != HELLO ||
        h.protocol != PROTOCOL || memcmp(h.token, a->token, sizeof h.token) != 0) {
        (void)close(fd);
        return PB_OK;
    }
    h.me.host[sizeof h.me.host - 1] = h.me.machine[sizeof h.me.machine - 1] = 0;
    const bool valid = h.size == s->size && h.rank > 0 && h.rank < s->size && s->fd[h.rank] < 0;
    if (valid) {
        s->fd[h.rank] = fd;
        s->members[h.rank] = h.me;
        --*missing;
        return PB_OK;
    }
    const pb_status failure =
        h.size != s->size
            ? breaks(s, PB_EINVAL, "rank %d on %s was started as one of %d ranks, rank 0 on %s as one of %d", h.rank,
                     h.me.host, h.size, s->members[0].host, s->size)
            : breaks(s, PB_EINVAL, "two processes say that they are rank %d: one on %s, one on %s", h.rank, h.me.host,
                     h.rank >= 0 && h.rank < s->size ? s->members[h.rank].host : "?");
    const reply r = {.magic = REPLY, .status = (int32_t)failure, .bytes = strlen(s->why) + 1};
    if (pb_socket_send(fd, &r, sizeof r, pb_seconds() + 1) == PB_IO_OK)
        (void)pb_socket_send(fd, s->why, r.bytes, pb_seconds() + 1);
    (void)close(fd);
    return failure;
}

/* Writes the numbers of the ranks without a connection, at most eight of them. */
static void list_missing(const pb_store *s, char *out, size_t room)
{
    size_t len = 0;
    int shown = 0;
    for (int i = 1; i < s->size && len < room; i++)
        if (s->fd[i] < 0 && shown++ < 8) len += (size_t)snprintf(out + len, room - len, "%s%d", len ? ", " : "", i);
    if (shown > 8 && len < room) snprintf(out + len, room - len, ", ...");
}

static pb_status accept_all(pb_store *s, const pb_store_address *a, int listener)
{
    const double deadline = pb_seconds() + s->timeout;
    char list[120] = "";
    int missing = s->size - 1;
    while (missing) {
        const int fd = pb_socket_accept(listener, deadline);
        if (fd < 0) {
            list_missing(s, list, sizeof list);
            return breaks(s, PB_EIO, "%d of %d ranks did not connect to rank 0 on %s within %g s: rank %s", missing,
                          s->size, s->members[0].host, s->timeout, list);
        }
        PB_TRY(greet(s, a, fd, &missing));
    }
    return PB_OK;
}

/* Numbers the ranks of each host. */
static void number_hosts(pb_store *s)
{
    for (int i = 0; i < s->size; i++) {
        pb_world_member *m = &s->members[i];
        m->local_rank = m->local_size = 0;
        for (int k = 0; k < s->size; k++) {
            const bool same = strcmp(s->members[k].host, m->host) == 0;
            m->local_size += same;
            m->local_rank += same && k < i;
        }
    }
}

pb_status pb_store_accept(pb_store *s, const pb_store_address *a, const pb_world_member *me, int listener)
{
    char why[48];
    snprintf(why, sizeof why, "to connect %d ranks", s->size);
    pb_status status = pb_allow_open_files((size_t)s->size, why);
    if (status == PB_OK) status = prepare(s, s->size);
    if (status == PB_OK) {
        s->members[0] = *me;
        status = accept_all(s, a, listener);
        if (status != PB_OK) (void)answer_failure(s);
    }
    (void)close(listener);
    PB_TRY(status);
    number_hosts(s);
    answer(s, PB_OK, s->members, (size_t)s->size * sizeof *s->members);
    return PB_OK;
}

/* Tries each address and port once. Returns a socket on which rank 0 may answer, or -1. */
static int try_addresses(const pb_store_address *a, const hello *h, double deadline)
{
    for (int k = 0; k < PB_STORE_ADDRESSES && a->host[k][0]; k++)
        for (int p = 0; p < a->ports; p++) {
            const double soon = pb_seconds() + 3;
            const int fd = pb_socket_connect(a->host[k], a->port + p, soon < deadline ? soon : deadline);
            if (fd < 0) continue;
            if (pb_socket_send(fd, h, sizeof *h, deadline) == PB_IO_OK) return fd;
            (void)close(fd);
        }
    return -1;
}

static pb_status receive_reply(pb_store *s, double deadline, const char *what, void *bytes, size_t n);

pb_status pb_store_connect(pb_store *s, const pb_store_address *a, const pb_world_member *me)
{
    hello h;
    memset(&h, 0, sizeof h); /* also the padding, which is sent */
    h.magic = HELLO, h.protocol = PROTOCOL, h.rank = s->rank, h.size = s->size, h.me = *me;
    memcpy(h.token, a->token, sizeof h.token);
    const double deadline = pb_seconds() + s->timeout;
    PB_TRY(prepare(s, 1));
    snprintf(s->members[0].host, sizeof s->members[0].host, "%s", a->host[0]);
    while ((s->fd[0] = try_addresses(a, &h, deadline)) < 0) {
        if (pb_seconds() >= deadline) {
            s->lost_rank0 = true;
            return breaks(s, PB_EIO, "rank %d on %s found no rank 0 at %s port %d within %g s", s->rank, me->host,
                          a->host[0], a->port, s->timeout);
        }
        (void)poll(NULL, 0, 50);
    }
    return receive_reply(s, deadline + s->timeout, "connecting", s->members, (size_t)s->size * sizeof *s->members);
}

void pb_store_close(pb_store *s)
{
    const int connections = s->rank == 0 ? s->size : 1;
    for (int i = 0; s->fd && i < connections; i++)
        if (s->fd[i] >= 0) (void)close(s->fd[i]);
    free(s->fd);
    free(s->members);
    s->fd = NULL, s->members = NULL;
}

/* ---- exchanges -------------------------------------------------------------------------------------------------- */

/* Receives rank 0's reply: n bytes, or a failure. */
static pb_status receive_reply(pb_store *s, double deadline, const char *what, void *bytes, size_t n)
{
    const char *host = s->members[0].host;
    reply r = {0};
    pb_io io = pb_socket_receive(s->fd[0], &r, sizeof r, deadline);
    const bool failure = io == PB_IO_OK && r.status != PB_OK && r.bytes <= sizeof s->why;
    if (io == PB_IO_OK && (r.magic != REPLY || (!failure && (r.bytes != n || r.number != s->number))))
        return breaks(s, PB_EIO, "%s: rank 0 on %s sent something other than a reply", what, host);
    if (io == PB_IO_OK) io = pb_socket_receive(s->fd[0], failure ? s->why : bytes, r.bytes, deadline);
    if (io == PB_IO_OK && !failure) return PB_OK;
    if (io == PB_IO_OK) {
        s->why[sizeof s->why - 1] = 0;
        s->broken = r.status > PB_OK && r.status <= PB_EWRONG ? (pb_status)r.status : PB_EIO;
        return pb_fail(s->broken, "%s", s->why);
    }
    s->lost_rank0 = true;
    if (io == PB_IO_CLOSED) return breaks(s, PB_EIO, "%s: rank 0 on %s has ended", what, host);
    return breaks(s, PB_EIO, "%s: rank 0 on %s did not answer within %g s", what, host, 2 * s->timeout);
}

/* Reads rank i's request and its n bytes; compares the request with rank 0's own. */
static pb_status take_request(pb_store *s, int i, const request *want, void *bytes, double deadline)
{
    request r = {0};
    const char *host = s->members[i].host;
    const size_t n = want->root < 0 || want->root == i ? want->bytes : 0;
    if (pb_socket_receive(s->fd[i], &r, sizeof r, deadline) != PB_IO_OK)
        return breaks(s, PB_EIO, "%s: rank %d on %s has ended", want->what, i, host);
    r.what[sizeof r.what - 1] = 0;
    if (r.magic != REQUEST || r.number != want->number || r.root != want->root || r.bytes != want->bytes ||
        strcmp(r.what, want->what) != 0)
        return breaks(s, PB_EINVAL,
                      "the ranks do different things: rank %d on %s is at '%s' with %llu bytes, rank 0 at "
                      "'%s' with %llu",
                      i, host, r.what, (unsigned long long)r.bytes, want->what, (unsigned long long)want->bytes);
    if (pb_socket_receive(s->fd[i], bytes, n, deadline) != PB_IO_OK)
        return breaks(s, PB_EIO, "%s: rank %d on %s ended in the middle of a message", want->what, i, host);
    return PB_OK;
}

static pb_status late(pb_store *s, const struct pollfd *waiting, const char *what)
{
    char list[200] = "";
    size_t len = 0;
    int count = 0;
    for (int i = 1; i < s->size; i++) {
        if (waiting[i].fd < 0 || count++ >= 4) continue;
        const int w =
            snprintf(list + len, sizeof list - len, "%srank %d on %s", len ? ", " : "", i, s->members[i].host);
        len = len + (size_t)w < sizeof list ? len + (size_t)w : sizeof list - 1;
    }
    return breaks(s, PB_EIO, "%s: %s%s did not arrive within %g s", what, list, count > 4 ? " and others" : "",
                  s->timeout);
}

/* Rank 0: takes the requests of all ranks in the order in which they arrive, so that a rank that has ended is noticed
 * although another one is late. into(i) = all + i * stride. */
static pb_status collect(pb_store *s, const request *want, unsigned char *all, size_t stride)
{
    const double deadline = pb_seconds() + s->timeout;
    struct pollfd *waiting = calloc((size_t)s->size, sizeof *waiting);
    pb_status status = PB_OK;
    int missing = s->size - 1;
    if (!waiting) return breaks(s, PB_ENOMEM, "no memory to wait for %d ranks", s->size);
    for (int i = 0; i < s->size; i++) waiting[i] = (struct pollfd){.fd = i ? s->fd[i] : -1, .events = POLLIN};
    while (missing && status == PB_OK) {
        const double left = deadline - pb_seconds();
        const int n = left > 0 ? poll(waiting, (nfds_t)s->size, (int)(1e3 * (left < 1e5 ? left : 1e5)) + 1) : 0;
        if (n == 0 && pb_seconds() >= deadline) status = late(s, waiting, want->what);
        for (int i = 1; i < s->size && status == PB_OK && n > 0; i++) {
            if (waiting[i].fd < 0 || !waiting[i].revents) continue;
            status = take_request(s, i, want, all + (size_t)i * stride, deadline + s->timeout);
            waiting[i].fd = -1;
            missing--;
        }
    }
    free(waiting);
    return status;
}

static pb_status begin(pb_store *s, const char *what, int root, size_t n, request *r)
{
    if (s->broken != PB_OK) return pb_fail(s->broken, "%s", s->why);
    memset(r, 0, sizeof *r);
    r->magic = REQUEST, r->number = ++s->number, r->root = root, r->bytes = n;
    snprintf(r->what, sizeof r->what, "%s", what);
    return PB_OK;
}

static pb_status ask(pb_store *s, const request *r, const void *mine, size_t n, void *out, size_t out_n)
{
    const double deadline = pb_seconds() + s->timeout;
    /* A failed send means that rank 0 ended or closed the world; its last reply, if any, says why. */
    if (pb_socket_send(s->fd[0], r, sizeof *r, deadline) == PB_IO_OK) (void)pb_socket_send(s->fd[0], mine, n, deadline);
    return receive_reply(s, deadline + s->timeout, r->what, out, out_n);
}

pb_status pb_store_gather(pb_store *s, const char *what, const void *mine, size_t n, void *all)
{
    request r;
    PB_TRY(begin(s, what, -1, n, &r));
    if (s->rank) return ask(s, &r, mine, n, all, (size_t)s->size * n);
    if (n) memcpy(all, mine, n);
    if (collect(s, &r, all, n) != PB_OK) return answer_failure(s);
    answer(s, PB_OK, all, (size_t)s->size * n);
    return PB_OK;
}

pb_status pb_store_broadcast(pb_store *s, const char *what, int root, void *bytes, size_t n)
{
    request r;
    PB_TRY(begin(s, what, root, n, &r));
    if (s->rank) return ask(s, &r, bytes, s->rank == root ? n : 0, bytes, n);
    if (collect(s, &r, bytes, 0) != PB_OK) return answer_failure(s);
    answer(s, PB_OK, bytes, n);
    return PB_OK;
}
