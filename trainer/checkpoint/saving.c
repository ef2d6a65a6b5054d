/* saving.c - saves checkpoints: fills a folder, verifies it, publishes it, and removes old ones. With
 * pb_checkpoint_options.background a thread does this with a copy of the state. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/engine/clock.h"
#include "trainer/checkpoint/checkpoint_impl.h"

/* ---- verifying, publishing, removing old checkpoints; on rank 0 ---------------------------------------------- */

/* Makes the same checks as pb_checkpoints_resume. With `files`, it also reads every file again and compares the digest;
 * that is done for a process's first save only, because sync_and_digest() has already read the files once. */
static pb_status verify(pb_checkpoints *c, pb_trainer *t, const char *folder, uint64_t iteration, bool files)
{
    pb_candidate x = {0};
    pb_status s = pb_candidate_open(c, folder, iteration, files, &x);
    if (s == PB_OK) s = pb_candidate_fits(c, t, folder, &x, false);
    pb_candidate_close(&x);
    if (s != PB_EINVAL) return s;
    char why[1024]; /* this process wrote the file, so a damaged file is the disk's failure (EIO), not the user's */
    snprintf(why, sizeof why, "%s", pb_error());
    return pb_fail(PB_EIO, "%s", why);
}

/* True if a checkpoint is retained after `now` has become the resume point. `before` is the previous resume point of
 * this process, 0: none. */
static bool is_retained(const pb_checkpoints *c, uint64_t iteration, uint64_t now, uint64_t before)
{
    /* Later iterations were saved by another process that continued the run. This process must not delete them. */
    if (iteration >= now) return true;
    return c->o.retain_interval ? iteration % (uint64_t)c->o.retain_interval == 0 : iteration == before;
}

/* Removes all checkpoints that are not retained. */
static pb_status remove_old(const pb_checkpoints *c, uint64_t now, uint64_t before)
{
    pb_iterations all = {0};
    pb_status s = pb_folder_list(c, &all);
    size_t n = 0;
    for (size_t i = 0; s == PB_OK && i < all.n; i++)
        if (!is_retained(c, all.at[i], now, before)) all.at[n++] = all.at[i];
    pb_path *path = s == PB_OK ? calloc(n + 1, sizeof *path) : NULL;
    if (s == PB_OK && !path) s = pb_fail(PB_ENOMEM, "%s: no memory to remove older checkpoints", c->dir);
    for (size_t i = 0; s == PB_OK && i < n; i++) s = pb_folder_path(c, all.at[i], NULL, &path[i]);
    if (s == PB_OK) s = pb_folder_drop(c, path, all.at, n);
    free(path);
    free(all.at);
    return s;
}

/* Makes the new folder the resume point, then removes older checkpoints. */
static pb_status keep(pb_saving *s)
{
    const pb_checkpoints *c = s->c;
    const uint64_t iteration = s->progress.iteration;
    PB_TRY(pb_folder_publish(c, iteration, s->folder.text));
    s->published = true;
    /* If the last steps were skipped, bad weights may be the cause. Older checkpoints are therefore kept until a step
     * succeeds again. */
    if (!s->progress.skipped_in_row) PB_TRY(remove_old(c, iteration, c->own_iteration));
    return pb_folder_remove_leftovers(c); /* removes a replaced checkpoint of the same iteration */
}

/* Completes the folder in which all state files are, verifies it, and publishes or removes it. */
static pb_status publish(void *self)
{
    pb_saving *s = self;
    pb_checkpoints *c = s->c;
    const uint64_t iteration = s->progress.iteration;
    PB_TRY(pb_fill_rest(s));
    PB_TRY(verify(c, s->t, s->folder.text, iteration, !c->verified_save || s->how == PB_SAVE_TRIAL));
    return s->how == PB_SAVE_KEEP ? keep(s) : pb_folder_drop(c, &s->folder, &iteration, 1);
}

/* ---- the steps of a save that all ranks make together -------------------------------------------------------- */

