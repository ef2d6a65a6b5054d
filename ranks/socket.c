/* socket.c - TCP sockets with deadlines, on poll(). */
#include "ranks/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

double pb_seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Waits until the socket is ready; a hang-up or an error counts as ready, the next call reports it. */
static bool ready(int fd, short events, double deadline)
{
    for (;;) {
        const double left = deadline - pb_seconds();
        struct pollfd p = {.fd = fd, .events = events};
        const int n = poll(&p, 1, left <= 0 ? 0 : left > 1e5 ? 100000000 : (int)ceil(1e3 * left));
        if (n > 0) return true;
        if (n == 0 && pb_seconds() >= deadline) return false;
        if (n < 0 && errno != EINTR) return false;
    }
}

static void set_options(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* a host that lost power is noticed */
}

int pb_socket_listen(int port, int *bound)
{
    const int on = 1, off = 0;
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } got = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t n = sizeof got;
    /* One socket for both versions of IP; a kernel without IPv6 gets one for IPv4. */
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool six = fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0;
    if (!six) {
        if (fd >= 0) (void)close(fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) return -1;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const int bad = six ? bind(fd, (struct sockaddr *)&at, sizeof at) : bind(fd, (struct sockaddr *)&at4, sizeof at4);
    if (bad || listen(fd, SOMAXCONN) != 0 || getsockname(fd, &got.any, &n) != 0) {
        (void)close(fd);
        return -1;
    }
    *bound = ntohs(six ? got.six.sin6_port : got.four.sin_port);
    return fd;
}

int pb_socket_accept(int listener, double deadline)
{
    while (ready(listener, POLLIN, deadline)) {
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            set_options(fd);
            return fd;
        }
        if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) return -1;
    }
    return -1;
}

/* Whether both ends of a connection are the same socket. The kernel may choose, as the port of a socket that connects,
 * the very port to which it connects; on one host that opens a connection although no process listens there. */
static bool connected_to_itself(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t n = sizeof here, m = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &n) == 0 && getpeername(fd, (struct sockaddr *)&there, &m) == 0 &&
           n == m && memcmp(&here, &there, n) == 0;
}

int pb_socket_use(int fd)
{
    if (!connected_to_itself(fd)) {
        set_options(fd);
        return fd;
    }
    const struct linger now = {.l_onoff = 1}; /* a reset: TIME_WAIT would keep the port from rank 0 for a minute */
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    (void)close(fd);
    return -1;
}

static int connect_to(const struct addrinfo *a, double deadline)
{
    int error = 0;
    socklen_t n = sizeof error;
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    const bool now = connect(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (!now && (errno != EINPROGRESS || !ready(fd, POLLOUT, deadline) ||
                 getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0 || error)) {
        (void)close(fd);
        return -1;
    }
    return pb_socket_use(fd);
}

int pb_socket_connect(const char *host, int port, double deadline)
{
    const struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char service[16];
    int fd = -1;
    snprintf(service, sizeof service, "%d", port);
    if (getaddrinfo(host, service, &want, &list) != 0) return -1;
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) fd = connect_to(a, deadline);
    freeaddrinfo(list);
    return fd;
}

static bool passing(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

pb_io pb_socket_send(int fd, const void *bytes, size_t n, double deadline)
{
    for (const char *p = bytes; n;) {
        const ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && !passing(errno)) return PB_IO_CLOSED;
        if (sent < 0 && !ready(fd, POLLOUT, deadline)) return PB_IO_LATE;
        if (sent > 0) p += sent, n -= (size_t)sent;
    }
    return PB_IO_OK;
}

pb_io pb_socket_receive(int fd, void *bytes, size_t n, double deadline)
{
    for (char *p = bytes; n;) {
        const ssize_t got = recv(fd, p, n, 0);
        if (got == 0 || (got < 0 && !passing(errno))) return PB_IO_CLOSED;
        if (got < 0 && !ready(fd, POLLIN, deadline)) return PB_IO_LATE;
        if (got > 0) p += got, n -= (size_t)got;
    }
    return PB_IO_OK;
}
