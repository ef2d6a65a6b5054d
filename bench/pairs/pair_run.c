/* pair_run.c - the loop over pairs: draws an attempt, runs both processes, stores their rows, and asks for more
 * pairs. */
#define _GNU_SOURCE
#include "bench/pairs/pair_run.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "bench/pairs/pair_process.h"
#include "kernels/engine/bind.h"
#include "kernels/engine/clock.h"
#include "os/disk.h"
#include "os/interrupt.h"

enum { RETRIES = 3, ATTEMPTS = 1 + RETRIES, PATH = PB_PATH_TEXT + 64 };

typedef struct loop {
    const pb_pair_run *r;
    double began, deadline; /* times of pb_clock_seconds(); deadline 0: no deadline */
    int target;             /* number of pairs to have before the next decision */
    int measured;           /* pairs that this command has completed */
    bool late;              /* the time budget ended the measurement */
    pb_exit code;
} loop;

void pb_pair_draw(uint64_t seed, int pair, int attempt, pb_pair_line *out)
{
    enum { COIN, CASES, BASE_PADDING, CAND_PADDING, DRAWS };
    const uint64_t at = (uint64_t)(pair * ATTEMPTS + attempt) * DRAWS;
    *out = (pb_pair_line){.pair = pair, .attempt = attempt};
    out->cand_first = pb_uniform(seed, at + COIN) < 0.5;
    out->seed = (uint64_t)(pb_uniform(seed, at + CASES) * (1 << 24));
    out->padding[PB_BASE] = (long)(pb_uniform(seed, at + BASE_PADDING) * PB_PAIR_PADDING);
    out->padding[PB_CAND] = (long)(pb_uniform(seed, at + CAND_PADDING) * PB_PAIR_PADDING);
}

/* ---- one pair ------------------------------------------------------------------------------------------ */

static void paths(const pb_pair_folder *f, pb_side side, char process[PATH], char log[PATH])
{
    snprintf(process, PATH, "%s/process-%s", f->dir, pb_side_names[side]);
    snprintf(log, PATH, "%s/%s.log", f->dir, pb_side_names[side]);
}

/* Runs the processes of n sides and records their exit codes and times. n == 2: interleaved, side[0] first. */
static pb_status process(loop *l, const pb_side *side, int n, pb_pair_line *line, bool *cut)
{
    char out[PB_SIDES][PATH], log[PB_SIDES][PATH];
    pb_pair_process processes[PB_SIDES];
    pb_pair_ended ended[PB_SIDES];
    const pb_pair_plan *p = l->r->plan;
    for (int i = 0; i < n; i++) {
        paths(l->r->folder, side[i], out[i], log[i]);
        PB_TRY(pb_disk_remove(&pb_disk_posix, out[i]));
        processes[i] = (pb_pair_process){.exe = p->path[side[i]],
                                         .out = out[i],
                                         .log = log[i],
                                         .options = p->options,
                                         .seed = line->seed,
                                         .slowdown = side[i] == PB_CAND ? p->slowdown : 0,
                                         .padding = line->padding[side[i]]};
    }
    PB_TRY(pb_pair_process_run(processes, n, p->time_slice, l->deadline, ended, cut));
    for (int i = 0; i < n; i++) line->code[side[i]] = ended[i].code, line->seconds[side[i]] = ended[i].seconds;
    return PB_OK;
}

static pb_status process_both(loop *l, pb_pair_line *line, bool *cut)
{
    const pb_side order[PB_SIDES] = {line->cand_first ? PB_CAND : PB_BASE, line->cand_first ? PB_BASE : PB_CAND};
    *cut = false;
    if (l->r->plan->time_slice > 0) return process(l, order, PB_SIDES, line, cut);
    PB_TRY(process(l, &order[0], 1, line, cut));
    return *cut ? PB_OK : process(l, &order[1], 1, line, cut);
}