static pb_status make_temporary(pb_saving *s)
{
    pb_checkpoints *c = s->c;
    if (!pb_checkpoints_leads(c)) return PB_OK;
    PB_TRY(pb_folder_remove_leftovers(c));
    PB_TRY(pb_checkpoints_digest_base(c, s->t));
    if (c->o.disk->mkdir(c->o.disk->self, s->folder.text) == 0) return PB_OK;
    return pb_fail_errno(errno, "%s", s->folder.text);
}

/* Makes the folder in which the ranks write. */
static pb_status begin(pb_saving *s)
{
    pb_checkpoints *c = s->c;
    PB_TRY(pb_checkpoints_share_base(c, s->t));
    s->files = calloc((size_t)pb_world_size(c->o.world), sizeof *s->files);
    pb_status status = s->files ? pb_folder_path(c, s->progress.iteration, "tmp", &s->folder)
                                : pb_fail(PB_ENOMEM, "no memory for the state files of a checkpoint");
    if (status == PB_OK) status = make_temporary(s);
    return pb_world_agree(c->o.world, "the folder of a checkpoint", status);
}

/* Every rank has tried to write its state file, with this status: tells rank 0 about the files. */
static pb_status exchange(pb_saving *s, pb_status own)
{
    pb_world *w = s->c->o.world;
    PB_TRY(pb_world_agree(w, "writing a checkpoint", own));
    return pb_world_gather(w, "writing a checkpoint", &s->mine, sizeof s->mine, s->files);
}

/* Rank 0 has tried to publish, with this status. */
static pb_status agree_on_publishing(const pb_saving *s, pb_status own)
{
    return pb_world_agree(s->c->o.world, "publishing a checkpoint", own);
}

/* Removes what a failed save has left. */
static pb_status tidy(const pb_checkpoints *c, pb_status status)
{
    char why[1024];
    if (!pb_checkpoints_leads(c)) return status;
    /* The first failure is the one to report, but pb_folder_remove_leftovers may fail too and replace the message. */
    snprintf(why, sizeof why, "%s", pb_error());
    (void)pb_folder_remove_leftovers(c);
    return pb_fail(status, "%s", why);
}

static void release(pb_saving *s)
{
    pb_index_free(&s->index);
    free(s->files);
    free(s);
}

/* Ends a save with the status on which all ranks agree. Frees `s`. */
static pb_status end(pb_saving *s, pb_status status)
{
    pb_checkpoints *c = s->c;
    const bool kept = s->published || (status == PB_OK && s->how == PB_SAVE_KEEP);
    if (kept) c->latest = c->own_iteration = s->progress.iteration;
    if (status == PB_OK) c->verified_save = true;
    else status = tidy(c, status);
    release(s);
    return status;
}

/* ---- saving while training waits ----------------------------------------------------------------------------- */

static pb_status add_extra(void *self)
{
    const pb_saving *s = self;
    const pb_checkpoint_options *o = &s->c->o;
    return o->extra ? o->extra(o->extra_self, pb_trainer_model(s->t), s->folder.text) : PB_OK;
}

static pb_status save(pb_saving *s)
{
    PB_TRY(begin(s));
    PB_TRY(exchange(s, pb_fill_rank(s)));
    pb_status own = pb_trainer_read(s->t, add_extra, s);
    if (own == PB_OK && pb_checkpoints_leads(s->c)) own = publish(s);
    return agree_on_publishing(s, own);
}

/* ---- saving while training continues --------------------------------------------------------------------------- */

/* On the thread. */
static pb_status publish_copy(void *self)
{
    pb_saving *s = self;
    const pb_checkpoint_options *o = &s->c->o;
    if (o->extra) PB_TRY(o->extra(o->extra_self, pb_state_copy_model(s->c->copy), s->folder.text));
    return publish(s);
}

/* On the thread. A single rank publishes at once, several when all have written their files. */
static pb_status write_copy(void *self)
{
    pb_saving *s = self;
    PB_TRY(pb_fill_rank(s));
    if (pb_world_size(s->c->o.world) > 1) return PB_OK;
    s->files[0] = s->mine;
    return publish_copy(s);
}

