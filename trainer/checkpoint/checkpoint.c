/* checkpoint.c - opens a folder of checkpoints, saves checkpoints in it, and removes old ones. */
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

/* Arguments of the functions that pb_trainer_read calls. */
typedef struct reading {
    pb_checkpoints *c;
    pb_trainer *t;
    const char *folder;
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
    PB_TRY(pb_world_agree(c->o.world, what, pb_trainer_read(t, read_base, &(reading){.c = c, .t = t})));
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
    if (c->lock >= 0) c->o.disk->close(c->o.disk->self, c->lock);
    free(c->dir);
    free(c);
}

uint64_t pb_checkpoints_latest(const pb_checkpoints *c) { return c->latest; }

pb_save pb_checkpoints_due(const pb_checkpoints *c, uint64_t iteration)
{
    const uint64_t every = (uint64_t)c->o.save_interval;
    if (iteration && ((every && iteration % every == 0) || iteration == c->o.last)) return PB_SAVE_KEEP;
    return !c->verified_save && (every || c->o.last) ? PB_SAVE_TRIAL : PB_SAVE_NONE;
}

/* ---- writing the files of one checkpoint ---------------------------------------------------------------- */

/* The state file that a rank has written and made durable. */
typedef struct part {
    char name[64];
    pb_file_digest file;
} part;

typedef struct filling {
    const pb_checkpoints *c;
    pb_index index;
    part *parts; /* [ranks] */
} filling;

/* Writes this rank's state file and makes it durable. Computes its digest by reading the file back: its tensor data
 * must have the same digest as the data downloaded from the device, so that a disk that corrupts data is noticed. */
static pb_status write_part(const pb_checkpoints *c, pb_trainer *t, const char *folder, part *out)
{
    const int rank = pb_world_rank(c->o.world), ranks = pb_world_size(c->o.world);
    const pb_disk *disk = c->o.disk;
    pb_path path;
    pb_file_digest wrote, data;
    if (ranks == 1) snprintf(out->name, sizeof out->name, PB_CHECKPOINT_STATE);
    else snprintf(out->name, sizeof out->name, PB_CHECKPOINT_PART, rank, ranks);
    PB_TRY(pb_checkpoint_path(&path, folder, out->name));
    PB_TRY(pb_state_write(t, disk, path.text, &wrote));
    PB_TRY(pb_disk_sync_path(disk, path.text));
    PB_TRY(pb_digest_file(disk, path.text, 0, &out->file));
    PB_TRY(pb_digest_file(disk, path.text, out->file.bytes > wrote.bytes ? out->file.bytes - wrote.bytes : 0, &data));
    if (pb_digest_equal(&data.digest, &wrote.digest)) return PB_OK;
    return pb_fail(PB_EIO, "%s: the disk returns other data than was written", path.text);
}

/* Called for every file and folder of a new checkpoint. Makes it durable; for a file, computes the digest by reading
 * the file back, unless the rank that wrote it has done both. */
static pb_status sync_and_digest(void *self, const char *path, const char *name, pb_disk_kind kind)
{
    filling *f = self;
    const pb_disk *disk = f->c->o.disk;
    pb_file_digest all;
    if (kind == PB_DISK_OTHER) return pb_fail(PB_EINVAL, "%s is neither a regular file nor a folder", path);
    if (kind == PB_DISK_FOLDER) return *name ? pb_disk_sync_path(disk, path) : PB_OK;
    for (int i = 0; i < pb_world_size(f->c->o.world); i++)
        if (strcmp(name, f->parts[i].name) == 0) return pb_index_add_file(&f->index, name, &f->parts[i].file);
    PB_TRY(pb_disk_sync_path(disk, path));
    PB_TRY(pb_digest_file(disk, path, 0, &all));
    return pb_index_add_file(&f->index, name, &all);
}

static pb_status add_settings(json_t *to, const pb_setting *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_object_set_new(to, s[i].key, json_string(s[i].value)) != 0)
            return pb_fail(PB_EINVAL, "checkpoint: setting %s is not UTF-8", s[i].key);
    return PB_OK;
}

static pb_status write_index(filling *f, pb_trainer *t, const char *folder)
{
    pb_path path;
    pb_state_settings own;
    char *text = NULL;
    size_t n = 0;
    pb_state_describe(t, &own);
    PB_TRY(add_settings(f->index.settings, own.s, PB_STATE_SETTINGS));
    PB_TRY(add_settings(f->index.settings, f->c->o.settings, f->c->o.nsettings));
    PB_TRY(pb_checkpoint_path(&path, folder, PB_CHECKPOINT_INDEX));
    PB_TRY(pb_index_format(&f->index, &text, &n));
    const pb_status s = pb_disk_write_file(f->c->o.disk, path.text, text, n);
    free(text);
    return s;
}

/* Adds the caller's files. */
static pb_status add_extra(void *self)
{
    const reading *r = self;
    return r->c->o.extra ? r->c->o.extra(r->c->o.extra_self, r->t, r->folder) : PB_OK;
}

