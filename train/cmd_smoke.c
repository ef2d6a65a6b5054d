/* cmd_smoke.c - `train smoke`: runs the rungs of the smoke ladder (smoke.h), one line each. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/engine/clock.h"
#include "os/disk.h"
#include "os/interrupt.h"
#include "train/job.h"
#include "train/save.h"
#include "train/smoke.h"
#include "train/step.h"
#include "trainer/checkpoint/state.h"

enum { PATH = 1024 };

typedef struct ladder {
    const pb_train_options *o;
    char parent[PATH / 2], name[32]; /* parent/name: the folder of all checkpoints, which is removed at the end */
    bool interrupted;
} ladder;

/* One job of a rung: the whole rung, or its second half, which resumes. */
typedef struct passage {
    ladder *l;
    pb_smoke_rung *r;
    bool resumes;
    pb_train_options o;
    pb_job j;
    pb_saver saver;
    pb_graphs graphs;
    pb_progress p;
    pb_digest_text half, end; /* of this rank's weights, moments and counters: after half of the steps, after all */
    char save[PATH];
} passage;

/* The digest of this rank's state, as a checkpoint would store it. */
static pb_status digest(passage *x, pb_digest_text *out)
{
    char path[PATH + 32];
    pb_file_digest d;
    snprintf(path, sizeof path, "%s/%s/state-%d", x->l->parent, x->l->name, x->j.rank);
    const pb_status s = pb_state_write(x->j.trainer, NULL, &pb_disk_posix, path, &d);
    unlink(path);
    if (s == PB_OK) *out = d.digest;
    return pb_job_agree(&x->j, "the digest of the state", s);
}

static pb_status open_passage(passage *x)
{
    PB_TRY(pb_job_agree(&x->j, "the options", pb_job_configure(&x->o, &x->j)));
    if (x->j.schedule.steps < PB_SMOKE_STEPS)
        return pb_fail(PB_EINVAL, "--steps %ld: the smoke ladder runs the first %d steps", x->j.schedule.steps,
                       PB_SMOKE_STEPS);
    PB_TRY(pb_job_open(&x->j, false));
    PB_TRY(pb_job_agree(&x->j, "scratch memory", pb_job_reserve(&x->j)));
    return pb_saver_open(&x->j, &x->saver, &x->p);
}

static pb_status one_step(passage *x)
{
    pb_smoke_rung *r = x->r;
    const int done = (int)x->p.iteration;
    pb_step_result step;
    PB_TRY(pb_job_alone(
        &x->j, pb_job_step(&x->j, x->j.graph ? &x->graphs : NULL, pb_schedule_lr(&x->j.schedule, done), &step)));
    pb_job_count(&x->j, &step, &x->p);
    x->l->interrupted = x->j.comm ? step.stop : pb_interrupted();
    if (x->resumes) return PB_OK;
    r->loss[done] = step.loss;
    r->norm[done] = step.norm;
    if (!step.skipped || r->skipped) return PB_OK;
    r->skipped = done + 1;
    memcpy(r->why, step.why, sizeof r->why);
    return PB_OK;
}

static pb_status run_passage(passage *x)
{
    const int half = x->r->steps / 2;
    PB_TRY(open_passage(x));
    if (x->resumes) PB_TRY(digest(x, &x->half));
    while ((int)x->p.iteration < x->r->steps) {
        PB_TRY(one_step(x));
        if (x->l->interrupted) return PB_OK;
        if (x->resumes || (int)x->p.iteration != half) continue;
        PB_TRY(pb_saver_step(&x->saver, &x->p, true));
        PB_TRY(pb_saver_finish(&x->saver));
        PB_TRY(digest(x, &x->half));
    }
    return digest(x, &x->end);
}

static pb_status passage_of(ladder *l, pb_smoke_rung *r, bool resumes, passage *x)
{
    *x = (passage){.l = l, .r = r, .resumes = resumes, .o = *l->o};
    snprintf(x->save, sizeof x->save, "%s/%s/%d", l->parent, l->name, r->steps);
    x->o.save = x->save;
    x->o.resume = resumes ? "latest" : NULL;
    x->o.quiet = true;
    const pb_status s = pb_job_explain_lost_device(&x->j, run_passage(x));
    if (x->j.trainer) pb_graphs_free(&x->graphs, &x->j.ctx);
    pb_saver_close(&x->saver);
    pb_job_close(&x->j);
    return s;
}

