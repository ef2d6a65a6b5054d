/* group.c - opens, closes and abandons communicators; their memory. */
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/comm/backend.h"
#include "profiles/ranges.h"

int pb_comm_rank(const pb_comm *c) { return c ? c->rank : 0; }
int pb_comm_size(const pb_comm *c) { return c ? c->size : 1; }

void pb_comm_skip(pb_comm *c, bool on)
{
    if (c) c->skips = on;
}
const char *pb_comm_role(const pb_comm *c) { return c ? c->role : "one rank"; }
pb_status pb_comm_status(pb_comm *c) { return c && c->priv ? c->be->status(c) : PB_OK; }

void pb_comm_library(const pb_comm *c, char *out, size_t n)
{
    *out = 0;
    if (c && c->be && c->be->library) c->be->library(out, n);
}

void pb_comm_current(pb_comm *c, char *out, size_t n)
{
    if (n) *out = 0;
    if (c && c->be) c->be->current(c, out, n);
}

/* ---- memory --------------------------------------------------------------------------------------------------- */

const pb_memory_source *pb_comm_window_memory(const pb_comm *c, double bytes_per_flop)
{
    return c && c->be && c->priv && c->be->window_memory ? c->be->window_memory(c, bytes_per_flop) : NULL;
}

typedef struct block {
    struct block *next;
    void *p;
} block;

pb_status pb_comm_reserve(pb_ctx *ctx, pb_comm *c, size_t bytes)
{
    if (bytes <= c->scratch_bytes) return PB_OK;
    if (ctx->recording)
        return pb_fail(PB_EUNSUPPORTED,
                       "communicator %s needs %zu bytes, but has %zu: run the collective once before "
                       "recording it",
                       c->role, bytes, c->scratch_bytes);
    /* On the CPU a collective that has not ended uses the pointer c->scratch on another thread. */
    if (c->be) PB_TRY(c->be->wait(ctx, c));
    block *b = malloc(sizeof *b);
    if (!b) return pb_fail(PB_ENOMEM, "communicator %s: no memory for its list of blocks", c->role);
    const pb_status s = pb_alloc(ctx, bytes, &b->p);
    if (s != PB_OK) {
        free(b);
        return s;
    }
    b->next = c->blocks;
    c->blocks = b;
    c->scratch = b->p;
    c->scratch_bytes = bytes;
    return PB_OK;
}

/* After a failure MPI may still write to the blocks of a collective that has not ended, so they are kept. */
static void *kept_blocks[64];

static void keep_blocks(pb_comm *c)
{
    static int n;
    if (c->blocks && n < (int)(sizeof kept_blocks / sizeof *kept_blocks)) kept_blocks[n++] = c->blocks;
    c->blocks = NULL;
}

static void release_blocks(pb_comm *c)
{
    for (block *b = c->blocks, *next; b; b = next) {
        next = b->next;
        pb_release(c->ctx, b->p);
        free(b);
    }
    c->blocks = NULL;
}

/* ---- opening and closing -------------------------------------------------------------------------------------- */

static pb_status new_comm(pb_ctx *ctx, const char *role, int rank, int size, pb_comm **out)
{
    pb_comm *c = calloc(1, sizeof *c);
    if (!c) return pb_fail(PB_ENOMEM, "no memory for communicator %s", role);
    *c = (pb_comm){.ctx = ctx, .role = role, .group = pb_range_name(role), .rank = rank, .size = size};
    if (!c->group) return free(c), pb_fail(PB_ENOMEM, "no memory for the name of communicator %s", role);
    if (!ctx->planning) c->be = ctx->id == PB_CUDA ? &pb_comm_nccl : &pb_comm_mpi;
    *out = c;
    return PB_OK;
}

pb_status pb_comm_open_plan(pb_ctx *ctx, const char *role, int rank, int size, pb_comm **out)
{
    *out = NULL;
    if (!ctx->planning) return pb_fail(PB_EINVAL, "communicator %s: its context is not of the plan backend", role);
    return size > 1 ? new_comm(ctx, role, rank, size, out) : PB_OK;
}

/* A rank's place in its group. */
typedef struct place {
    int colour, key;
} place;

/* Lists the world ranks of the group of `rank` in the order of key, then of world rank, and counts them in *size.
 * Returns the place of `rank` in the list. */