/* Makes all that is not a state file durable, and adds the index. */
static pb_status fill_folder(filling *f, pb_trainer *t, const char *folder)
{
    const pb_checkpoints *c = f->c;
    if (!f->index.settings) return pb_fail(PB_ENOMEM, "no memory for the index of a checkpoint");
    PB_TRY(pb_disk_walk(folder, sync_and_digest, f));
    PB_TRY(write_index(f, t, folder));
    return pb_disk_sync_path(c->o.disk, folder);
}

/* Writes the state files: each rank its own, in the folder that rank 0 makes. Fills parts[ranks]. */
static pb_status fill_parts(pb_checkpoints *c, pb_trainer *t, const char *folder, part *parts)
{
    part mine = {""};
    pb_status s = PB_OK;
    if (pb_checkpoints_leads(c) && c->o.disk->mkdir(c->o.disk->self, folder) != 0)
        s = pb_fail_errno(errno, "%s", folder);
    PB_TRY(pb_world_agree(c->o.world, "the folder of a checkpoint", s));
    PB_TRY(pb_world_agree(c->o.world, "writing a checkpoint", write_part(c, t, folder, &mine)));
    return pb_world_gather(c->o.world, "writing a checkpoint", &mine, sizeof mine, parts);
}

static pb_status fill(pb_checkpoints *c, pb_trainer *t, const pb_progress *p, const char *folder)
{
    filling f = {.c = c, .parts = calloc((size_t)pb_world_size(c->o.world), sizeof *f.parts)};
    pb_status s = f.parts ? PB_OK : pb_fail(PB_ENOMEM, "no memory for the state files of a checkpoint");
    s = pb_world_agree(c->o.world, "writing a checkpoint", s);
    if (s == PB_OK) s = fill_parts(c, t, folder, f.parts);
    if (s == PB_OK) s = pb_trainer_read(t, add_extra, &(reading){c, t, folder});
    if (s == PB_OK && pb_checkpoints_leads(c)) {
        f.index = (pb_index){.progress = *p, .base = c->base, .settings = json_object()};
        s = fill_folder(&f, t, folder);
    }
    pb_index_free(&f.index);
    free(f.parts);
    return s;
}

/* ---- saving: write, verify, publish, remove old checkpoints --------------------------------------------- */

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

/* Makes the new folder `filled` the resume point, then removes older checkpoints. */
static pb_status keep(pb_checkpoints *c, uint64_t iteration, const char *filled)
{
    const uint64_t before = c->own_iteration;
    PB_TRY(pb_folder_publish(c, iteration, filled));
    c->latest = c->own_iteration = iteration;
    PB_TRY(remove_old(c, iteration, before));
    return pb_folder_remove_leftovers(c); /* removes a replaced checkpoint of the same iteration */
}

/* Verifies the filled folder, and publishes or removes it. */
static pb_status finish(pb_checkpoints *c, pb_save how, pb_trainer *t, const pb_progress *p, const pb_path *folder)
{
    PB_TRY(verify(c, t, folder->text, p->iteration, !c->verified_save || how == PB_SAVE_TRIAL));
    return how == PB_SAVE_KEEP ? keep(c, p->iteration, folder->text) : pb_folder_drop(c, folder, &p->iteration, 1);
}

static pb_status save(pb_checkpoints *c, pb_save how, pb_trainer *t, const pb_progress *p)
{
    const bool leads = pb_checkpoints_leads(c);
    pb_path folder;
    PB_TRY(pb_checkpoints_share_base(c, t));
    pb_status s = leads ? pb_folder_remove_leftovers(c) : PB_OK;
    if (s == PB_OK && leads) s = pb_checkpoints_digest_base(c, t);
    if (s == PB_OK) s = pb_folder_path(c, p->iteration, "tmp", &folder);
    PB_TRY(pb_world_agree(c->o.world, "a checkpoint", s));
    s = fill(c, t, p, folder.text);
    if (s == PB_OK && leads) s = finish(c, how, t, p, &folder);
    PB_TRY(pb_world_agree(c->o.world, "publishing a checkpoint", s));
    if (how == PB_SAVE_KEEP) c->latest = c->own_iteration = p->iteration;
    c->verified_save = true;
    return PB_OK;
}

pb_status pb_checkpoints_save(pb_checkpoints *c, pb_save how, pb_trainer *t, const pb_progress *p)
{
    char why[1024];
    if (how == PB_SAVE_NONE) return PB_OK;
    if (!p->iteration) return pb_fail(PB_EINVAL, "%s: a checkpoint cannot be saved before the first step", c->dir);
    if (c->latest && !c->own_iteration)
        return pb_fail(PB_EINVAL, "%s has checkpoints of another run: resume that run, or use another folder", c->dir);
    const pb_status s = save(c, how, t, p);
    if (s == PB_OK || !pb_checkpoints_leads(c)) return s;
    /* The first failure is the one to report, but pb_folder_remove_leftovers may fail too and replace the message. */
    snprintf(why, sizeof why, "%s", pb_error());
    (void)pb_folder_remove_leftovers(c);
    return pb_fail(s, "%s", why);
}
