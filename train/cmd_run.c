/* cmd_run.c - `train run`: runs the training loop, with progress lines, log, evaluation, checkpoints and export. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "os/interrupt.h"
#include "os/where.h"
#include "profiles/ranges.h"
#include "trace/gpu.h"
#include "train/capturing.h"
#include "train/job.h"
#include "train/log.h"
#include "train/profiling.h"
#include "train/save.h"
#include "train/step.h"
#include "train/step_counters.h"
#include "train/tensor_capture.h"
#include "train/watchdog.h"

typedef struct run {
    pb_job j;
    pb_graphs graphs;
    pb_log log;
    pb_saver saver;
    pb_export_folder export;
    pb_profiling profiling;
    pb_tensor_capture tensors;
    pb_step_counters counters;
    pb_watchdog watchdog;
    pb_progress p;        /* p.iteration: completed steps, including those of earlier processes of a resumed run */
    double pace;          /* smoothed seconds per step; 0: not known yet */
    long timed;           /* steps of this process */
    bool warned;          /* of a loss that no pretrained model has */
    bool stop;            /* this rank or, with several, another one was interrupted */
    char log_failed[512]; /* why the log could not be written; "": it could */
} run;

static long done(const run *r) { return (long)r->p.iteration; }

static void warn_of_lr(const pb_job *j)
{
    const int rank = j->cfg.model.rank;
    if (pb_train_leads(j->o) && pb_lr_is_high(j->cfg.model.tuning, rank, j->schedule.lr))
        fprintf(stderr,
                "train: warning: training is known to diverge with learning rate %g at rank %d; the default is %g\n",
                j->schedule.lr, rank, pb_default_lr(j->cfg.model.tuning, rank));
}

/* Warns if the run ends before the first step that --profile-steps records: it would end without a trace. */
static void warn_of_no_window(const run *r)
{
    const long first = pb_profiling_first(&r->profiling), left = r->j.schedule.steps - done(r);
    if (first >= 0 && first >= left && pb_train_leads(r->j.o))
        fprintf(stderr,
                "train: warning: no step is profiled: --profile-steps %s records after %ld steps, and this run has "
                "%ld\n",
                r->j.o->profile_steps, first, left);
}

/* Says which tensors NorMuon trains, and what the guard does. */
static void print_matrices(const run *r)
{
    const pb_matrix_counts n = pb_trainer_matrices(r->j.trainer);
    const pb_model *m = pb_trainer_model(r->j.trainer);
    if (r->j.cfg.optimizer != PB_OPTIMIZER_NORMUON) return;
    printf("NorMuon trains %d %s of %zu parameters in %d blocks of %d shapes, with learning rate %g; AdamW trains the "
           "other %zu parameters, with learning rate %g\n",
           n.tensors, m->cfg.tuning == PB_FULL ? "matrices of the layers" : "matrices of adapters", n.elements,
           n.blocks, n.shapes, r->j.matrix_lr, m->trained - n.elements, r->j.schedule.lr);
    if (r->j.cfg.normuon.guard)
        printf("the NaN guard skips steps whose orthogonalised updates are not finite, and %ss the momentum\n",
               r->j.o->nan_guard_momentum);
}

static void print_start(run *r)
{
    const pb_memory m = pb_trainer_memory(r->j.trainer);
    const pb_model_config *c = &r->j.cfg.model;
    printf("%s, %s: %zu parameters trained; weights %.1f MB, gradients %.1f, moments %.1f, activations %.1f\n",
           r->j.o->model, r->j.o->tuning, pb_trainer_model(r->j.trainer)->trained, 1e-6 * (double)m.weights,
           1e-6 * (double)m.grads, 1e-6 * (double)m.moments, 1e-6 * (double)m.activations);
    if (c->tuning != PB_FULL && !c->fixed_norms)
        printf("the gains of the layers' norms are also trained and exported with the adapters; --train-norms no "
               "trains the adapters alone\n");
    print_matrices(r);
}

/* Writes the estimated remaining time as "h:mm:ss", or "?" while it is unknown, and returns `out`. */
static const char *format_remaining(const run *r, char out[40])
{
    const long steps = r->j.schedule.steps - done(r), left = (long)(r->pace * (double)steps + 0.5);
    if (steps && !(r->pace > 0)) snprintf(out, 40, "?");
    else snprintf(out, 40, "%ld:%02ld:%02ld", left / 3600, left / 60 % 60, left % 60);
    return out;
}

/* Updates the smoothed step time. Excludes the first steps of a process, which fault in memory and initialise
 * libraries, and steps that capture a graph: they are slower than later steps. */
static void update_pace(run *r, const pb_step_result *x)
{
    enum { WARM_UP = 2 };
    if (++r->timed <= WARM_UP || x->recording > 0) return;
    r->pace = r->pace > 0 ? 0.9 * r->pace + 0.1 * x->seconds : x->seconds;
}

