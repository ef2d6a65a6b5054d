/* world.c - opens the world of a job's ranks, and the agreements between them. */
#include "ranks/world.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "ranks/mpi.h"
#include "ranks/start.h"
#include "ranks/store.h"

struct pb_world {
    pb_store store;
    bool mpi;
};

int pb_world_rank(const pb_world *w) { return w ? w->store.rank : 0; }
int pb_world_size(const pb_world *w) { return w ? w->store.size : 1; }
double pb_world_timeout(const pb_world *w) { return w ? w->store.timeout : 60; }
bool pb_world_has_mpi(const pb_world *w) { return w && w->mpi; }

static bool silent; /* pb_world_open failed, and rank 0 prints why */

bool pb_world_speaks(const pb_world *w)
{
    if (!w) return !silent;
    return w->store.rank == 0 || w->store.lost_rank0;
}

/* ---- who this process is ---------------------------------------------------------------------------------------- */

static void describe(pb_world_member *m)
{
    memset(m, 0, sizeof *m);
    m->local_size = 1;
    m->pid = (int)getpid();
    if (gethostname(m->host, sizeof m->host - 1) != 0) snprintf(m->host, sizeof m->host, "unknown-host");
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f || !fgets(m->machine, sizeof m->machine, f)) memcpy(m->machine, m->host, sizeof m->machine);
    m->machine[strcspn(m->machine, "\n")] = 0;
    if (f) (void)fclose(f);
}

const pb_world_member *pb_world_member_of(const pb_world *w, int rank)
{
    static pb_world_member alone;
    if (w) return &w->store.members[rank];
    if (!alone.pid) describe(&alone);
    return &alone;
}

void pb_world_rank0_address(const pb_world *w, char *out, size_t n)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    snprintf(out, n, "127.0.0.1");
    if (!w || w->store.rank == 0 || getpeername(w->store.fd[0], (struct sockaddr *)&at, &size) != 0) return;
    if (getnameinfo((struct sockaddr *)&at, size, out, (socklen_t)n, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(out, n, "127.0.0.1");
}

/* Lists this host's addresses for the other ranks: loopback first, which ranks of the same host reach, then those of
 * the interfaces that are up. */
static void list_addresses(pb_store_address *a)
{
    struct ifaddrs *list = NULL;
    int n = 0;
    snprintf(a->host[n++], sizeof *a->host, "127.0.0.1");
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *i = list; i && n < PB_STORE_ADDRESSES; i = i->ifa_next) {
        const int family = i->ifa_addr ? i->ifa_addr->sa_family : 0;
        if ((family != AF_INET && family != AF_INET6) || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK)
            continue;
        const socklen_t size = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        char *out = a->host[n];
        if (getnameinfo(i->ifa_addr, size, out, sizeof *a->host, NULL, 0, NI_NUMERICHOST) == 0 && !strchr(out, '%'))
            n++;
        else *out = 0; /* an address with a scope (%eth0) is of use on this host only */
    }
    freeifaddrs(list);
}

/* ---- connecting ------------------------------------------------------------------------------------------------- */

/* Sent by rank 0 to the others over MPI: where it listens, or why it does not. */
typedef struct invitation {
    int status;
    pb_store_address address;
    char why[PB_STORE_TEXT];
} invitation;

static pb_status invite(invitation *v, int *listener)
{
    list_addresses(&v->address);
    v->address.ports = 1;
    if (getrandom(v->address.token, sizeof v->address.token, 0) != (ssize_t)sizeof v->address.token)
        return pb_fail(PB_EIO, "the system gives no random numbers");
    return pb_store_listen(&v->address, listener);
}

static pb_status connect_by_mpi(pb_world *w, const pb_start *start, const pb_world_member *me)
{
    int listener = -1, size = 0;
    invitation v;
    memset(&v, 0, sizeof v);
    PB_TRY(pb_mpi_start(&w->store.rank, &size));
    if (size != start->size)
        return pb_fail(PB_EINVAL,
                       "%s started %d ranks, but MPI counts %d: start them with an mpirun of the MPI library that this "
                       "program was built with, or with srun --mpi=pmix",
                       start->by, start->size, size);
    w->store.size = size;
    w->mpi = true;
    if (w->store.rank == 0) v.status = invite(&v, &listener);
    if (v.status != PB_OK) snprintf(v.why, sizeof v.why, "%s", pb_error());
    PB_TRY(pb_mpi_broadcast(&v, sizeof v));
    if (v.status != PB_OK) return pb_fail((pb_status)v.status, "%s", v.why);
    return w->store.rank == 0 ? pb_store_accept(&w->store, &v.address, me, listener)
                              : pb_store_connect(&w->store, &v.address, me);
}

/* Connects by the variables that torchrun sets. The token is the beginning of TORCHELASTIC_RUN_ID, the job's name; all
 * zeros if that is not set. */
static pb_status connect_by_variables(pb_world *w, const pb_start *start, const pb_world_member *me)
{
    int listener = -1;
    pb_store_address a = {.port = start->port + start->port_is_occupied, .ports = PB_STORE_PORTS};
    const char *run = getenv("TORCHELASTIC_RUN_ID");
    memcpy(a.token, run ? run : "", strnlen(run ? run : "", sizeof a.token));
    if (strlen(start->address) >= sizeof a.host[0])
        return pb_fail(PB_EINVAL, "MASTER_ADDR='%s' is too long", start->address);
    snprintf(a.host[0], sizeof a.host[0], "%s", start->address);
    w->store.rank = start->rank;
    w->store.size = start->size;
    if (start->rank) return pb_store_connect(&w->store, &a, me);
    PB_TRY(pb_store_listen(&a, &listener));
    return pb_store_accept(&w->store, &a, me, listener);
}

