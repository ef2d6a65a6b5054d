/* socket.h - TCP sockets with deadlines: every call returns before a given time. Used by store.c and clocks.c. */
#ifndef PB_RANKS_SOCKET_H
#define PB_RANKS_SOCKET_H
#include <stdbool.h>
#include <stddef.h>

typedef enum pb_io { PB_IO_OK, PB_IO_LATE, PB_IO_CLOSED } pb_io; /* done; the deadline passed; the peer is gone */

double pb_seconds(void); /* of a monotonic clock; deadlines are values of it */
/* Return a socket that does not block, or -1. */
int pb_socket_listen(int port, int *bound);
int pb_socket_accept(int listener, double deadline);                /* -1: none came in time */
int pb_socket_connect(const char *host, int port, double deadline); /* -1 also if it was connected to itself */
/* Sets the options of a connected socket, and returns it. -1: it is connected to itself, and is closed. */
int pb_socket_use(int fd);
pb_io pb_socket_send(int fd, const void *bytes, size_t n, double deadline);
pb_io pb_socket_receive(int fd, void *bytes, size_t n, double deadline);
#endif
