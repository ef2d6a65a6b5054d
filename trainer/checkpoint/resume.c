/* resume.c - finds the checkpoint to resume from, and loads it. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/checkpoint/checkpoint_impl.h"

/* Tries one checkpoint: opens it and checks it completely, before the trainer is modified. *damaged is set for failures
 * after which another checkpoint may still be usable. */
static pb_status try_one(pb_checkpoints *c, uint64_t iteration, pb_trainer *t, pb_candidate *x, bool *damaged)
{
    pb_path folder;
    *damaged = false;
    PB_TRY(pb_folder_path(c, iteration, NULL, &folder));
    pb_status s = pb_candidate_open(c, folder.text, iteration, true, x);
    *damaged = s == PB_EINVAL || s == PB_EPATH || s == PB_EIO;
    if (s == PB_OK) s = pb_candidate_fits(c, t, folder.text, x, true);
    if (s != PB_OK) pb_candidate_close(x);
    return s;
}

static pb_status choose_number(pb_checkpoints *c, const char *which, pb_trainer *t, pb_candidate *x)
{
    char *end;
    bool damaged;
    pb_path folder;
    errno = 0;
    const uint64_t v = strtoull(which, &end, 10);
    if (*which < '0' || *which > '9' || *end || errno || !v || v > INT64_MAX)
        return pb_fail(PB_EINVAL, "--resume %.40s: need \"latest\" or the step of a checkpoint", which);
    PB_TRY(pb_folder_path(c, v, NULL, &folder));
    if (!pb_folder_exists(folder.text)) return pb_fail(PB_EINVAL, "checkpoint %s does not exist", folder.text);
    return try_one(c, v, t, x, &damaged);
}

/* Sets *at to the index in `all` of the checkpoint that "latest" tries first. Passes a note to the caller if the
 * tracker is missing or damaged, if the checkpoint it names is missing, or if newer checkpoints exist. */
static pb_status find_first(const pb_checkpoints *c, const pb_iterations *all, size_t *at)
{
    uint64_t named;
    const pb_status s = pb_folder_tracker(c, &named);
    if (s != PB_OK && s != PB_EINVAL && s != PB_EPATH && s != PB_EIO) return s;
    *at = all->n - 1;
    if (s != PB_OK) pb_checkpoints_note(c, "%s; resuming from the newest intact checkpoint", pb_error());
    else if (!named)
        pb_checkpoints_note(c, "%s/" PB_CHECKPOINT_TRACKER " is missing; resuming from the newest intact checkpoint",
                            c->dir);
    if (s != PB_OK || !named) return PB_OK;
    while (*at && all->at[*at] != named) --*at;
    if (all->at[*at] == named) {
        if (*at + 1 < all->n)
            pb_checkpoints_note(
                c, "%s: the checkpoint of step %" PRIu64 " is newer than the resume point %" PRIu64 ", and is not used",
                c->dir, all->at[all->n - 1], named);
        return PB_OK;
    }
    *at = all->n - 1;
    pb_checkpoints_note(
        c, "%s: the checkpoint of the resume point %" PRIu64 " is missing; resuming from the newest intact checkpoint",
        c->dir, named);
    return PB_OK;
}

/* Tries the resume point, then earlier checkpoints, then later ones, each group from new to old. */
static pb_status try_all(pb_checkpoints *c, const pb_iterations *all, size_t first, pb_trainer *t, pb_candidate *x)
{
    pb_status s = PB_OK;
    bool damaged = false;
    for (size_t i = 0; i < all->n; i++) {
        const size_t at = i <= first ? first - i : all->n - 1 - (i - first - 1);
        s = try_one(c, all->at[at], t, x, &damaged);
        if (s == PB_OK || !damaged) return s;
        pb_checkpoints_note(c, "checkpoint not used: %s", pb_error());
    }
    return pb_fail(PB_EINVAL, "%s: none of the %zu checkpoints is intact", c->dir, all->n);
}

static pb_status choose_latest(pb_checkpoints *c, pb_trainer *t, pb_candidate *x)
{
    pb_iterations all = {0};
    size_t first = 0;
    PB_TRY(pb_folder_list(c, &all));
    pb_status s = PB_OK;
    if (all.n) {
        s = find_first(c, &all, &first);
        if (s == PB_OK) s = try_all(c, &all, first, t, x);
    } else if (c->latest) {
        s = pb_fail(PB_EINVAL,
                    "%s: the checkpoint of the resume point %" PRIu64 " is missing, and no other checkpoint exists",
                    c->dir, c->latest);
    }
    free(all.at);
    return s;
}

/* Opens and checks the checkpoint that rank 0 has chosen. Rank 0 has verified the digests of all files. */
static pb_status follow(pb_checkpoints *c, uint64_t iteration, pb_trainer *t, pb_candidate *x)
{
    pb_path folder;
    PB_TRY(pb_folder_path(c, iteration, NULL, &folder));
    PB_TRY(pb_candidate_open(c, folder.text, iteration, false, x));
    return pb_candidate_fits(c, t, folder.text, x, false);
}

/* Leaves *x open with the checkpoint to load on every rank; *iteration 0: the folder has no checkpoint. */
static pb_status choose(pb_checkpoints *c, const char *which, pb_trainer *t, pb_candidate *x, uint64_t *iteration)
{
    const bool leads = pb_checkpoints_leads(c);
    pb_status s = PB_OK;
    if (leads) s = strcmp(which, "latest") == 0 ? choose_latest(c, t, x) : choose_number(c, which, t, x);
    PB_TRY(pb_world_agree(c->o.world, "choosing a checkpoint", s));
    *iteration = x->index.progress.iteration;
    PB_TRY(pb_world_broadcast(c->o.world, "choosing a checkpoint", 0, iteration, sizeof *iteration));
    if (!leads && *iteration) s = follow(c, *iteration, t, x);
    return pb_world_agree(c->o.world, "opening a checkpoint", s);
}

pb_status pb_checkpoints_resume(pb_checkpoints *c, const char *which, pb_trainer *t, pb_progress *out)
{
    pb_candidate x = {0};
    uint64_t iteration = 0;
    PB_TRY(pb_checkpoints_share_base(c, t));
    pb_status s = choose(c, which, t, &x, &iteration);
    if (s == PB_OK && iteration) s = pb_world_agree(c->o.world, "loading a checkpoint", pb_state_load(&x.state, t));
    if (s == PB_OK) *out = x.index.progress;
    if (s == PB_OK && iteration) c->own_iteration = iteration;
    pb_candidate_close(&x);
    return s;
}
