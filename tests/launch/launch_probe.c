/* launch_probe.c - launch_probe RANKS TIMEOUT WHAT: starts RANKS copies of itself, each of which runs as a rank. Rank 1
 * does WHAT after a few steps; the others continue, or wait in a collective:
 *     steps   nothing special                      die     SIGKILL            halt    SIGSTOP
 *     exit2   ends with exit code 2               hang    no progress        slow    a phase of 0.1 s; others 5 ms
 *     wait    all ranks run until a signal (at most a minute), and then end with 125, as train does */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/launch.h"
#include "os/interrupt.h"
#include "os/where.h"
#include "ranks/start.h"

static const char *get(const char *name) { return getenv(name); }
static bool ended(void) { return pb_interrupted() || pb_launch_lost() >= 0; }

static void lost(void *self, int code, const char *why)
{
    (void)self;
    fprintf(stderr, "lost with code %d: %s\n", code, why);
}

static void trouble(const char *what, int rank)
{
    const bool meets = strcmp(what, "steps") != 0 && strcmp(what, "slow") != 0 && strcmp(what, "wait") != 0;
    if (rank == 1 && strcmp(what, "die") == 0) raise(SIGKILL);
    if (rank == 1 && strcmp(what, "halt") == 0) raise(SIGSTOP);
    if (rank != 1 && meets) pb_where_collective("all_reduce", 7);
    while (meets && !ended() && !(rank == 1 && strcmp(what, "exit2") == 0)) usleep(5000);
}

static int work(int rank, const char *what)
{
    pb_launch_on_lost(lost, NULL);
    const bool slow = strcmp(what, "slow") == 0, forever = strcmp(what, "wait") == 0;
    for (int step = 0; (forever || step < (slow ? 12 : 4)) && step < 6000 && !ended(); step++) {
        pb_where_step(step);
        pb_where_phase("forward");
        usleep(slow && rank == 1 ? 100000 : 5000);
        pb_where_phase("backward");
        pb_where_collective("all_reduce", (uint64_t)step + 1);
        usleep(slow && rank != 1 ? 100000 : 5000);
        pb_where_collective(NULL, 0);
        pb_where_phase(NULL);
        if (rank == 0 && step == 1) printf("rank 0 works\n"), fflush(stdout);
        if (rank == 1 && step == 1) printf("rank 1 must be silent\n"), fflush(stdout);
    }
    pb_where_phase("backward");
    trouble(what, rank);
    if (rank == 1 && strcmp(what, "exit2") == 0) {
        fprintf(stderr, "a bad file\n");
        return 2;
    }
    return pb_launch_lost() >= 0 ? pb_launch_lost() : ended() ? 125 : 0;
}

int main(int argc, char **argv)
{
    int code = 125;
    if (argc != 4) return 2;
    if (!pb_launched()) {
        const pb_launch_job job = {"probe", atoi(argv[1]), atof(argv[2]), (const char *const *)argv, NULL};
        const pb_status s = pb_launch(&job, &code);
        if (s != PB_OK) fprintf(stderr, "probe: %s\n", pb_error());
        return s == PB_OK ? code : pb_status_exit(s);
    }
    const int rank = pb_start_rank(get);
    pb_interrupt_watch();
    if (pb_launch_join(&(pb_launch_self){rank, atoi(argv[1]), "cpu"}, NULL) != PB_OK) {
        fprintf(stderr, "probe: %s\n", pb_error());
        return 125;
    }
    code = work(rank, argv[3]);
    pb_launch_leave(code);
    return code;
}
