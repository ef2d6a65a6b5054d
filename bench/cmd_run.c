/* cmd_run.c - `bench run`: plans the cases, creates the run's folder, starts the measuring processes and reports the
 * results. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/commands.h"
#include "bench/machine/machine.h"
#include "bench/rows/rows.h"
#include "bench/run/run.h"
#include "bench/suites/suites.h"
#include "kernels/engine/clock.h"
#include "kernels/engine/gpu_check.h"
#include "kernels/engine/op.h"
#include "os/interrupt.h"
#include "ranks/mpi.h"

enum { MOST_PROCESSES = 1000000000 };

typedef struct run {
    const pb_options *o;
    pb_plan plan;
    json_t *about;      /* contents of run.json */
    pb_resumed resumed; /* all zero without --resume */
    pb_place next;
    pb_attempts attempts;
    uint64_t seed;
    pb_run_name name;
    char machine_id[PB_MACHINE_TEXT], host[PB_HOST_TEXT];
    double end; /* end of the budget on pb_clock_seconds(); 0: none */
} run;

/* ---- planning the cases ----------------------------------------------------------------------------- */

static pb_status find_suite(const pb_options *o, const pb_suite **out)
{
    char names[256] = "";
    if (o->suite) return (*out = pb_suite_find(o->suite)) ? PB_OK : PB_EINVAL;
    for (const pb_suite *const *s = pb_suites; *s; s++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? ", " : "", (*s)->name);
    return pb_fail(PB_EINVAL, "no suite is given: --suite NAME, one of %s", names);
}

/* Opens a context for planning only. It creates no CUDA context, which would delay every run and occupy GPU memory
 * while it lasts; the measuring processes create their own. --dry-run therefore works without a GPU. */
static pb_status open_to_plan(const pb_options *o, pb_backend_id device, pb_ctx *ctx)
{
    pb_device_facts facts;
    if (o->ranks > 1 && !o->dry_run && !pb_mpi_built())
        return pb_fail(PB_EUNSUPPORTED, "--ranks %ld: this build has no MPI; docs/ranks.md says what it needs",
                       o->ranks);
    if (device == PB_CPU) return pb_ctx_open(ctx, device, 0);
    for (int i = 0; !o->dry_run && (i == 0 || i < o->ranks); i++) {
        const pb_status s = pb_backend_facts(device, i, &facts);
        if (s != PB_OK && i > 0)
            return pb_fail(PB_EINVAL, "--ranks %ld: this host has %d GPU%s, need one for each rank", o->ranks, i,
                           i == 1 ? "" : "s");
        PB_TRY(s);
        PB_TRY(pb_gpu_check_capability(i, facts.name, facts.capability));
    }
    return pb_ctx_open_plan(ctx, device);
}

static pb_status plan(run *r)
{
    const pb_suite *suite = NULL;
    pb_backend_id device;
    pb_ctx ctx;
    if (r->o->processes > MOST_PROCESSES)
        return pb_fail(PB_EINVAL, "--processes %ld: at most %d", r->o->processes, MOST_PROCESSES);
    if (r->o->budget >= 0 && r->o->budget < PB_LEAST_BUDGET)
        return pb_fail(PB_EINVAL, "--budget %g: need at least %g s, the time to start a case", r->o->budget,
                       PB_LEAST_BUDGET);
    if (r->o->samples > PB_MAX_SAMPLES)
        return pb_fail(PB_EINVAL, "--samples %ld: at most %d", r->o->samples, PB_MAX_SAMPLES);
    if (r->o->gates && access(r->o->gates, R_OK) != 0) return pb_fail_errno(errno, "--gates %s", r->o->gates);
    PB_TRY(find_suite(r->o, &suite));
    PB_TRY(pb_options_backend(r->o, &device));
    PB_TRY(open_to_plan(r->o, device, &ctx));
    const pb_plan_request request = pb_options_plan(r->o);
    pb_status s = pb_plan_make(&ctx, suite, &request, &r->plan);
    pb_ctx_close(&ctx);
    return s;
}

/* Prints how many control cases the plan has and what they cost, or why it has none. */
static void print_controls(const run *r)
{
    char text[240];
    pb_controls_text(&r->plan, text, sizeof text);
    if (*text) printf("%s\n", text);
    fflush(stdout); /* the user may want to stop the run */
}

static void dry_run(const run *r)
{
    double all = 0;
    for (int i = 0; i < r->plan.n; i++) {
        double e = pb_plan_expect(&r->plan, &r->plan.cases[i]);
        printf("%8.1f s  %s\n", e, r->plan.cases[i].key);
        all += e;
    }
    print_controls(r);
    printf("%8.0f s  in all: %ld processes of %d cases\n", all * (double)r->o->processes, r->o->processes, r->plan.n);
}

