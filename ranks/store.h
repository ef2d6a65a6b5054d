/* store.h - the TCP connections of a world: each rank holds one to rank 0. Used by world.c only.
 *
 * Rank 0 listens, and the other ranks connect and say who they are (a hello). When all have, rank 0 sends everyone the
 * table of members. After that every exchange is one request from each rank to rank 0 and one reply. All times are
 * limited. Structs travel as they are in memory: all ranks run the same program. */
#ifndef PB_RANKS_STORE_H
#define PB_RANKS_STORE_H
#include <stdint.h>

#include "ranks/world.h"

enum { PB_STORE_ADDRESSES = 8, PB_STORE_WHAT = 64, PB_STORE_TEXT = 600, PB_STORE_PORTS = 16 };

/* Where rank 0 listens; the token keeps other programs and other jobs out. */
typedef struct pb_store_address {
    char host[PB_STORE_ADDRESSES][64]; /* host names or numeric addresses, tried in this order; "": no more */
    int port, ports;                   /* rank 0 listens at one of ports port..port+ports-1 */
    unsigned char token[16];
} pb_store_address;

typedef struct pb_store {
    int rank, size;
    double timeout;
    int *fd;                  /* rank 0: [size], -1 for itself; other ranks: [1] */
    pb_world_member *members; /* [size] */
    uint32_t number;          /* exchanges so far */
    pb_status broken;         /* PB_OK: every exchange so far succeeded */
    bool lost_rank0;
    char why[PB_STORE_TEXT]; /* message of the failure that broke the world */
} pb_store;

/* Rank 0: binds a socket. port 0: any free port, which a->port gets; otherwise the first free one of a->ports. The
 * caller gives the socket to pb_store_accept. */
pb_status pb_store_listen(pb_store_address *a, int *listener);
/* Rank 0: waits for all others, tells them the members, and closes the listener. */
pb_status pb_store_accept(pb_store *s, const pb_store_address *a, const pb_world_member *me, int listener);
/* Other ranks: tries the addresses until one answers as rank 0 of this job. */
pb_status pb_store_connect(pb_store *s, const pb_store_address *a, const pb_world_member *me);
void pb_store_close(pb_store *s);

/* Every rank gives n bytes. root < 0: all[size][n] gets the bytes of all ranks, on every rank. root >= 0: mine[n] gets
 * the bytes of that rank. */
pb_status pb_store_gather(pb_store *s, const char *what, const void *mine, size_t n, void *all);
pb_status pb_store_broadcast(pb_store *s, const char *what, int root, void *mine, size_t n);
#endif