static void print_progress(const run *r, const pb_step_result *x, double lr, double memory)
{
    char left[40];
    printf("step %6ld/%ld  loss %8.5f  norm %9.3g  lr %8.2e  %8.3g s/step  %9.1f tokens/s  left %s  %.1f MB", done(r),
           r->j.schedule.steps, x->loss, x->norm, lr, x->seconds, x->tokens / x->seconds, format_remaining(r, left),
           1e-6 * memory);
    if (x->skipped) printf("  skipped: %s", x->why);
    printf("\n");
    fflush(stdout);
}

/* True if this step is one after which the model is evaluated on the evaluation data: the last one, or a multiple of
 * --eval-interval. */
static bool eval_due(const run *r)
{
    const long every = r->j.o->eval_interval;
    return r->j.eval_data && (done(r) == r->j.schedule.steps || (every > 0 && done(r) % every == 0));
}

static pb_status evaluate(run *r, double *loss)
{
    pb_evaluation e;
    PB_TRY(pb_job_evaluate(&r->j, r->j.eval_data, NULL, NULL, &e));
    *loss = e.loss;
    if (!r->j.o->quiet)
        printf("step %6ld  evaluation: loss %.6f, perplexity %.6g over %.0f tokens\n", done(r), e.loss, exp(e.loss),
               e.tokens);
    return PB_OK;
}

static void count_step(run *r, const pb_step_result *x)
{
    pb_job_count(&r->j, x, &r->p);
    update_pace(r, x);
    if (x->skipped && pb_train_leads(r->j.o)) fprintf(stderr, "train: step %ld skipped: %s\n", done(r), x->why);
}

/* Prints the expected size of a trace before its window opens. */
static void announce(const run *r, double launches, double replays)
{
    char line[PB_PROFILING_TEXT];
    const pb_graphs *g = &r->graphs;
    const double nodes = g->recorded ? (double)g->nodes / (double)g->recorded : 1;
    if (!pb_train_leads(r->j.o) || r->j.o->quiet) return;
    if (pb_profiling_expects(&r->profiling, launches, replays, nodes, line)) printf("%s\n", line);
}

/* The profiler was attached while training runs: it gets to know the graphs that were recorded before. */
static pb_status show_graphs(void *self)
{
    run *r = self;
    return pb_graphs_trace(&r->graphs, &r->j.ctx, pb_gpu_node);
}

/* Says once that counting failed. Training continues, and the exit code tells it at the end. */
static void count(long number, pb_status s)
{
    if (s != PB_OK) fprintf(stderr, "train: step %ld was not counted: %s\n", number, pb_error());
}

static pb_status profiled_step(run *r, double lr, pb_step_result *x)
{
    const long number = done(r) + 1;
    pb_profile_begin_step(r->profiling.p, number);
    const char *remark = pb_profile_remark(r->profiling.p);
    if (remark && pb_train_leads(r->j.o)) fprintf(stderr, "%s\n", remark);
    const uint64_t replayed = r->graphs.replayed;
    bool eager;
    pb_tensor_capture_begin(&r->tensors, &r->j, &r->profiling, number, &eager);
    count(number, pb_step_counters_begin(&r->counters, &r->j, &r->profiling, &eager));
    pb_range_push(PB_RANGE_step, "train_step", number);
    const pb_status s = pb_job_step(&r->j, r->j.graph && !eager ? &r->graphs : NULL, lr, x);
    pb_range_pop();
    if (s != PB_OK) return s;
    count(number, pb_step_counters_end(&r->counters, &r->j, number));
    pb_profile_end_step(r->profiling.p);
    announce(r, x->kernel_launches, (double)(r->graphs.replayed - replayed));
    return PB_OK;
}

/* Warns once in a run of a loss that no pretrained model has. */
static void warn_of_loss(run *r, const pb_step_result *x)
{
    char what[40];
    snprintf(what, sizeof what, "step %ld", done(r));
    if (!r->warned) r->warned = pb_job_warn_of_loss(&r->j, what, x->loss);
}

/* Captures the matrix at fault. A capture that fails does not end the training. */
static void capture_fault(run *r, const pb_step_result *x)
{
    char path[PB_CAPTURING_PATH];
    const pb_status s = pb_capturing_step(&r->j, done(r), &x->fault, path);
    if (s != PB_OK) fprintf(stderr, "train: step %ld was not captured: %s\n", done(r), pb_error());
    else if (*path && pb_train_leads(r->j.o)) fprintf(stderr, "train: step %ld: captured in %s\n", done(r), path);
}

/* If the log cannot be written, the run stops as if it were interrupted: all ranks save a checkpoint first. */
static void write_log(run *r, const pb_log_row *row)
{
    if (*r->log_failed || pb_log_write(&r->log, row) == PB_OK) return;
    snprintf(r->log_failed, sizeof r->log_failed, "%s", pb_error());
    r->j.stop = true;
}