/* Takes the run id, folder and seed from the run to be resumed, and records in its run.json that it was resumed. */
static pb_status take_up(run *r)
{
    PB_TRY(pb_resume_check(&r->resumed, &r->plan, r->machine_id, r->host));
    r->seed = r->resumed.seed;
    snprintf(r->name.run_id, sizeof r->name.run_id, "%s", r->resumed.run_id);
    snprintf(r->name.dir, sizeof r->name.dir, "%s", r->o->resume);
    r->about = json_incref(r->resumed.about);
    return pb_run_json_resumed(r->about, r->name.time_utc, r->o);
}

/* Adds what counts instructions to the fingerprint, because exact keys need it. */
static pb_status say_counter(const pb_options *o, json_t *fingerprint)
{
    char name[PB_COUNTING_NAME];
    const char *cpu = json_string_value(json_object_get(json_object_get(fingerprint, "hard"), "cpu"));
    if (o->counters) {
        PB_TRY(pb_counted_name(o, name));
        json_object_set_new(json_object_get(fingerprint, "soft"), "counters", json_string(name));
    }
    if (!o->instructions) return PB_OK;
    PB_TRY(pb_counting_name(o, cpu ? cpu : "unknown", name));
    json_object_set_new(json_object_get(fingerprint, "soft"), "instructions", json_string(name));
    return PB_OK;
}

static pb_status identify(run *r)
{
    pb_backend_id device;
    const char *name;
    PB_TRY(pb_options_backend(r->o, &device));
    PB_TRY(pb_host_name(r->o->machine, &name));
    json_t *fingerprint = pb_fingerprint(device, r->o->threads);
    if (!fingerprint) return PB_ENOMEM;
    pb_host_text("", name, json_string_value(json_object_get(json_object_get(fingerprint, "volatile"), "gpu_uuid")),
                 r->host);
    json_object_set_new(json_object_get(fingerprint, "soft"), "gpu_clocks_locked",
                        r->o->lock_gpu_clocks ? json_string(r->o->lock_gpu_clocks) : json_null());
    pb_status s = say_counter(r->o, fingerprint);
    pb_machine_id(fingerprint, r->machine_id);
    pb_run_name_new(r->plan.suite->name, r->o->out, &r->name);
    r->seed = r->o->seed >= 0 ? (uint64_t)r->o->seed : r->name.mark & 0xffffff;
    if (s == PB_OK && r->o->resume) s = take_up(r);
    if (s == PB_OK && !r->about)
        r->about = pb_run_json_make(&(pb_run_info){.run_id = r->name.run_id,
                                                   .machine_id = r->machine_id,
                                                   .host = r->host,
                                                   .time_utc = r->name.time_utc,
                                                   .plan = &r->plan,
                                                   .options = r->o,
                                                   .fingerprint = fingerprint,
                                                   .seed = r->seed});
    json_decref(fingerprint);
    return s == PB_OK && !r->about ? pb_fail(PB_ENOMEM, "out of memory for run.json") : s;
}

/* ---- starting the measuring processes ----------------------------------------------------------------- */

/* Returns the expected seconds of the cases that earlier commands of a resumed run have completed. */
static double expected_before(const run *r)
{
    double process = 0, part = 0;
    int *order = malloc((size_t)r->plan.n * sizeof *order);
    if (!order) return 0; /* out of memory: 0 will do, because the estimate is only for the progress line */
    pb_plan_order(&r->plan, r->seed, r->next.process, order);
    for (int i = 0; i < r->plan.n; i++) {
        const double e = pb_plan_expect(&r->plan, &r->plan.cases[order[i]]);
        process += e;
        part += i < r->next.next ? e : 0;
    }
    free(order);
    return process * r->next.process + part;
}

