/* cmd_again.c - the second measurement of a run: rows that are worse than the stored sessions are measured again, so
 * that the rule (stored_rule.h) can tell a regression from a machine that was slow for a while. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/commands.h"
#include "bench/compare/compare.h"
#include "bench/run/run.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"

/* Removes what an interrupted second measurement left, because its processes would not be 6 in a row. */
static void remove_old(const char *dir)
{
    static const char *const files[] = {"results.csv", "samples.csv", "progress.csv", "processes.csv", "run.json"};
    char path[PB_RUN_DIR_TEXT + 32];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
}

/* Returns false if a signal ended the wait. */
static bool wait_for(double seconds)
{
    const double until = pb_clock_seconds() + seconds;
    while (!pb_interrupted() && pb_clock_seconds() < until)
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    return !pb_interrupted();
}

/* Measures the cases into `dir`, by a run with the options of the first one. The cases are the first words of the
 * command line, because the measuring processes read them there. */
static pb_exit measure_again(const pb_again *a, char *keys, char *dir)
{
    char only[] = "--child-only";
    pb_options o = *a->o;
    char **words = calloc((size_t)o.argc + 3, sizeof *words);
    if (!words) return pb_fail(PB_ENOMEM, "no memory for a command line"), pb_complain(PB_EXIT_HARNESS);
    words[0] = only, words[1] = keys;
    for (int i = 0; i < o.argc; i++) words[i + 2] = o.argv[i];
    o.argv = words, o.argc += 2;
    o.child_only = keys, o.out = dir, o.processes = PB_STORED_CONFIRM_PROCESSES;
    o.resume = o.gate = o.lock_gpu_clocks = NULL; /* the first run holds the lock on the clocks */
    o.no_compare = o.no_keep = o.quiet = true;
    o.seed = -1;
    if (a->end > 0) o.budget = fmax(a->end - pb_clock_seconds(), PB_LEAST_BUDGET);
    const pb_exit code = pb_cmd_run(&o);
    free(words);
    return code;
}

/* Expected seconds of the second measurement, the wait apart. *cases: number of cases. */
static double expected(const pb_plan *plan, const char *keys, int *cases)
{
    double s = 0;
    *cases = 0;
    for (int i = 0; i < plan->n; i++) {
        char line[PB_KEY_TEXT + 2];
        snprintf(line, sizeof line, "%s\n", plan->cases[i].key);
        const char *at = strstr(keys, line);
        const bool wanted = at && (at == keys || at[-1] == '\n');
        *cases += wanted;
        if (wanted || i < plan->ceilings) s += pb_plan_expect(plan, &plan->cases[i]);
    }
    return s * PB_STORED_CONFIRM_PROCESSES;
}

/* The time on pb_clock_seconds() from which the budget stops a measurement that begins now; INFINITY: no budget. */
static double deadline(const pb_again *a)
{
    const double now = pb_clock_seconds();
    return a->end > 0 ? pb_budget_deadline(now, a->end - now) : (double)INFINITY;
}

/* Says why rows were not measured again. late: the budget ended the measurement, as it may end any. Then, and after a
 * signal, run.json in dir says that it is truncated, so that no comparison reads it. */
static pb_exit conclude(const pb_again *a, const char *dir, bool late, pb_exit code)
{
    if (pb_interrupted() || late)
        fprintf(stderr,
                "bench: %s before the worse rows were confirmed; %s is complete; bench run --resume %s measures them "
                "again, bench compare %s compares without\n",
                late ? "the budget is used up" : "interrupted", a->dir, a->dir, a->dir);
    else if (code != PB_EXIT_OK)
        fprintf(stderr, "bench: the second measurement in %s failed (exit code %d): its failed cases confirm nothing\n",
                dir, (int)code);
    return late ? PB_EXIT_OK : code;
}

static pb_exit confirm(const pb_again *a, char *keys, int rows)
{
    char dir[PB_RUN_DIR_TEXT];
    int cases;
    const double takes = expected(a->plan, keys, &cases), need = a->o->confirm_after + takes;
    const char *plural = rows == 1 ? " is" : "s are";
    if (!cases) {
        fprintf(stderr, "bench: %d row%s worse, but of no case that can be measured again alone\n", rows, plural);
        return PB_EXIT_OK;
    }
    if (pb_clock_seconds() + need > deadline(a)) {
        fprintf(stderr,
                "bench: %d row%s worse beyond the bound; the budget has no time to confirm it; bench run --resume %s "
                "--budget %.0f does\n",
                rows, plural, a->dir, ceil(1.5 * need) + 10);
        return PB_EXIT_OK;
    }
    if (snprintf(dir, sizeof dir, "%s/" PB_RUN_AGAIN, a->dir) >= (int)sizeof dir) {
        pb_fail(PB_EINVAL, "%.60s...: the path is too long", a->dir);
        return pb_complain(PB_EXIT_HARNESS);
    }
    fprintf(stderr,
            "bench: %d row%s worse beyond the bound: in %g s, %d fresh processes measure %s again, %d case%s in "
            "about %.0f s (--no-confirm: not)\n",
            rows, plural, a->o->confirm_after, PB_STORED_CONFIRM_PROCESSES, rows == 1 ? "it" : "them", cases,
            cases == 1 ? "" : "s", takes);
    remove_old(dir);
    const bool waited = wait_for(a->o->confirm_after);
    const double until = deadline(a);
    const pb_exit code = waited ? measure_again(a, keys, dir) : PB_EXIT_HARNESS;
    const bool stopped = code == PB_EXIT_HARNESS && !pb_interrupted();
    return conclude(a, dir, stopped && pb_clock_seconds() >= until, code);
}

pb_exit pb_again_run(void *user)
{
    const pb_again *a = user;
    char *keys;
    int rows;
    pb_exit code = PB_EXIT_OK;
    /* An error here is reported by the comparison, which reads the same files. */
    if (pb_run_unconfirmed(a->o, a->dir, &keys, &rows) == PB_OK && rows) code = confirm(a, keys, rows);
    free(keys);
    return code;
}
