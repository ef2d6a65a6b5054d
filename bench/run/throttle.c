/* throttle.c - decides which processes are measured again, and what processes.csv says of each. */
#define _GNU_SOURCE
#include "bench/run/throttle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/machine/machine.h"
#include "bench/run/process_state.h"
#include "bench/run/run_json.h"
#include "kernels/engine/clock.h"
#include "kernels/engine/op.h"
#include "os/interrupt.h"

static const char measured_again[] = " (measured again)";

/* ---- counting the processes that are measured again ------------------------------------------------- */

static bool make_room(pb_attempts *a)
{
    if (a->ended < a->room) return true;
    const int room = a->room ? 2 * a->room : 16;
    int *earlier = realloc(a->earlier, (size_t)room * sizeof *earlier);
    if (earlier) a->earlier = earlier;
    int *again = earlier ? realloc(a->again, (size_t)room * sizeof *again) : NULL;
    if (!again) return false;
    a->again = again;
    a->room = room;
    return true;
}

static long most_retries(const pb_options *o) { return o->throttle_retries >= 0 ? o->throttle_retries : 2; }

/* True if the throttled process `end` is measured again. If other work was the reason, the decision also depended on
 * the time left, so it is read from the text of the row in processes.csv. */
static bool is_repeated(const pb_attempts *a, const pb_process_end *end, int earlier)
{
    return pb_is_disturbance(end->reason) ? strstr(end->reason, measured_again) != NULL
                                          : earlier < most_retries(a->options);
}

pb_status pb_attempts_add(pb_attempts *a, const pb_process_end *end)
{
    if (!pb_outcome_ended(end->outcome)) return PB_OK;
    if (!make_room(a)) return pb_fail(PB_ENOMEM, "out of memory for the outcomes of %d processes", a->ended);
    const int earlier = end->retry_of >= 0 ? a->earlier[end->retry_of] + 1 : 0;
    if (end->outcome == PB_OUTCOME_throttled && is_repeated(a, end, earlier)) a->again[a->retries++] = a->ended;
    a->earlier[a->ended++] = earlier;
    return PB_OK;
}

pb_status pb_attempts_read(const char *dir, const pb_options *o, pb_attempts *out)
{
    pb_processes p;
    *out = (pb_attempts){.options = o};
    PB_TRY(pb_processes_read(dir, &p));
    pb_status s = PB_OK;
    for (int i = 0; i < p.n && s == PB_OK; i++) s = pb_attempts_add(out, &p.row[i]);
    pb_processes_free(&p);
    return s;
}

void pb_attempts_free(pb_attempts *a)
{
    free(a->earlier);
    free(a->again);
    *a = (pb_attempts){0};
}

long pb_attempts_processes(const pb_attempts *a) { return a->options->processes + a->retries; }

/* Returns the process that process number `process` repeats; -1: `process` is no retry. The k-th process beyond those
 * requested repeats the k-th process that was throttled and may be measured again. */
static int retry_of(const pb_attempts *a, int process)
{
    const long k = process - a->options->processes;
    return k >= 0 && k < a->retries ? a->again[k] : -1;
}

/* ---- resuming a run --------------------------------------------------------------------------------- */

static pb_status check_known(const char *dir, int ended, pb_progress_line *last)
{
    const int next = last->next.process;
    if (next <= ended) return PB_OK;
    if (next > ended + 1)
        return pb_fail(PB_EINVAL, "%.200s/processes.csv: lacks process %d; progress.csv says that process %d is next",
                       dir, ended, next);
    PB_TRY(pb_progress_start(dir, ended, last));
    fprintf(stderr, "bench: whether process %d was throttled is not known; it is measured again\n", ended);
    return PB_OK;
}

pb_status pb_attempts_resume(pb_attempts *a, const char *dir, pb_progress_line *last)
{
    const pb_options *o = a->options;
    pb_processes p;
    PB_TRY(pb_processes_read(dir, &p));
    pb_status s = check_known(dir, p.ended, last);
    if (s == PB_OK) s = pb_processes_cut(dir, &p, last->next.process);
    pb_processes_free(&p);
    if (s != PB_OK) return s;
    pb_attempts_free(a);
    return pb_attempts_read(dir, o, a);
}

/* ---- deciding the outcome of a process -------------------------------------------------------------- */

/* Sets *done to true if all cases of this process number are measured. A process that a signal or the budget stopped
 * may nevertheless have completed its last case; then progress.csv names the next process. */
static pb_status is_done(const pb_process *l, pb_exit code, bool stopped, bool *done)
{
    pb_place next = {0};
    *done = code != PB_EXIT_HARNESS && code != PB_EXIT_USAGE && !pb_interrupted() && !stopped;
    if (*done) return PB_OK;
    PB_TRY(pb_progress_next(l->dir, &next));
    *done = next.process > l->number;
    return PB_OK;
}

/* True if the budget leaves time for one process more than are planned after this one, if each takes as long as this
 * one. */
