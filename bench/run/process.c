/* process.c - the parent's side of a measuring process: starts it, shows progress, reports how it ended, and starts
 * another one after a case that hung. */
#define _GNU_SOURCE
#include "bench/run/process.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/measure/measure.h"
#include "bench/run/process_start.h"
#include "bench/run/progress.h"
#include "bench/run/run_json.h"
#include "launch/supervise.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"

/* ---- the progress line and its estimate ----------------------------------------------------------- */

/* Estimates the seconds left: the expected seconds of the remaining cases, times the pace of this command so far
 * (elapsed / expected). The pace includes a prior, a tenth of all work at its expected speed, because the first cases
 * are short and would make the estimate jump. */
static double left(const pb_process *l, const int *order, int at)
{
    double all = 0, done = -l->before;
    for (int i = 0; i < l->plan->n; i++) {
        double e = pb_plan_expect(l->plan, &l->plan->cases[order[i]]);
        all += e;
        done += i < at ? e : 0;
    }
    done += all * l->number;
    const double total = all * (double)l->processes, rest = total - l->before - done, prior = total / 10;
    return prior > 0 ? rest * (pb_clock_seconds() - l->started + prior) / (done + prior) : 0;
}

typedef struct shown {
    const pb_process *l;
    const int *order;
} shown;

