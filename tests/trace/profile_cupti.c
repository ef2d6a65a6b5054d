/* profile_cupti.c - profile_cupti OUT FILE: profiles steps of 20 ms on the GPU that a fake library stands for, with
 * counters that are sampled every millisecond: two windows of two steps each, into the folder OUT. Prints the bytes of
 * JSON that were expected of the first trace. profile_cupti_test.sh runs it. */
#include <stdio.h>
#include <time.h>

#include "profiles/ranges.h"
#include "trace/profile.h"

enum { STEPS = 7 };

static void step(pb_profile *p, int64_t number)
{
    const struct timespec t = {.tv_nsec = 20000000};
    pb_profile_expected e;
    pb_profile_begin_step(p, number);
    pb_range_push(PB_RANGE_step, "train_step", number);
    (void)nanosleep(&t, NULL);
    pb_range_pop();
    pb_profile_end_step(p);
    if (number == 1 && pb_profile_expects(p, 0, &e)) printf("expected %.0f\n", e.json);
}

static pb_status profile(const char *out, const pb_counter_group *g)
{
    char why[200];
    pb_profile *p;
    const pb_profile_options o = {.ranks = "all",
                                  .steps = "1:0:1:2:2",
                                  .out = out,
                                  .gpu = true,
                                  .sampling = g,
                                  .sampling_us = 1000,
                                  .records = true,
                                  .ring = {.threads = 2, .records = 256}};
    const pb_profile_job job = {.program = "test", .version = "v1", .backend = "cuda", .device = "cuda:0"};
    PB_TRY(pb_profile_open(&pb_disk_posix, &o, &job, why, &p));
    for (int i = 1; i <= STEPS; i++) step(p, i);
    return pb_profile_close(p);
}

int main(int argc, char **argv)
{
    pb_counter_group g;
    pb_status s = argc == 3 ? pb_group_read(argv[2], &g) : pb_fail(PB_EINVAL, "usage: profile_cupti OUT FILE");
    if (s == PB_OK) s = profile(argv[1], &g);
    if (s != PB_OK) printf("%s: %s\n", pb_status_name(s), pb_error());
    return pb_status_exit(s);
}