static bool every_run_gives_the_same_bits(const passage *x)
{
    return x->o.deterministic || (x->j.device == PB_CPU && x->j.ranks == 1);
}

/* Runs a rung, and prints its line. EWRONG: it failed. */
static pb_status rung(ladder *l, int steps, double rise)
{
    pb_smoke_rung r = {.steps = steps, .rise = rise};
    const double start = pb_clock_seconds();
    const bool prints = pb_train_leads(l->o);
    passage whole, second;
    char why[400];
    PB_TRY(passage_of(l, &r, false, &whole));
    if (!l->interrupted) PB_TRY(passage_of(l, &r, true, &second));
    if (l->interrupted) return PB_OK;
    r.resumed = pb_digest_equal(&whole.half, &second.half);
    r.end = pb_digest_equal(&whole.end, &second.end);
    r.compares_end = every_run_gives_the_same_bits(&whole);
    const bool passed = pb_smoke_passed(&r, why, sizeof why);
    if (!passed && prints) printf("%2d steps: FAILED: %s\n", steps, why);
    PB_TRY(pb_world_agree(l->o->world, "the checks",
                          passed ? PB_OK : pb_fail(PB_EWRONG, "smoke: %d steps: %s", steps, why)));
    if (prints)
        printf(
            "%2d steps: passed: loss %.6g to %.6g, gradient norm %.3g to %.3g; none skipped; the checkpoint of step %d "
            "resumed with equal bits%s; %.3g s\n",
            steps, r.loss[0], r.loss[steps - 1], r.norm[0], r.norm[steps - 1], steps / 2,
            r.compares_end ? ", and ended with equal bits" : "", pb_clock_seconds() - start);
    fflush(stdout);
    return PB_OK;
}

/* Rank 0 makes the folder of the checkpoints; the others get its path. */
static pb_status make_folder(ladder *l)
{
    const char *tmp = getenv("TMPDIR"), *parent = l->o->scratch ? l->o->scratch : tmp && *tmp ? tmp : "/tmp";
    char path[PATH];
    pb_status s = PB_OK;
    if (pb_train_leads(l->o)) {
        const int n = snprintf(path, sizeof path, "%s/train-smoke-XXXXXX", parent);
        if (n < 0 || (size_t)n >= sizeof l->parent) s = pb_fail(PB_EINVAL, "--scratch %.60s...: too long", parent);
        else if (!mkdtemp(path)) s = pb_fail_errno(errno, "%s", path);
        snprintf(l->parent, sizeof l->parent, "%s", parent);
        snprintf(l->name, sizeof l->name, "%s", s == PB_OK ? strrchr(path, '/') + 1 : "");
    }
    PB_TRY(pb_world_agree(l->o->world, "the folder of the checkpoints", s));
    PB_TRY(pb_world_broadcast(l->o->world, "the folder of the checkpoints", 0, l->parent, sizeof l->parent));
    return pb_world_broadcast(l->o->world, "the folder of the checkpoints", 0, l->name, sizeof l->name);
}

pb_status pb_train_smoke(const pb_train_options *o)
{
    static const struct {
        int steps;
        double rise;
    } rungs[] = {
#define X(steps, rise) {steps, rise},
        PB_SMOKE_MAP(X)
#undef X
    };
    ladder l = {.o = o};
    PB_TRY(make_folder(&l));
    pb_status s = PB_OK;
    for (size_t i = 0; s == PB_OK && !l.interrupted && i < sizeof rungs / sizeof *rungs; i++)
        s = rung(&l, rungs[i].steps, rungs[i].rise);
    if (l.interrupted && pb_train_leads(o)) fprintf(stderr, "train: interrupted\n");
    if (!pb_train_leads(o)) return s;
    char why[1024], folder[PATH];
    if (s != PB_OK) snprintf(why, sizeof why, "%s", pb_error());
    snprintf(folder, sizeof folder, "%s/%s", l.parent, l.name);
    const pb_status removed = pb_disk_remove(&pb_disk_posix, folder);
    return s != PB_OK ? pb_fail(s, "%s", why) : removed;
}
