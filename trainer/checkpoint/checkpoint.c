/* checkpoint.c - opens and closes a folder of checkpoints. */
#include "trainer/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "os/text.h"
#include "trainer/checkpoint/checkpoint_impl.h"

void pb_checkpoints_note(const pb_checkpoints *c, const char *fmt, ...)
{
    char line[2048];
    va_list args;
    if (!c->o.note) return;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    c->o.note(c->o.note_self, line);
}

pb_status pb_checkpoints_digest_base(pb_checkpoints *c, pb_trainer *t)
{
    if (c->trainer == t) return PB_OK;
    PB_TRY(pb_state_base(t, &c->base));
    c->trainer = t;
    return PB_OK;
}

typedef struct reading {
    pb_checkpoints *c;
    pb_trainer *t;
} reading;

static pb_status read_base(void *self)
{
    const reading *r = self;
    return pb_checkpoints_digest_base(r->c, r->t);
}

pb_status pb_checkpoints_share_base(pb_checkpoints *c, pb_trainer *t)
{
    static const char what[] = "the digest of the base weights";
    if (c->trainer == t || !pb_trainer_config(t)->model.no_weights) return PB_OK;
    PB_TRY(pb_world_agree(c->o.world, what, pb_trainer_read(t, read_base, &(reading){c, t})));
    PB_TRY(pb_world_broadcast(c->o.world, what, 0, &c->base, sizeof c->base));
    c->trainer = t;
    return PB_OK;
}

/* ---- opening a folder of checkpoints -------------------------------------------------------------------- */

static pb_status check_options(const pb_checkpoint_options *o)
{
    if (o->save_interval < 0 || o->retain_interval < 0)
        return pb_fail(PB_EINVAL, "save interval %ld, retain interval %ld: need at least 0", o->save_interval,
                       o->retain_interval);
    for (size_t i = 0; i < o->nsettings; i++) {
        const pb_setting *s = &o->settings[i];
        bool fine = *s->key && pb_is_printable(s->key) && pb_is_printable(s->value) &&
                    strncmp(s->key, "model.", 6) != 0 && strncmp(s->key, "train.", 6) != 0;
        for (size_t k = 0; k < i; k++) fine = fine && strcmp(o->settings[k].key, s->key) != 0;
        if (!fine)
            return pb_fail(
                PB_EINVAL,
                "checkpoint: setting \"%.60s\" is given twice, is not one line of text, or has a reserved name",
                pb_is_printable(s->key) ? s->key : "?");
    }
    return PB_OK;
}

static pb_status make_folder(const pb_checkpoints *c)
{
    if (c->o.disk->mkdir(c->o.disk->self, c->dir) == 0) return pb_disk_sync_parent(c->o.disk, c->dir);
    return errno == EEXIST ? PB_OK : pb_fail_errno(errno, "%s", c->dir);
}

static pb_status take_lock(pb_checkpoints *c)
{
    pb_path path;
    PB_TRY(pb_checkpoint_path(&path, c->dir, ".lock"));
    PB_TRY(pb_disk_open(c->o.disk, path.text, O_RDWR | O_CREAT, &c->lock));
    if (flock(c->lock, LOCK_EX | LOCK_NB) == 0) return PB_OK;
    if (errno == EWOULDBLOCK)
        return pb_fail(PB_EINVAL, "%s: another process is writing checkpoints into this folder", c->dir);
    return pb_fail_errno(errno, "%s cannot be locked", path.text);
}

/* Sets c->latest, the checkpoint that resuming with "latest" tries first. A damaged tracker is not an error if the
 * folder has checkpoints, because pb_checkpoints_resume reports it. */
static pb_status find_latest(pb_checkpoints *c)
{
    pb_iterations all = {0};
    PB_TRY(pb_folder_list(c, &all));
    const pb_status s = pb_folder_tracker(c, &c->latest);
    if (!c->latest && all.n) c->latest = all.at[all.n - 1];
    free(all.at);
    return s == PB_EINVAL && all.n ? PB_OK : s;
}

static pb_status set_up(pb_checkpoints *c)
{
    PB_TRY(make_folder(c));
    PB_TRY(take_lock(c));
    PB_TRY(pb_folder_remove_leftovers(c));
    return find_latest(c);
}

/* Sets up the folder on rank 0, and tells the other ranks what they need to know about it. */
static pb_status set_up_together(pb_checkpoints *c)
{
    pb_world *w = c->o.world;
    c->pid = (long)getpid();
    PB_TRY(pb_world_agree(w, "the folder of checkpoints", pb_checkpoints_leads(c) ? set_up(c) : PB_OK));
    PB_TRY(pb_world_broadcast(w, "the folder of checkpoints", 0, &c->pid, sizeof c->pid));
    return pb_world_broadcast(w, "the newest checkpoint", 0, &c->latest, sizeof c->latest);
}

pb_status pb_checkpoints_open(const char *dir, const pb_checkpoint_options *o, pb_checkpoints **out)
{
    PB_TRY(check_options(o));
    if (!*dir) return pb_fail(PB_EINVAL, "the name of the checkpoint folder is empty");
    pb_checkpoints *c = calloc(1, sizeof *c);
    if (c) c->dir = strdup(dir);
    if (!c || !c->dir) {
        free(c);
        return pb_fail(PB_ENOMEM, "%s: out of memory", dir);
    }
    for (size_t n = strlen(c->dir); n > 1 && c->dir[n - 1] == '/'; n--) c->dir[n - 1] = 0;
    c->o = *o;
    if (!c->o.disk) c->o.disk = &pb_disk_posix;
    c->lock = -1;
    const pb_status s = set_up_together(c);
    if (s == PB_OK) *out = c;
    else pb_checkpoints_close(c);
    return s;
}

void pb_checkpoints_close(pb_checkpoints *c)
{
    if (!c) return;
    pb_saving_close(c);
    pb_state_copy_close(c->copy);
    if (c->lock >= 0) c->o.disk->close(c->o.disk->self, c->lock);
    free(c->dir);
    free(c);
}

uint64_t pb_checkpoints_latest(const pb_checkpoints *c) { return c->latest; }

pb_save pb_checkpoints_due(const pb_checkpoints *c, uint64_t iteration)
{
    const uint64_t every = (uint64_t)c->o.save_interval;
    if (iteration && ((every && iteration % every == 0) || iteration == c->o.last)) return PB_SAVE_KEEP;
    return !c->verified_save && !c->saving && (every || c->o.last) ? PB_SAVE_TRIAL : PB_SAVE_NONE;
}