static pb_status copy_state(pb_saving *s)
{
    pb_checkpoints *c = s->c;
    pb_status status = c->copy ? PB_OK : pb_state_copy_open(s->t, &c->copy);
    if (status == PB_OK) status = pb_state_copy_take(c->copy, s->t);
    PB_TRY(pb_world_agree(c->o.world, "copying the state for a checkpoint", status));
    s->copy = c->copy;
    return pb_world_agree(c->o.world, "copying the adapters for a checkpoint", pb_state_copy_take_model(c->copy, s->t));
}

/* Starts the thread on this rank, with fn NULL on none, and agrees with the others that all have started theirs. */
static pb_status start_thread(pb_saving *s, pb_status (*fn)(void *self))
{
    const pb_status own = fn ? pb_task_start(&s->task, fn, s) : PB_OK;
    const pb_status all = pb_world_agree(s->c->o.world, "starting to write a checkpoint", own);
    if (own != PB_OK || all == PB_OK) return all;
    char why[1024]; /* another rank has none: ends this one, and keeps the message */
    snprintf(why, sizeof why, "%s", pb_error());
    (void)pb_task_join(&s->task);
    return pb_fail(all, "%s", why);
}

/* Returns when the state is copied; the thread has then begun to write. */
static pb_status start(pb_saving *s)
{
    PB_TRY(begin(s));
    PB_TRY(copy_state(s));
    s->began = pb_clock_seconds();
    PB_TRY(start_thread(s, write_copy));
    s->c->saving = s;
    return PB_OK;
}

bool pb_checkpoints_busy(const pb_checkpoints *c) { return c->saving != NULL; }
double pb_checkpoints_write_time(const pb_checkpoints *c) { return c->write_time; }

/* Waits for the thread of every rank. With several ranks, the state files are then complete the first time, and rank 0
 * starts to publish; the second time the save ends. */
static pb_status advance(pb_checkpoints *c)
{
    pb_saving *s = c->saving;
    pb_status status = pb_task_join(&s->task);
    if (!s->written && pb_world_size(c->o.world) > 1) {
        s->written = true;
        status = exchange(s, status);
        if (status == PB_OK) status = start_thread(s, pb_checkpoints_leads(c) ? publish_copy : NULL);
        if (status == PB_OK) return PB_OK;
    } else {
        status = agree_on_publishing(s, status);
    }
    c->saving = NULL;
    c->write_time = pb_clock_seconds() - s->began;
    return end(s, status);
}

pb_status pb_checkpoints_poll(pb_checkpoints *c)
{
    const int ranks = pb_world_size(c->o.world);
    if (!c->saving) return PB_OK;
    char ended = pb_task_ended(&c->saving->task), *all = malloc((size_t)ranks);
    pb_status s = all ? PB_OK : pb_fail(PB_ENOMEM, "no memory for an entry per rank");
    if (s == PB_OK) s = pb_world_gather(c->o.world, "a checkpoint", &ended, 1, all);
    for (int i = 0; s == PB_OK && i < ranks; i++) ended = ended && all[i];
    free(all);
    return s == PB_OK && ended ? advance(c) : s;
}

pb_status pb_checkpoints_wait(pb_checkpoints *c)
{
    while (c->saving) PB_TRY(advance(c));
    return PB_OK;
}

void pb_saving_close(pb_checkpoints *c)
{
    pb_saving *s = c->saving;
    if (!s) return;
    (void)pb_task_join(&s->task);
    release(s);
    c->saving = NULL;
}

pb_status pb_checkpoints_save(pb_checkpoints *c, pb_save how, pb_trainer *t, const pb_progress *p)
{
    if (how == PB_SAVE_NONE) return PB_OK;
    PB_TRY(pb_checkpoints_wait(c));
    if (!p->iteration) return pb_fail(PB_EINVAL, "%s: a checkpoint cannot be saved before the first step", c->dir);
    if (c->latest && !c->own_iteration)
        return pb_fail(PB_EINVAL, "%s has checkpoints of another run: resume that run, or use another folder", c->dir);
    pb_saving *s = malloc(sizeof *s);
    if (!s) return pb_fail(PB_ENOMEM, "%s: no memory to save a checkpoint", c->dir);
    *s = (pb_saving){.c = c, .t = t, .how = how, .progress = *p};
    if (!c->o.background) return end(s, save(s));
    const pb_status status = start(s);
    return status == PB_OK ? PB_OK : end(s, status);
}