static void complain(const loop *l, pb_side side, int code, const char *what)
{
    char out[PATH], log[PATH], last[256];
    paths(l->r->folder, side, out, log);
    pb_pair_log_tail(log, last, sizeof last);
    pb_fail(PB_EDEVICE, "%s: %s: exit code %d%s%s%s", pb_side_names[side], l->r->plan->path[side], code, what,
            *last ? ": " : "", last);
    fprintf(stderr, "bench: %s\n", pb_error()); /* pb_error() has no control characters, which the log may contain */
}

/* The exit code of the comparison after a process failed with `code` and no retries are left. PB_EXIT_OK: the rows of
 * that process can be kept. */
static pb_exit final_exit(int code)
{
    if (code == PB_EXIT_OK || code == PB_EXIT_INCOMPARABLE) return PB_EXIT_OK; /* the rows say which cases failed */
    return code == PB_EXIT_USAGE ? PB_EXIT_USAGE : PB_EXIT_HARNESS;
}

static void judge_codes(loop *l, pb_pair_line *line)
{
    bool again = l->r->folder->retries < RETRIES;
    line->status = PB_PAIR_IS_OK;
    for (int i = 0; i < PB_SIDES; i++) {
        const int code = line->code[i];
        const bool hopeless = code == PB_EXIT_USAGE || code == PB_PAIR_CANNOT_RUN || code == PB_PAIR_CANNOT_RUN - 1;
        if (code == PB_EXIT_OK) continue;
        if (hopeless || (!again && final_exit(code) != PB_EXIT_OK)) line->status = PB_PAIR_IS_FAILED;
        else if (line->status != PB_PAIR_IS_FAILED) line->status = again ? PB_PAIR_IS_RETRIED : PB_PAIR_IS_KEPT;
        complain(l, (pb_side)i, code, "");
        if (line->status == PB_PAIR_IS_FAILED) l->code = pb_worse_exit(l->code, final_exit(code));
    }
}

static pb_status keep(loop *l)
{
    char out[PATH], log[PATH], run_id[PB_PATH_TEXT];
    for (int i = 0; i < PB_SIDES; i++) {
        paths(l->r->folder, (pb_side)i, out, log);
        if (access(out, F_OK) != 0)
            return pb_fail(PB_EDEVICE, "%s: %s: it ended, but wrote no results: is it a build of bench?",
                           pb_side_names[i], l->r->plan->path[i]);
        snprintf(run_id, sizeof run_id, "%s-%s", l->r->plan->run_id, pb_side_names[i]);
        const pb_status s = pb_pair_folder_add(l->r->folder, (pb_side)i, out, run_id);
        if (s != PB_EINVAL) {
            PB_TRY(s);
            continue;
        }
        /* The rows were probably written by another version of bench, in a format that this version does not know. */
        fprintf(stderr, "bench: %s: %s\n", pb_side_names[i], pb_error());
        l->code = PB_EXIT_INCOMPARABLE;
        return PB_OK;
    }
    return PB_OK;
}

static pb_status one_pair(loop *l)
{
    pb_pair_folder *f = l->r->folder;
    pb_pair_line line;
    bool cut;
    char out[PATH], log[PATH];
    pb_pair_draw(l->r->plan->seed, f->pairs, f->attempt, &line);
    PB_TRY(process_both(l, &line, &cut));
    if (cut) {
        l->late = !pb_interrupted();
        return PB_OK;
    }
    judge_codes(l, &line);
    if (line.status == PB_PAIR_IS_OK || line.status == PB_PAIR_IS_KEPT) PB_TRY(keep(l));
    if (l->code == PB_EXIT_INCOMPARABLE) return PB_OK;
    PB_TRY(pb_pair_folder_commit(f, &line));
    l->measured += f->attempt == 0;
    for (int i = 0; i < PB_SIDES; i++) {
        paths(f, (pb_side)i, out, log);
        PB_TRY(pb_disk_remove(&pb_disk_posix, out));
    }
    return PB_OK;
}

/* ---- all pairs ----------------------------------------------------------------------------------------- */

static void duration(double s, char out[32])
{
    if (s < 100) snprintf(out, 32, "%.0f s", s);
    else snprintf(out, 32, "%.0f min", s / 60);
}