static pb_status one_step(run *r)
{
    pb_step_result x;
    double memory, eval_loss = (double)NAN;
    const double lr = pb_schedule_lr(&r->j.schedule, done(r));
    pb_where_step(done(r));
    PB_TRY(pb_job_alone(&r->j, profiled_step(r, lr, &x)));
    count_step(r, &x);
    if (x.guarded) capture_fault(r, &x);
    if (pb_tensor_capture_end(&r->tensors, &r->j) != PB_OK)
        fprintf(stderr, "train: the tensors of step %ld were not captured: %s\n", done(r), pb_error());
    r->stop = x.stop;
    warn_of_loss(r, &x);
    PB_TRY(pb_job_memory(&r->j, &memory));
    if (!r->j.o->quiet && (done(r) % r->j.o->log_interval == 0 || done(r) == r->j.schedule.steps || x.skipped))
        print_progress(r, &x, lr, memory);
    if (eval_due(r)) PB_TRY(evaluate(r, &eval_loss));
    write_log(r, &(pb_log_row){.step = (double)done(r),
                               .epoch = (double)pb_dataset_position(r->j.data).epoch,
                               .loss = x.loss,
                               .grad_norm = x.norm,
                               .lr = lr,
                               .step_time = x.seconds,
                               .tokens_per_second = x.tokens / x.seconds,
                               .peak_memory = memory,
                               .kernel_launches = x.kernel_launches,
                               .host_syncs = x.host_syncs,
                               .eval_loss = eval_loss,
                               .seq = x.S,
                               .record_time = x.recording,
                               .index_loss = x.index_loss,
                               .save_time = r->saver.waited,
                               .status = x.skipped ? "skipped" : "ok",
                               .note = x.why});
    r->saver.waited = 0;
    return pb_saver_step(&r->saver, &r->p, false);
}

static void print_graphs(const pb_graphs *g)
{
    printf("graphs: %llu recorded in %.3g s, %zu nodes; %llu steps or micro-batches were replayed, %llu ran eagerly\n",
           (unsigned long long)g->recorded, g->seconds, g->nodes, (unsigned long long)g->replayed,
           (unsigned long long)(g->runs - g->replayed));
}

/* True if the run ends before its last step. With several ranks, all see the interruption of one after the same step,
 * because it travels with the losses. */
static bool stopped(const run *r)
{
    const bool last = done(r) == r->j.schedule.steps;
    return r->j.comm ? r->stop : pb_interrupted() || (r->j.stop && !last);
}

/* Fails on all ranks if the log could not be written. */
static pb_status agree_on_log(run *r)
{
    const bool failed = *r->log_failed;
    return pb_job_agree(&r->j, "the log",
                        failed ? pb_fail(PB_EIO, "%s: the run ended after step %ld", r->log_failed, done(r)) : PB_OK);
}

/* Saves a checkpoint of a run that is stopped. If that fails too, the message also says why it was stopped. */
static pb_status save_stopped(run *r)
{
    char why[512];
    if (pb_train_leads(r->j.o) && !*r->log_failed) fprintf(stderr, "train: interrupted after step %ld\n", done(r));
    const pb_status s = done(r) ? pb_saver_step(&r->saver, &r->p, true) : PB_OK;
    if (s == PB_OK || !*r->log_failed) return s;
    snprintf(why, sizeof why, "%s", pb_error());
    return pb_fail(s, "%s; %s", r->log_failed, why);
}

/* Says how many steps of the run were skipped, and how many of them by the NaN guard alone. */
static pb_status print_skipped(run *r)
{
    pb_adamw_state s;
    if (!r->p.skipped || !pb_train_leads(r->j.o)) return PB_OK;
    PB_TRY(pb_trainer_state(r->j.trainer, &s));
    printf("%ld of %ld steps were skipped, because their loss%s was not finite\n", (long)r->p.skipped, done(r),
           r->j.cfg.normuon.guard ? ", gradient or update" : " or gradient");
    if (s.guarded) printf("%d of them were skipped by the NaN guard alone\n", (int)s.guarded);
    return PB_OK;
}

/* Ends a run whose last steps were all skipped. The checkpoint that a thread writes is completed before, as it would be
 * without --save-async. */
static pb_status give_up(run *r)
{
    PB_TRY(pb_saver_finish(&r->saver));
    PB_TRY(agree_on_log(r));
    return pb_fail(PB_EWRONG, "step %ld: %ld steps in a row had no finite loss%s (limit: --max-skipped)", done(r),
                   (long)r->p.skipped_in_row, r->j.cfg.normuon.guard ? ", gradient and update" : " and gradient");
}

