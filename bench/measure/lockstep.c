/* lockstep.c - the exchange between ranks that measure together. */
#include "bench/measure/lockstep.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/interrupt.h"
#include "os/where.h"

typedef enum kind { GOES_ON, ENDS } kind;

/* A message of one rank to the others. */
typedef struct turn {
    kind kind;
    pb_status status;
    int interrupted, go;
    double a, b; /* seconds and host seconds of a sample, or a count */
    char why[400];
} turn;

/* True if all ranks failed with one message, which then needs no rank before it. */
static bool same_failure(const turn *all, int n)
{
    bool same = true;
    for (int r = 0; r < n; r++) same &= all[r].status == all[0].status && strcmp(all[r].why, all[0].why) == 0;
    return same;
}

/* Finds what the turns of all ranks mean for the case. A signal that reached one rank stops every rank, as if it had
 * reached all of them. */
static pb_status judge(pb_lockstep *l, const turn *all)
{
    const int n = pb_world_size(l->world);
    int ends = 0, failed = -1;
    bool interrupted = false;
    for (int r = n - 1; r >= 0; r--) {
        ends += all[r].kind == ENDS;
        interrupted |= all[r].interrupted != 0;
        if (all[r].status != PB_OK) failed = r;
    }
    l->over = ends > 0 || failed >= 0;
    if (interrupted && !pb_interrupted()) raise(SIGTERM);
    if (failed >= 0 && same_failure(all, n)) return pb_fail(all[0].status, "%s", all[0].why);
    if (failed >= 0)
        return pb_fail(all[failed].status, "rank %d on %s: %s", failed, pb_world_member_of(l->world, failed)->host,
                       all[failed].why);
    if (ends == 0 || ends == n || interrupted) return PB_OK;
    return pb_fail(PB_EINVAL, "the ranks take different numbers of samples");
}

/* Exchanges the turns of all ranks: all[size], which the caller frees. */
static pb_status exchange(pb_lockstep *l, turn mine, turn **all)
{
    *all = NULL;
    if (l->broken) return pb_fail(PB_EIO, "a rank is gone");
    mine.interrupted = pb_interrupted();
    if (mine.status != PB_OK) snprintf(mine.why, sizeof mine.why, "%s", pb_error());
    *all = calloc((size_t)pb_world_size(l->world), sizeof **all);
    pb_status s = *all ? PB_OK : pb_fail(PB_ENOMEM, "no memory for an entry per rank");
    pb_where_collective("exchange", pb_where_sequence()); /* for the monitor: this rank waits for the others */
    if (s == PB_OK) s = pb_world_gather(l->world, "measuring", &mine, sizeof mine, *all);
    pb_where_collective(NULL, 0);
    l->broken = s != PB_OK;
    return s == PB_OK ? judge(l, *all) : s;
}

pb_status pb_lockstep_begin(pb_lockstep *l, bool *go)
{
    turn *all;
    if (!l) return PB_OK;
    const pb_status s = exchange(l, (turn){.go = *go}, &all);
    if (s == PB_OK) *go = all[0].go;
    free(all);
    return s;
}

pb_status pb_lockstep_meet(pb_lockstep *l, pb_status mine)
{
    turn *all;
    if (!l) return mine;
    const pb_status s = exchange(l, (turn){.status = mine}, &all);
    free(all);
    return s;
}

pb_status pb_lockstep_slowest(pb_lockstep *l, double *seconds, double *host)
{
    turn *all;
    if (!l) return PB_OK;
    const pb_status s = exchange(l, (turn){.a = *seconds, .b = *host}, &all);
    for (int r = 0; s == PB_OK && r < pb_world_size(l->world); r++) {
        if (all[r].a > *seconds) *seconds = all[r].a;
        if (all[r].b > *host) *host = all[r].b;
    }
    free(all);
    return s;
}

pb_status pb_lockstep_end(pb_lockstep *l, pb_status mine)
{
    turn *all;
    if (!l || l->over || l->broken) return mine; /* the others know already */
    const pb_status s = exchange(l, (turn){.kind = ENDS, .status = mine}, &all);
    free(all);
    return s;
}

pb_status pb_lockstep_sum(pb_lockstep *l, double *count)
{
    turn *all;
    if (!l) return PB_OK;
    const pb_status s = exchange(l, (turn){.a = *count}, &all);
    *count = 0;
    for (int r = 0; s == PB_OK && r < pb_world_size(l->world); r++) *count += all[r].a;
    free(all);
    return s;
}

pb_status pb_lockstep_gather(pb_lockstep *l, const double *mine, int n, double *all)
{
    if (!l) {
        memcpy(all, mine, (size_t)n * sizeof *mine);
        return PB_OK;
    }
    if (l->broken) return pb_fail(PB_EIO, "a rank is gone");
    const pb_status s = pb_world_gather(l->world, "measuring", mine, (size_t)n * sizeof *mine, all);
    l->broken = s != PB_OK;
    return s;
}