static pb_exit process_all(run *r, bool *stopped, bool *refused)
{
    pb_exit worst = PB_EXIT_OK;
    const double started = pb_clock_seconds(), budget = r->o->budget;
    pb_process l = {.dir = r->name.dir,
                    .run_id = r->name.run_id,
                    .machine_id = r->machine_id,
                    .host = r->host,
                    .plan = &r->plan,
                    .options = r->o,
                    .seed = r->seed,
                    .started = started,
                    .before = expected_before(r),
                    .deadline = budget >= 0 ? pb_budget_deadline(started, budget) : 0,
                    .end = budget >= 0 ? started + budget : 0};
    r->end = l.end;
    for (int i = r->next.process; i < pb_attempts_processes(&r->attempts) && !pb_interrupted() && !*stopped; i++) {
        l.number = i;
        l.processes = pb_attempts_processes(&r->attempts);
        l.first = i == r->next.process ? r->next.next : 0;
        pb_exit code = PB_EXIT_OK;
        const pb_status s = pb_throttle_run(&r->attempts, &l, r->about, &code, stopped);
        *refused = l.refused;
        if (s != PB_OK) return pb_complain(PB_EXIT_HARNESS);
        worst = pb_worse_exit(worst, code);
        if (code == PB_EXIT_HARNESS || code == PB_EXIT_USAGE) break; /* the next process would fail too */
    }
    return pb_interrupted() ? pb_worse_exit(worst, PB_EXIT_HARNESS) : worst;
}

/* Removes the first n files, and the folder if it is then empty. */
static void drop_files(const run *r, int n)
{
    for (int i = 0; i < n; i++) {
        char path[PB_PATH_TEXT + 16];
        snprintf(path, sizeof path, "%s/%s", r->name.dir, pb_run_files[i]);
        unlink(path);
    }
    rmdir(r->name.dir);
}

/* Removes the files of a run that has no row, because it cannot be resumed. A run has no row if its process could not
 * start: a missing device, or too little memory. */
static void drop_if_empty(const run *r)
{
    pb_table t;
    if (r->o->resume || pb_table_read(r->name.dir, &t) != PB_OK) return;
    const bool empty = t.n == 0;
    pb_table_free(&t);
    if (empty) drop_files(r, PB_RUN_FILES);
}

/* Measures all processes of the run. After a case ran out of memory the other cases are still measured; the exit code
 * becomes PB_EXIT_HARNESS at the end. */
static pb_exit measure(run *r)
{
    bool stopped = false, refused = false;
    pb_exit code = process_all(r, &stopped, &refused);
    bool whole = code != PB_EXIT_HARNESS && code != PB_EXIT_USAGE;
    if (whole && pb_run_json_write(r->name.dir, r->about, false) != PB_OK) code = pb_complain(PB_EXIT_HARNESS);
    if ((pb_interrupted() || stopped) && !r->o->child_only) /* cmd_again.c says how a second measurement continues */
        fprintf(stderr, "bench: %s; the rows measured so far are in %s; bench run --resume %s continues\n",
                stopped ? "the budget is used up" : "interrupted", r->name.dir, r->name.dir);
    else if (!whole && refused) drop_if_empty(r);
    if (!whole || code == PB_EXIT_HARNESS) return code;
    pb_again again = {.o = r->o, .dir = r->name.dir, .plan = &r->plan, .end = r->end};
    code = pb_worse_exit(code, pb_after_run(r->o, r->name.dir, pb_again_run, &again));
    if (!r->o->quiet) printf("results: %s/results.csv\n", r->name.dir);
    return code == PB_EXIT_NO_MEMORY ? PB_EXIT_HARNESS : code;
}

/* Warns about conditions that spoil measurements, before the first case, so that the user can still stop. */
static void warn(const run *r)
{
    double load = 0;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (r->o->instructions) {
        if (!r->o->quiet) fprintf(stderr, "bench: instructions are counted in one thread, and nothing is timed\n");
        return;
    }
    if (r->o->counters) {
        if (!r->o->quiet)
            fprintf(stderr, "bench: group %s is counted in %d calls of each case, and nothing is timed\n",
                    r->o->counters, PB_REPLAYS);
        return;
    }
    if (r->o->profile_out) {
        fprintf(
            stderr,
            "bench: one process records a trace into %s; its figures have the status profiled: they include the cost "
            "of recording, and are not compared, kept or stored\n",
            r->o->profile_out);
        return;
    }
    if (r->o->processes < PB_ENOUGH_PROCESSES)
        fprintf(stderr, "bench: warning: %ld process%s: too few for a comparison, which needs %d\n", r->o->processes,
                r->o->processes == 1 ? "" : "es", PB_ENOUGH_PROCESSES);
    /* A run of bench that has just ended does not raise the load average above this limit. */
    if (getloadavg(&load, 1) == 1 && load > 1.5 * (double)cpus)
        fprintf(stderr, "bench: warning: the load is %.1f on %ld CPUs: other work will disturb the measurement\n", load,
                cpus);
}

/* True if the run's rows have times. */
static bool times(const pb_options *o) { return !o->instructions && !o->counters && !o->profile_out; }

/* Creates the files of a run and locks it; *made counts the files created so far. run.json is created last, after
 * locking: a folder without run.json is not treated as a run. */