static const char *from_environment(const char *name) { return getenv(name); }

static pb_status connect_world(pb_world *w, const pb_start *start, const pb_world_options *o)
{
    pb_world_member me;
    describe(&me);
    if (start->kind == PB_START_MPI) PB_TRY(connect_by_mpi(w, start, &me));
    else PB_TRY(connect_by_variables(w, start, &me));
    return o->version ? pb_world_same(w, "the program's version", o->version) : PB_OK;
}

pb_status pb_world_open(const pb_world_options *o, pb_world **out)
{
    pb_start start;
    *out = NULL;
    silent = pb_start_rank(from_environment) > 0;
    PB_TRY(pb_start_read(from_environment, o->mpi, &start));
    if (start.kind == PB_START_ALONE) {
        silent = false;
        return PB_OK;
    }
    pb_world *w = calloc(1, sizeof *w);
    if (!w) return pb_fail(PB_ENOMEM, "no memory for the world of %d ranks", start.size);
    w->store.timeout = o->timeout > 0 ? o->timeout : 60;
    const pb_status status = connect_world(w, &start, o);
    silent = silent && !w->store.lost_rank0;
    if (status == PB_OK) *out = w;
    else pb_world_close(w);
    return status;
}

void pb_world_close(pb_world *w)
{
    if (!w) return;
    if (w->store.broken != PB_OK) pb_mpi_give_up();
    pb_store_close(&w->store);
    free(w);
}

/* ---- collectives ------------------------------------------------------------------------------------------------ */

pb_status pb_world_barrier(pb_world *w, const char *what)
{
    char unused = 0;
    return w ? pb_store_gather(&w->store, what, &unused, 0, &unused) : PB_OK;
}

pb_status pb_world_broadcast(pb_world *w, const char *what, int root, void *bytes, size_t n)
{
    if (root < 0 || root >= pb_world_size(w))
        return pb_fail(PB_EINVAL, "%s: rank %d does not exist, there are %d", what, root, pb_world_size(w));
    return w ? pb_store_broadcast(&w->store, what, root, bytes, n) : PB_OK;
}

pb_status pb_world_gather(pb_world *w, const char *what, const void *mine, size_t n, void *all)
{
    if (w) return pb_store_gather(&w->store, what, mine, n, all);
    if (n && all != mine) memcpy(all, mine, n);
    return PB_OK;
}

/* Gathers entries of `size` bytes into new memory, which the caller frees. */
static pb_status gather_entries(pb_world *w, const char *what, const void *mine, size_t size, void **all)
{
    *all = malloc((size_t)w->store.size * size);
    if (!*all) return pb_fail(PB_ENOMEM, "%s: no memory for entries of %d ranks", what, w->store.size);
    const pb_status s = pb_store_gather(&w->store, what, mine, size, *all);
    if (s != PB_OK) free(*all);
    return s;
}

typedef struct verdict {
    int status;
    char message[PB_STORE_TEXT];
} verdict;

pb_status pb_world_agree(pb_world *w, const char *what, pb_status mine)
{
    verdict v = {.status = mine}, *all = NULL;
    if (!w) return mine;
    if (mine != PB_OK) {
        if (w->store.broken != PB_OK) return mine; /* the message stays this rank's own */
        snprintf(v.message, sizeof v.message, "%s", pb_error());
    }
    PB_TRY(gather_entries(w, what, &v, sizeof v, (void **)&all));
    pb_status agreed = PB_OK;
    for (int i = 0; i < w->store.size && agreed == PB_OK; i++)
        if (all[i].status != PB_OK)
            agreed = pb_fail((pb_status)all[i].status, "rank %d on %s: %.*s", i, w->store.members[i].host,
                             PB_STORE_TEXT - 1, all[i].message);
    free(all);
    return agreed;
}

typedef struct entry {
    char text[256];
} entry;

pb_status pb_world_same(pb_world *w, const char *name, const char *text)
{
    entry mine = {""}, *all = NULL;
    if (!w) return PB_OK;
    snprintf(mine.text, sizeof mine.text, "%s", text);
    PB_TRY(gather_entries(w, name, &mine, sizeof mine, (void **)&all));
    pb_status status = PB_OK;
    for (int i = 1; i < w->store.size && status == PB_OK; i++)
        if (memcmp(all[0].text, all[i].text, sizeof mine.text) != 0)
            status = pb_fail(PB_EINVAL, "%s differs: rank 0 has %s, rank %d on %s has %.*s", name, all[0].text, i,
                             w->store.members[i].host, (int)sizeof mine.text - 1, all[i].text);
    free(all);
    return status;
}

pb_status pb_world_check_devices(pb_world *w, const char *bus)
{
    entry mine = {""}, *all = NULL;
    if (!w) return PB_OK;
    snprintf(mine.text, sizeof mine.text, "%s", bus);
    PB_TRY(gather_entries(w, "comparing GPUs", &mine, sizeof mine, (void **)&all));
    pb_status status = PB_OK;
    for (int i = 1; i < w->store.size && status == PB_OK; i++)
        for (int k = 0; k < i && status == PB_OK; k++)
            if (all[i].text[0] && strcmp(all[i].text, all[k].text) == 0 &&
                strcmp(w->store.members[i].machine, w->store.members[k].machine) == 0)
                status = pb_fail(PB_EINVAL, "ranks %d and %d on %s use the same GPU, %.*s: each rank needs its own", k,
                                 i, w->store.members[i].host, 31, all[i].text);
    free(all);
    return status;
}