static void show(void *user, int at)
{
    const pb_process *l = ((const shown *)user)->l;
    const int *order = ((const shown *)user)->order;
    if (l->options->quiet || !isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r\033[Kprocess %d of %ld, case %d of %d, about %.0f s left: %.60s", l->number + 1, l->processes,
            at + 1, l->plan->n, left(l, order, at), l->plan->cases[order[at]].key);
}

static void clear(const pb_process *l)
{
    if (!l->options->quiet && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

/* ---- handling the end of a process ------------------------------------------------------------------- */

/* Describes how the process ended, in `how`. Returns true if it crashed: a signal, or an exit code that
 * pb_process_child() never returns. A library or sanitizer that calls exit() also counts as a crash. */
static bool died(int status, char *how, size_t n)
{
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (WIFSIGNALED(status))
        snprintf(how, n, "killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else snprintf(how, n, "ended by exit code %d", code);
    return code != PB_EXIT_OK && code != PB_EXIT_USAGE && code != PB_EXIT_INCOMPARABLE && code != PB_EXIT_NO_MEMORY &&
           code != PB_EXIT_HARNESS;
}

/* Sets *out to the case at index `at` of the order. For at = n, it is a case that stands for the suite's conclusions.
 * False: this process had not begun a case. */
static bool case_at(const pb_process *l, const int *order, int at, pb_case *out)
{
    if (at < l->first) return false;
    if (at < l->plan->n) *out = l->plan->cases[order[at]];
    else {
        *out = (pb_case){.name = "conclusions"};
        snprintf(out->suite, sizeof out->suite, "%s", l->plan->suite->name);
        pb_case_finish(out);
    }
    return true;
}

static void __attribute__((format(printf, 3, 4)))
note_outcome(pb_process *l, pb_outcome outcome, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(l->reason, sizeof l->reason, format, args);
    va_end(args);
    l->outcome = outcome;
}

static pb_status emit_end(const pb_process *l, const pb_case *c, pb_row_status status, const char *note)
{
    pb_emitter emitter;
    PB_TRY(pb_emitter_open(l->dir, &emitter));
    emitter.run_id = l->run_id, emitter.machine_id = l->machine_id, emitter.host = l->host;
    emitter.commit = pb_run_commit(), emitter.process = l->number;
    pb_status s = pb_emit_outcome(&emitter, c, status, note);
    pb_emitter_close(&emitter);
    return s;
}

/* Writes a row for the case in which the process crashed, because the process itself cannot. No other process measures
 * the remaining cases, so they have no rows. */
static pb_status after_death(pb_process *l, const int *order, int at, const char *how)
{
    char note[160];
    pb_case c;
    const bool begun = case_at(l, order, at, &c);
    snprintf(note, sizeof note, PB_DIED "%s", how);
    note_outcome(l, PB_OUTCOME_crashed, "%s %s%s", how, begun ? "in " : "before its first case", begun ? c.key : "");
    if (!pb_interrupted())
        fprintf(stderr, "bench: process %d: %s; the rows that it measured before are kept\n", l->number, l->reason);
    if (begun) PB_TRY(emit_end(l, &c, pb_interrupted() ? PB_ROW_TRUNCATED : PB_ROW_FAILED, note));
    return pb_interrupted() ? PB_OK : pb_progress_mark(l->dir, (pb_place){l->number + 1, 0});
}

/* Truncates the run's files to the last completed case. *next becomes the index of the first case that is not complete:
 * `at`, or a later one when the case at `at` was completed just before the process ended. */
static pb_status cut_back(const pb_process *l, int at, int *next)
{
    const long most = l->processes > l->number ? l->processes : l->number + 1;
    pb_progress_line last;
    PB_TRY(pb_progress_read(l->dir, (pb_place){(int)most, l->plan->n}, &last));
    PB_TRY(pb_progress_cut(l->dir, &last));
    const pb_place place = last.next;
    *next = place.process > l->number ? l->plan->n + 1 : at;
    if (place.process == l->number && place.next > at) *next = place.next;
    return PB_OK;
}

/* Handles the loss of a rank, which ended the job: discards what the ranks wrote about the case, because that depends
 * on the moment at which each of them noticed, and writes one row of status failed that names the rank. */
static pb_status after_loss(pb_process *l, const int *order, int at, const char *loss)
{
    int next;
    pb_case c;
    const bool begun = case_at(l, order, at, &c);
    note_outcome(l, PB_OUTCOME_crashed, "%s", loss);
    if (!begun) return PB_OK;
    PB_TRY(cut_back(l, at, &next));
    if (next > at) return PB_OK;
    PB_TRY(emit_end(l, &c, pb_interrupted() ? PB_ROW_TRUNCATED : PB_ROW_FAILED, loss));
    return pb_interrupted() ? PB_OK : pb_progress_mark(l->dir, (pb_place){l->number + 1, 0});
}

/* Handles a process that was killed at the deadline. Its case gets a row of status truncated; --resume measures the
 * case again. */
static pb_status after_deadline(const pb_process *l, const int *order, int at)
{
    int next;
    pb_case c;
    if (!case_at(l, order, at, &c)) return PB_OK;
    PB_TRY(cut_back(l, at, &next));
    return next > at ? PB_OK : emit_end(l, &c, PB_ROW_TRUNCATED, "killed: the budget was used up");
}

/* Handles a case that hung: discards the case's rows, as --resume does, writes a row of status timeout, and sets
 * l->first to the next case. If progress.csv shows that the case completed after all, its rows are kept. */
static pb_status after_hang(pb_process *l, const int *order, const pb_child *w, const char *behind, pb_exit *code)
{
    char note[PB_LOSS_TEXT + 160];
    pb_case c;
    if (!case_at(l, order, w->at, &c)) {
        note_outcome(l, PB_OUTCOME_hung, "hung for %.3g s before its first case and was ended", w->took);
        fprintf(stderr, "bench: process %d %s\n", l->number, l->reason);
        *code = PB_EXIT_HARNESS; /* the next process would hang too */
        return PB_OK;
    }
    PB_TRY(cut_back(l, w->at, &l->first));
    if (l->first > w->at) {
        note_outcome(l, PB_OUTCOME_hung, "hung for %.3g s after %s, which is complete", w->silent, c.key);
        fprintf(stderr, "bench: process %d %s\n", l->number, l->reason);
        return PB_OK;
    }
    *code = PB_EXIT_INCOMPARABLE;
    snprintf(note, sizeof note, "hung: ended after %.3g s, the last %.3g s without a sample%s%s", w->took, w->silent,
             *behind ? "; " : "", behind);
    note_outcome(l, PB_OUTCOME_hung, "%s %s", c.key, note);
    fprintf(stderr, "bench: process %d: %s\n", l->number, l->reason);
    PB_TRY(emit_end(l, &c, PB_ROW_TIMEOUT, note));
    l->first = w->at + 1;
    return pb_progress_mark(l->dir,
                            l->first > l->plan->n ? (pb_place){l->number + 1, 0} : (pb_place){l->number, l->first});
}

/* The case with which the next process continues after one that ended by itself. */
static int after_end(const pb_process *l, const pb_child *w, pb_exit code)
{
    const bool alone = l->plan->suite->alone && (code == PB_EXIT_OK || code == PB_EXIT_NO_MEMORY);
    return alone && w->at >= l->first ? w->at + 1 : l->plan->n + 1;
}

/* Handles the end of the process. Afterwards l->first is the case with which the next process continues; n + 1 means
 * that no case is left. */
static pb_status after_process(pb_process *l, const int *order, const pb_child *w, const char *loss, pb_exit *code,
                               bool *stopped)
{
    char how[96];
    const bool dead = !w->abandoned && died(w->status, how, sizeof how);
    /* A SIGTERM may arrive before the process has installed its handler. `ours`: the process ended because this process
     * sent the signal at the deadline. */
    const bool ours = w->late && (w->killed || (WIFSIGNALED(w->status) && WTERMSIG(w->status) == SIGTERM));
    pb_status s = PB_OK;
    *code = w->killed || dead ? PB_EXIT_INCOMPARABLE : (pb_exit)WEXITSTATUS(w->status);
    if (w->hung) {
        *code = PB_EXIT_OK; /* the exit code of a process that was ended has no meaning */
        s = after_hang(l, order, w, loss, code);
        l->started += w->silent;
    } else {
        *stopped = ours || (w->late && !dead && *code != PB_EXIT_OK);
        if (ours) s = after_deadline(l, order, w->at);
        else if (*loss) s = after_loss(l, order, w->at, loss);
        else if (dead) s = after_death(l, order, w->at, how);
        if (ours || *loss) *code = PB_EXIT_HARNESS;
        l->first = dead || *stopped ? l->plan->n + 1 : after_end(l, w, *code);
    }
    if (!w->abandoned) return s;
    note_outcome(l, PB_OUTCOME_abandoned,
                 "process %d survived SIGKILL in a driver call that does not return; it keeps running", (int)w->pid);
    fprintf(stderr, "bench: process %d: %s\n", l->number, l->reason);
    *code = PB_EXIT_HARNESS; /* the process may still occupy the device */
    return s;
}

/* Returns an array [n + 1], which the caller frees: the seconds of silence after which the case at each index of the
 * order counts as hung. Entry n is for the conclusions. NULL: out of memory. */
static double *limits(const pb_process *l, const int *order)
{
    const double least = pb_least_silence(l->options);
    double *limit = malloc(((size_t)l->plan->n + 1) * sizeof *limit);
    for (int i = 0; limit && i < l->plan->n; i++)
        limit[i] = fmax(least, 10 * pb_plan_expect(l->plan, &l->plan->cases[order[i]]));
    if (limit) limit[l->plan->n] = fmax(least, 10);
    return limit;
}

static pb_status run_process(pb_process *l, const int *order, const double *limit, pb_exit *code, bool *stopped)
{
    shown user = {l, order};
    const pb_child_cases cases = {l->first, l->plan->n, limit, show, &user};
    pb_supervision rules = {.deadline = l->deadline, .end = l->end, .grace = PB_GRACE, .abandon = true};
    pb_child w = {.cases = &cases};
    pb_process_start *start;
    char loss[PB_LOSS_TEXT];
    l->refused = true; /* until a process has begun a case */
    PB_TRY(pb_process_begin(l, &w, &rules, &start));
    pb_supervise(&rules, &w, 1);
    const pb_status ended = pb_process_finish(start, &w, loss);
    clear(l);
    if (l->options->instructions) pb_callgrind_remove_files(l->dir, w.pid);
    l->refused = ended != PB_OK && w.at < cases.first;
    PB_TRY(ended);
    l->disturbed += w.disturbed;
    PB_TRY(after_process(l, order, &w, loss, code, stopped));
    l->refused = w.at < cases.first && !w.killed && !w.hung && WIFEXITED(w.status);
    if (w.no_memory) *code = pb_worse_exit(*code, PB_EXIT_NO_MEMORY);
    return PB_OK;
}

double pb_budget_deadline(double started, double budget)
{
    const double reserve = fmin(10, fmax(PB_GRACE + 1, 0.05 * budget));
    return started + budget - fmin(reserve, budget / 4);
}

pb_status pb_process_run(pb_process *l, pb_exit *code, bool *stopped)
{
    int *order = malloc((size_t)l->plan->n * sizeof *order);
    double *limit = NULL;
    pb_exit worst = PB_EXIT_OK, one = PB_EXIT_OK;
    pb_status s = PB_OK;
    l->outcome = PB_OUTCOME_ok;
    l->disturbed = 0;
    *l->reason = 0;
    if (order) pb_plan_order(l->plan, l->seed, l->number, order), limit = limits(l, order);
    if (!limit) s = pb_fail(PB_ENOMEM, "no memory for the order of %d cases", l->plan->n);
    while (s == PB_OK && l->first <= l->plan->n && one != PB_EXIT_HARNESS && !pb_interrupted() && !*stopped) {
        s = run_process(l, order, limit, &one, stopped);
        worst = pb_worse_exit(worst, one);
        *stopped |= l->first <= l->plan->n && l->deadline > 0 && pb_clock_seconds() >= l->deadline;
    }
    free(limit);
    free(order);
    if (s == PB_OK) *code = *stopped ? pb_worse_exit(worst, PB_EXIT_HARNESS) : worst;
    return s;
}