static pb_status make_files(const run *r, int *made, int *lock)
{
    PB_TRY(pb_results_create(r->name.dir));
    *made = 2;
    PB_TRY(pb_progress_create(r->name.dir));
    *made = 3;
    PB_TRY(pb_processes_create(r->name.dir));
    *made = 4;
    PB_TRY(pb_progress_lock(r->name.dir, lock));
    return pb_run_json_create(r->name.dir, r->about);
}

/* Creates the folder of a new run with all its files. After a failure it removes them, so that the command can be
 * repeated with the same folder. */
static pb_status begin_folder(const run *r, int *lock)
{
    char why[512];
    int made = 0;
    PB_TRY(pb_run_make_folder(r->name.dir));
    const pb_status s = make_files(r, &made, lock);
    if (s == PB_OK) return PB_OK;
    snprintf(why, sizeof why, "%s", pb_error());
    drop_files(r, made);
    return pb_fail(s, "%s", why);
}

/* Opens the folder of a run to be resumed. All files are checked first, then cut back to the last completed case. */
static pb_status take_up_folder(run *r, int *lock)
{
    pb_progress_line last;
    PB_TRY(pb_progress_lock(r->name.dir, lock));
    PB_TRY(pb_attempts_read(r->name.dir, r->o, &r->attempts));
    const pb_place most = {(int)pb_attempts_processes(&r->attempts), r->plan.n};
    PB_TRY(pb_progress_read(r->name.dir, most, &last));
    PB_TRY(pb_attempts_resume(&r->attempts, r->name.dir, &last));
    PB_TRY(pb_progress_cut(r->name.dir, &last));
    r->next = last.next;
    return pb_run_json_write(r->name.dir, r->about, true);
}

static pb_exit prepared(run *r)
{
    int lock = -1;
    pb_clock_lock clocks = PB_CLOCKS_FREE;
    pb_status s = pb_options_environment();
    if (s == PB_OK) s = pb_counting_begin(r->o);
    if (s == PB_OK) s = pb_counted_begin(r->o);
    if (s == PB_OK) s = pb_clock_lock_check(r->o->lock_gpu_clocks, r->o->device);
    if (s == PB_OK) s = plan(r);
    if (s != PB_OK) return pb_complain_of(s);
    if (r->o->dry_run) {
        dry_run(r);
        return PB_EXIT_OK;
    }
    s = identify(r);
    if (s != PB_OK) return pb_complain_of(s);
    if (pb_clock_lock_take(r->o->lock_gpu_clocks, r->o->device, &clocks) != PB_OK) return pb_complain(PB_EXIT_HARNESS);
    s = r->o->resume ? take_up_folder(r, &lock) : begin_folder(r, &lock);
    if (s == PB_OK) warn(r);
    if (s == PB_OK && times(r->o) && !r->o->quiet && !r->o->child_only) print_controls(r);
    pb_exit code = s == PB_OK ? measure(r) : pb_complain_of(s);
    if (lock >= 0) close(lock);
    if (pb_clock_lock_release(&clocks) != PB_OK) code = pb_worse_exit(code, pb_complain(PB_EXIT_HARNESS));
    return code;
}

/* Sets the options that others imply. EINVAL: two options exclude each other. */
static pb_status imply_options(pb_options *o)
{
    PB_TRY(pb_counting_options(o));
    PB_TRY(pb_counted_options(o));
    return pb_profiled_options(o);
}

pb_exit pb_cmd_run(const pb_options *given)
{
    pb_options options = *given, *o = &options;
    if (!o->resume && imply_options(o) != PB_OK) return pb_complain(PB_EXIT_USAGE);
    if (o->child_dir) return pb_process_child(o);
    if (o->child_clocks) return pb_clock_keeper(o->child_clocks, o->device, (int)o->child_pipe);
    run r = {.o = o};
    pb_interrupt_watch();
    if (o->resume) {
        pb_status s = pb_resume_open(o, &r.resumed);
        if (s == PB_OK) s = pb_options_select_device(&r.resumed.options);
        if (s == PB_OK) s = imply_options(&r.resumed.options);
        if (s != PB_OK) {
            const pb_exit code = pb_complain_of(s);
            pb_resume_close(&r.resumed);
            return code;
        }
        r.o = &r.resumed.options;
    }
    r.attempts.options = r.o;
    pb_exit code = prepared(&r);
    pb_attempts_free(&r.attempts);
    pb_plan_free(&r.plan);
    json_decref(r.about);
    pb_resume_close(&r.resumed);
    return code;
}
