/* profiled.c - implements profiled.h with the windows of trace/profile.h, one for each case. */
#define _GNU_SOURCE
#include "bench/run/profiled.h"

#include <unistd.h>

#include "bench/run/run_json.h"
#include "bench/suites/suites.h"
#include "profiles/ranges.h"

/* Returns the first option that --profile-out excludes, with the reason; NULL: none. */
static const char *excluded(const pb_options *o)
{
    if (o->resume) return "--resume: its traces would have a gap";
    if (o->ranks > 1) return "--ranks: one process is recorded; train --profile-ranks records several ranks";
    if (o->instructions) return "--instructions: recording executes instructions too";
    if (o->throttle_retries > 0) return "--throttle-retries: one process is recorded, also when other work disturbs it";
    if (o->gate) return "--gate: figures of a recorded run do not meet or fail a requirement";
    if (o->require_baseline) return "--require-baseline: the run is not compared";
    return NULL;
}

pb_status pb_profiled_options(pb_options *o)
{
    if (!o->profile_out) return PB_OK;
    const char *other = excluded(o);
    const pb_suite *suite = o->suite ? pb_suite_find(o->suite) : NULL;
    if (other) return pb_fail(PB_EINVAL, "--profile-out excludes %s", other);
    if (suite && suite->alone)
        return pb_fail(PB_EINVAL, "--profile-out: suite %s measures each case in a process of its own", suite->name);
    o->processes = 1;
    o->throttle_retries = 0; /* a second process would need a folder of its own for its traces */
    o->no_compare = o->no_keep = true;
    if (!o->ceilings) o->ceilings = "no";
    return PB_OK;
}

pb_status pb_profiled_open(const pb_options *o, pb_backend_id device, pb_profiled *out)
{
    char why[200];
    *out = (pb_profiled){0};
    if (!o->profile_out || o->child_first > 0) return PB_OK;
    const char *name = pb_backend_name(device);
    (void)gethostname(out->host, sizeof out->host - 1); /* on failure the name stays empty */
    out->hosts[0] = out->host;
    const pb_profile_job job = {
        .host = out->hosts, .program = "bench", .version = pb_run_commit(), .backend = name, .device = name};
    const pb_profile_options how = {
        .ranks = "all", .steps = "0:0:0:1:0", .unit = "case", .out = o->profile_out, .gpu = device != PB_CPU};
    return pb_profile_open(&pb_disk_posix, &how, &job, why, &out->profile);
}

void pb_profiled_begin_case(pb_profiled *p, int number, const char *key)
{
    if (!p->profile) return;
    pb_profile_begin_step(p->profile, number);
    pb_profile_name_window(p->profile, pb_range_name(key)); /* a copy: the plan ends before the last trace is written */
}

void pb_profiled_end_case(pb_profiled *p, pb_ctx *ctx)
{
    if (!p->profile) return;
    (void)pb_sync(ctx); /* a failed device has failed its case already */
    pb_profile_end_step(p->profile);
}

pb_status pb_profiled_close(pb_profiled *p)
{
    const pb_status s = pb_profile_close(p->profile);
    *p = (pb_profiled){0};
    return s;
}