static pb_status steps(run *r)
{
    while (done(r) < r->j.schedule.steps && !stopped(r)) {
        PB_TRY(one_step(r));
        if ((long)r->p.skipped_in_row >= r->j.o->max_skipped) return give_up(r);
    }
    const bool stop = stopped(r);
    if (stop) PB_TRY(save_stopped(r));
    PB_TRY(pb_saver_finish(&r->saver));
    PB_TRY(print_skipped(r));
    if (r->j.graph && !r->j.o->quiet) print_graphs(&r->graphs);
    pb_watchdog_stop(&r->watchdog); /* an export shows no progress, however long it takes */
    if (stop) return agree_on_log(r);
    pb_where_phase("export");
    PB_TRY(pb_job_agree(&r->j, "the export", pb_export(&r->j, &r->export)));
    pb_where_phase(NULL);
    PB_TRY(agree_on_log(r));
    const long skipped = (long)r->p.skipped_in_row;
    if (!skipped) return PB_OK;
    return pb_fail(
        PB_EWRONG,
        "the last %ld of %ld steps were skipped, so the weights are still those after step %ld; if they are the "
        "cause, resume from an earlier checkpoint",
        skipped, done(r), done(r) - skipped);
}

/* Turns EPATH into EIO. Every path was usable when training began. A path that fails later is therefore a failure of
 * the machine (exit code 125), not a mistake of the user (exit code 2). */
static pb_status blame_machine(pb_status s) { return s == PB_EPATH ? PB_EIO : s; }

/* Opens the folders and files that the run writes. All checks come first, so that a refused run makes none of them; the
 * folder of --save exists already. */
static pb_status open_outputs(run *r)
{
    const pb_train_options *o = r->j.o;
    const bool leads = pb_train_leads(o); /* one rank exports and writes the log */
    const long after = o->resume ? done(r) : -1;
    const char *const made[] = {o->export, o->capture_nan, o->profile_out};
    PB_TRY(pb_profiling_check(&r->j));
    PB_TRY(
        pb_job_agree(&r->j, "the log", pb_log_check(leads ? o->log : NULL, after, made, sizeof made / sizeof *made)));
    PB_TRY(pb_tensor_capture_check(&r->j, &r->tensors));
    PB_TRY(pb_step_counters_check(&r->j, &r->counters));
    PB_TRY(pb_job_agree(&r->j, "the export folder",
                        pb_export_open(leads ? o->export : NULL, pb_export_kind_of(&r->j), &r->export)));
    PB_TRY(pb_capturing_open(&r->j));
    PB_TRY(pb_profiling_open(&r->j, &r->profiling));
    PB_TRY(pb_tensor_capture_open(&r->j, &r->profiling, &r->tensors));
    PB_TRY(pb_step_counters_open(&r->j, &r->profiling, &r->counters));
    pb_profile_on_attach(r->profiling.p, show_graphs, r);
    /* The log is opened last: opening may truncate an existing log, so everything else must have been opened. */
    return pb_job_agree(&r->j, "the log", pb_log_open(leads ? o->log : NULL, after, &r->log));
}

pb_status pb_train_run(const pb_train_options *o)
{
    run r = {0};
    if (o->dry_run) return pb_train_plan(o);
    pb_status s = pb_job_configure(o, &r.j);
    if (s == PB_OK) warn_of_lr(&r.j);
    s = pb_job_agree(&r.j, "the options", s);
    if (s == PB_OK) s = pb_job_explain_lost_device(&r.j, pb_job_open(&r.j, false));
    if (s == PB_OK) s = pb_job_agree(&r.j, "scratch memory", pb_job_explain_lost_device(&r.j, pb_job_reserve(&r.j)));
    if (s == PB_OK) s = pb_saver_open(&r.j, &r.saver, &r.p);
    if (s == PB_OK) s = open_outputs(&r);
    if (s == PB_OK) {
        if (!o->quiet) print_start(&r);
        if (!o->quiet && *r.profiling.why) printf("%s\n", r.profiling.why);
        warn_of_no_window(&r);
        s = pb_watchdog_start(&r.watchdog, (double)o->step_timeout);
        if (s == PB_OK) s = blame_machine(pb_job_explain_lost_device(&r.j, steps(&r)));
        pb_watchdog_stop(&r.watchdog);
    }
    const bool trained = s == PB_OK;
    s = pb_step_counters_close(&r.counters, s);
    if (trained) s = blame_machine(s);
    const pb_status profiled = pb_profiling_close(&r.profiling), closed = pb_log_close(&r.log);
    if (s == PB_OK) s = blame_machine(profiled != PB_OK ? profiled : closed);
    if (r.j.trainer) pb_graphs_free(&r.graphs, &r.j.ctx);
    pb_export_close(&r.export);
    pb_saver_close(&r.saver);
    pb_tensor_capture_close(&r.tensors);
    pb_job_close(&r.j);
    return s;
}