static bool time_for_another(const pb_process *l, double seconds)
{
    const double left = (double)(l->processes - l->number) * seconds;
    return !(l->deadline > 0) || pb_clock_seconds() + left < l->deadline;
}

/* Decides whether a process is measured again; `why`: why it was throttled. Other work may last, so without
 * --throttle-retries there is only one such retry in a run. */
static bool repeat(const pb_attempts *a, const pb_process *l, const char *why, int earlier, double seconds)
{
    const pb_options *o = a->options;
    if (!pb_is_disturbance(why)) return earlier < most_retries(o);
    return (o->throttle_retries >= 0 ? earlier < o->throttle_retries : !a->retries) && time_for_another(l, seconds);
}

/* Sets the outcome of a process whose cases are all measured. `why`: the reasons of throttling; "": none. */
static void conclude(const pb_attempts *a, const pb_process *l, const char *why, pb_process_end *end)
{
    const int earlier = end->retry_of >= 0 ? a->earlier[end->retry_of] + 1 : 0;
    end->outcome = l->outcome == PB_OUTCOME_abandoned ? PB_OUTCOME_hung : l->outcome;
    snprintf(end->reason, sizeof end->reason, "%s", l->reason);
    if (!*why) return;
    end->outcome = PB_OUTCOME_throttled;
    if (repeat(a, l, why, earlier, end->seconds))
        snprintf(end->reason, sizeof end->reason, "%s%s", why, measured_again);
    else if (!earlier) snprintf(end->reason, sizeof end->reason, "%s", why);
    else
        snprintf(end->reason, sizeof end->reason, "%s (after %d %s)", why, earlier, earlier == 1 ? "retry" : "retries");
    fprintf(stderr, "bench: process %d was %s: %s\n", l->number, pb_is_disturbance(why) ? "disturbed" : "throttled",
            end->reason);
}

/* Sets the outcome of a process that --resume continues. */
static void suspend(const pb_process *l, pb_exit code, bool stopped, pb_process_end *end)
{
    const bool abandoned = l->outcome == PB_OUTCOME_abandoned;
    end->outcome = abandoned                     ? PB_OUTCOME_abandoned
                   : pb_interrupted() || stopped ? PB_OUTCOME_interrupted
                                                 : PB_OUTCOME_failed;
    if (*l->reason) snprintf(end->reason, sizeof end->reason, "%s", l->reason);
    else if (stopped) snprintf(end->reason, sizeof end->reason, "the budget is used up");
    else if (pb_interrupted()) snprintf(end->reason, sizeof end->reason, "%s", strsignal(pb_interrupt_signal()));
    else snprintf(end->reason, sizeof end->reason, "exit code %d", code);
}

/* Stores the state in run.json. When a process was continued or measured again, its new entry replaces the old one. */
static pb_status keep_state(json_t *about, json_t *state, int process)
{
    json_t *list = json_object_get(about, "process_state");
    if (!list && json_object_set_new(about, "process_state", list = json_array()) != 0) list = NULL;
    for (size_t n = json_array_size(list); n > 0; n--) {
        if (json_integer_value(json_object_get(json_array_get(list, n - 1), "process")) < process) break;
        json_array_remove(list, n - 1);
    }
    return list && json_array_append_new(list, state) == 0 ? PB_OK : pb_fail(PB_ENOMEM, "out of memory for run.json");
}

static void now_utc(char out[PB_TIME_UTC_TEXT])
{
    const time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, PB_TIME_UTC_TEXT, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* Appends the process's row. processes.csv is written before run.json, so that a process has an outcome although the
 * run was killed in between. */
static pb_status note_end(pb_attempts *a, const pb_process *l, pb_exit code, bool stopped, const char *why,
                          pb_process_end *end)
{
    bool done;
    PB_TRY(is_done(l, code, stopped, &done));
    if (done) conclude(a, l, why, end);
    else suspend(l, code, stopped, end);
    PB_TRY(pb_processes_append(l->dir, end));
    return pb_attempts_add(a, end);
}

pb_status pb_throttle_run(pb_attempts *a, pb_process *l, json_t *about, pb_exit *code, bool *stopped)
{
    pb_process_end end = {.process = l->number, .retry_of = retry_of(a, l->number)};
    const double began = pb_clock_seconds();
    char why[PB_THROTTLED_TEXT];
    pb_state_recording *w;
    json_t *state;
    now_utc(end.start_utc);
    PB_TRY(pb_state_recording_begin(l->options, &w));
    pb_status s = pb_process_run(l, code, stopped);
    const pb_status recorded = pb_state_recording_end(w, l->number, l->disturbed, &state, why);
    end.seconds = pb_clock_seconds() - began;
    if (recorded != PB_OK) return recorded;
    if (s == PB_OK) s = note_end(a, l, *code, *stopped, why, &end);
    if (s == PB_OK) s = keep_state(about, json_incref(state), l->number);
    if (s == PB_OK) s = pb_run_json_write(l->dir, about, true);
    json_decref(state);
    return s;
}