static double pace(const loop *l) { return l->measured ? (pb_clock_seconds() - l->began) / l->measured : 0; }

static void show(const loop *l)
{
    const pb_pair_folder *f = l->r->folder;
    const int last = l->r->plan->rule.look[1];
    char left[32], budget[32];
    if (l->r->quiet || !l->measured) return;
    duration(pace(l) * (l->target - f->pairs), left);
    fprintf(stderr, "bench: pair %d of %d", f->pairs, l->target);
    if (l->target < last) fprintf(stderr, " (%d if rows are undecided then)", last);
    if (f->pairs < l->target) fprintf(stderr, ", about %s left", left);
    if (l->deadline > 0) {
        duration(fmax(0, l->deadline - pb_clock_seconds()), budget);
        fprintf(stderr, ", %s of the budget", budget);
    }
    fputc('\n', stderr);
}

/* Fits the plan into the time budget (pair_run.h). A tenth of the time is kept in reserve, because some pairs take
 * longer than the first. */
static pb_status fit_plan(const loop *l)
{
    pb_pair_plan *p = l->r->plan;
    if (!(l->deadline > 0) || p->pairs_given || l->measured != 1 || l->r->folder->pairs != 1) return PB_OK;
    const double fit = 1 + floor(0.9 * (l->deadline - pb_clock_seconds()) / pace(l));
    if (fit >= p->rule.look[1]) return PB_OK;
    const int pairs = fit > 2 ? (int)fit : 2;
    PB_TRY(pb_pair_plan_set_looks(l->r->folder->dir, p, pairs, pairs));
    fprintf(stderr, "bench: %d pairs fit into the budget: one look, after %d pairs\n", pairs, pairs);
    pb_pair_plan_warn(p, stderr);
    return PB_OK;
}

static bool stopped(const loop *l) { return l->late || pb_interrupted() || l->code != PB_EXIT_OK; }

static pb_status measure_to_target(loop *l)
{
    while (l->r->folder->pairs < l->target && !stopped(l)) {
        if (l->deadline > 0 && l->measured && pb_clock_seconds() + pace(l) > l->deadline) {
            l->late = true;
            break;
        }
        PB_TRY(one_pair(l));
        if (stopped(l)) break;
        show(l);
        if (l->r->folder->pairs == 1 && l->measured) return PB_OK; /* judge once, to stop if nothing can be compared */
    }
    return PB_OK;
}

/* Sets l->target, the number of pairs to have before the next decision. If it equals folder->pairs, measuring ends. */
static pb_status next_target(loop *l)
{
    const pb_pair_opts *rule = &l->r->plan->rule;
    const int pairs = l->r->folder->pairs;
    pb_pair_judgement j;
    l->target = rule->look[0];
    if (!pairs) return PB_OK;
    PB_TRY(pb_pair_judge_folder(l->r->folder, l->r->plan, l->r->gates, l->r->allow_mismatch, &j));
    if (j.hopeless) l->target = pairs;
    else if (pairs >= rule->look[0]) l->target = pairs + j.report.more;
    pb_pair_judgement_free(&j);
    return PB_OK;
}

pb_status pb_pair_run_all(const pb_pair_run *r, bool *late, pb_exit *code)
{
    loop l = {.r = r, .began = pb_clock_seconds()};
    if (r->budget >= 0) l.deadline = l.began + r->budget;
    for (;;) {
        PB_TRY(next_target(&l));
        if (r->folder->pairs >= l.target || stopped(&l)) break;
        PB_TRY(measure_to_target(&l));
        if (stopped(&l)) break;
        PB_TRY(fit_plan(&l));
    }
    *late = l.late;
    *code = l.code;
    if (l.code == PB_EXIT_OK && (pb_interrupted() || !r->folder->pairs)) *code = PB_EXIT_HARNESS;
    return *code == PB_EXIT_OK && !l.late ? pb_pair_folder_finish(r->folder) : PB_OK;
}
