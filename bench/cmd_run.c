/* cmd_run.c - `bench run`: plans, makes the run's folder, starts the launches, says where the results are. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/commands.h"
#include "bench/fingerprint.h"
#include "cli/interrupt.h"
#include "bench/launch.h"
#include "bench/results.h"
#include "bench/run_json.h"
#include "bench/run_name.h"

enum { ENOUGH_LAUNCHES = 3 };

typedef struct run {
    const pb_options *o;
    pb_plan plan;
    json_t *fingerprint;
    uint64_t seed;
    pb_run_name name;
    char machine_id[PB_MACHINE_TEXT];
} run;

/* ---- before ----------------------------------------------------------------------------------------- */

static pb_status find_suite(const pb_options *o, const pb_suite **out)
{
    char names[256] = "";
    if (o->suite) return (*out = pb_suite_find(o->suite)) ? PB_OK : PB_EINVAL;
    for (const pb_suite *const *s = pb_suites; *s; s++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? ", " : "", (*s)->name);
    return pb_fail(PB_EINVAL, "which suite? --suite NAME, one of %s", names);
}

static pb_status plan(run *r)
{
    const pb_suite *suite = NULL;
    pb_backend_id device;
    pb_ctx ctx;
    PB_TRY(find_suite(r->o, &suite));
    PB_TRY(pb_backend_find(r->o->device, &device));
    /* What would be measured can be shown without the device. */
    const bool pretend = r->o->dry_run && device != PB_CPU;
    PB_TRY(pretend ? pb_ctx_open_plan(&ctx, device) : pb_ctx_open(&ctx, device, 0));
    pb_status s = pb_plan_make(&ctx, suite, r->o, &r->plan);
    pb_ctx_close(&ctx);
    return s;
}

static void dry_run(const run *r)
{
    double all = 0;
    for (int i = 0; i < r->plan.n; i++) {
        double e = pb_plan_expect(&r->plan, &r->plan.cases[i]);
        printf("%8.1f s  %s\n", e, r->plan.cases[i].key);
        all += e;
    }
    printf("%8.0f s  in all: %ld launches of %d cases\n", all * (double)r->o->launches, r->o->launches, r->plan.n);
}

static pb_status identify(run *r)
{
    pb_backend_id device;
    PB_TRY(pb_backend_find(r->o->device, &device));
    r->fingerprint = pb_fingerprint(device, r->o->threads);
    if (!r->fingerprint) return PB_ENOMEM;
    pb_machine_id(r->fingerprint, r->machine_id);
    pb_run_name_new(r->plan.suite->name, r->o->out, &r->name);
    r->seed = r->o->seed >= 0 ? (uint64_t)r->o->seed : r->name.mark & 0xffffff;
    return PB_OK;
}

static pb_status write_run(const run *r, bool truncated)
{
    return pb_run_json_write(r->name.dir, &(pb_run_info){.run_id = r->name.run_id,
                                                         .machine_id = r->machine_id,
                                                         .time_utc = r->name.time_utc,
                                                         .plan = &r->plan,
                                                         .options = r->o,
                                                         .fingerprint = r->fingerprint,
                                                         .seed = r->seed,
                                                         .truncated = truncated});
}

/* ---- the launches ------------------------------------------------------------------------------------- */

static pb_exit launch_all(const run *r)
{
    pb_exit worst = PB_EXIT_OK;
    const double started = pb_wall_seconds();
    for (int i = 0; i < r->o->launches && !pb_interrupted(); i++) {
        const pb_launch l = {.dir = r->name.dir,
                             .run_id = r->name.run_id,
                             .machine_id = r->machine_id,
                             .plan = &r->plan,
                             .options = r->o,
                             .seed = r->seed,
                             .number = i,
                             .started = started};
        pb_exit code = PB_EXIT_OK;
        if (pb_launch_run(&l, &code) != PB_OK) return pb_complain(PB_EXIT_HARNESS);
        worst = pb_worse_exit(worst, code);
        if (code == PB_EXIT_HARNESS || code == PB_EXIT_USAGE) break; /* the next would fare no better */
    }
    return pb_interrupted() ? pb_worse_exit(worst, PB_EXIT_HARNESS) : worst;
}

static pb_exit measure(const run *r)
{
    if (write_run(r, true) != PB_OK) return pb_complain(PB_EXIT_HARNESS);
    pb_exit code = launch_all(r);
    bool whole = code != PB_EXIT_HARNESS && code != PB_EXIT_USAGE;
    if (whole && write_run(r, false) != PB_OK) code = pb_complain(PB_EXIT_HARNESS);
    if (pb_interrupted()) fprintf(stderr, "bench: interrupted; the rows measured so far are in %s\n", r->name.dir);
    if (!whole || code == PB_EXIT_HARNESS) return code;
    code = pb_worse_exit(code, pb_after_run(r->o, r->name.dir));
    if (!r->o->quiet) printf("results: %s/results.csv\n", r->name.dir);
    return code;
}

/* What stands in the way of good figures, while there is time to stop. */
static void warn(const run *r)
{
    double load = 0;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (r->o->launches < ENOUGH_LAUNCHES)
        fprintf(stderr, "bench: warning: %ld launch%s: too few for a comparison, which needs %d\n", r->o->launches,
                r->o->launches == 1 ? "" : "es", ENOUGH_LAUNCHES);
    if (getloadavg(&load, 1) == 1 && load > 1.5 * (double)cpus) /* more than an earlier run of ours leaves behind */
        fprintf(stderr, "bench: warning: the load is %.1f on %ld CPUs: other work will be in the figures\n", load,
                cpus);
}

static pb_exit prepared(run *r)
{
    const pb_status s = plan(r);
    /* A device that is not there is the machine's fault, anything else what was typed. */
    if (s != PB_OK) return pb_complain(s == PB_EUNSUPPORTED || s == PB_EDEVICE ? PB_EXIT_HARNESS : PB_EXIT_USAGE);
    if (r->o->dry_run) {
        dry_run(r);
        return PB_EXIT_OK;
    }
    if (identify(r) != PB_OK) return pb_complain(PB_EXIT_HARNESS);
    warn(r);
    if (pb_run_make_folder(r->name.dir) != PB_OK || pb_results_create(r->name.dir) != PB_OK)
        return pb_complain(PB_EXIT_USAGE);
    return measure(r);
}

pb_exit pb_cmd_run(const pb_options *o)
{
    if (o->child_dir) return pb_launch_child(o);
    run r = {.o = o};
    pb_interrupt_watch();
    pb_exit code = prepared(&r);
    pb_plan_free(&r.plan);
    json_decref(r.fingerprint);
    return code;
}