static int list_members(const place *all, int world, int rank, int *members, int *size)
{
    int n = 0, mine = 0;
    for (int i = 0; i < world; i++) {
        if (all[i].colour != all[rank].colour) continue;
        int at = n++;
        for (; at > 0 && all[members[at - 1]].key > all[i].key; at--) members[at] = members[at - 1];
        members[at] = i;
    }
    for (int i = 0; i < n; i++)
        if (members[i] == rank) mine = i;
    *size = n;
    return mine;
}

/* Names a group among several of its role by its colour. */
static pb_status name_group(pb_comm *c, int colour)
{
    char text[80];
    snprintf(text, sizeof text, "%.60s#%d", c->role, colour);
    c->group = pb_range_name(text);
    return c->group ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the name of communicator %s", c->role);
}

/* Opens the group's communicator, unless the rank is alone in it. */
static pb_status open_group(pb_world *w, pb_ctx *ctx, const char *role, const place *all, int *members, pb_comm **out)
{
    int size = 0;
    const int rank = list_members(all, pb_world_size(w), pb_world_rank(w), members, &size);
    if (size > 1 || !ctx->planning) PB_TRY(new_comm(ctx, role, rank, size, out));
    if (*out && size < pb_world_size(w)) PB_TRY(name_group(*out, all[pb_world_rank(w)].colour));
    return *out && (*out)->be ? (*out)->be->open(*out, w, members) : PB_OK;
}

pb_status pb_comm_open(pb_world *w, pb_ctx *ctx, const char *role, int colour, int key, pb_comm **out)
{
    const size_t ranks = (size_t)pb_world_size(w);
    const place mine = {colour, key};
    *out = NULL;
    if (ranks == 1) return PB_OK;
    place *all = malloc(ranks * sizeof *all);
    int *members = malloc(ranks * sizeof *members);
    pb_status s = all && members ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the groups of %zu ranks", ranks);
    if (s == PB_OK) s = pb_world_gather(w, role, &mine, sizeof mine, all);
    if (s == PB_OK) s = open_group(w, ctx, role, all, members, out);
    s = pb_world_agree(w, role, s);
    if (*out && (s != PB_OK || (*out)->size == 1)) {
        pb_comm_close(*out);
        *out = NULL;
    }
    free(all);
    free(members);
    return s;
}

pb_status pb_comm_open_self(pb_ctx *ctx, const char *role, pb_comm **out)
{
    int self = 0;
    *out = NULL;
    if (ctx->planning)
        return pb_fail(PB_EINVAL, "communicator %s: the plan backend communicates with no library", role);
    PB_TRY(new_comm(ctx, role, 0, 1, out));
    const pb_status s = (*out)->be->open(*out, NULL, &self);
    if (s == PB_OK) return PB_OK;
    pb_comm_close(*out);
    *out = NULL;
    return s;
}

void pb_comm_close(pb_comm *c)
{
    if (!c) return;
    if (pb_comm_status(c) != PB_OK) keep_blocks(c);
    if (c->be) c->be->close(c);
    release_blocks(c);
    free(c);
}

/* ---- aborting ------------------------------------------------------------------------------------------------- */

void pb_comm_abort(pb_comm *c)
{
    if (c && c->be) c->be->abort(c);
}

static bool all_aborted(pb_comm *const *comms, int n)
{
    for (int i = 0; i < n; i++)
        if (comms[i] && comms[i]->be && !comms[i]->be->aborted(comms[i])) return false;
    return true;
}

enum { ABANDON_SECONDS = 10 };

/* Ends the process at the deadline, also if free_graphs or the driver does not return. */
static void *end_process(void *code)
{
    (void)sleep(ABANDON_SECONDS);
    _exit(*(const int *)code);
    return NULL;
}

void pb_comm_abandon(pb_comm *const *comms, int n, void (*free_graphs)(void *self), void *self, int code)
{
    static int exit_code;
    pthread_t guard;
    exit_code = code;
    if (pthread_create(&guard, NULL, end_process, &exit_code) != 0) _exit(code);
    for (int i = 0; i < n; i++) pb_comm_abort(comms[i]);
    if (free_graphs) free_graphs(self);
    while (!all_aborted(comms, n)) (void)usleep(10000);
    _exit(code);
}
