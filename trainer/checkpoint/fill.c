/* fill.c - writes the files of one checkpoint into its temporary folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/checkpoint/checkpoint_impl.h"

/* Computes the file's digest by reading it back: its tensor data must have the same digest as the data that came from
 * the device, so that a disk that corrupts data is noticed. */
pb_status pb_fill_rank(pb_saving *s)
{
    const pb_checkpoints *c = s->c;
    const int rank = pb_world_rank(c->o.world), ranks = pb_world_size(c->o.world);
    const pb_disk *disk = c->o.disk;
    pb_rank_file *out = &s->mine;
    pb_path path;
    pb_file_digest wrote, data;
    if (ranks == 1) snprintf(out->name, sizeof out->name, PB_CHECKPOINT_STATE);
    else snprintf(out->name, sizeof out->name, PB_CHECKPOINT_PART, rank, ranks);
    PB_TRY(pb_checkpoint_path(&path, s->folder.text, out->name));
    PB_TRY(pb_state_write(s->t, s->copy, disk, path.text, &wrote));
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
    pb_saving *s = self;
    const pb_disk *disk = s->c->o.disk;
    pb_file_digest all;
    if (kind == PB_DISK_OTHER) return pb_fail(PB_EINVAL, "%s is neither a regular file nor a folder", path);
    if (kind == PB_DISK_FOLDER) return *name ? pb_disk_sync_path(disk, path) : PB_OK;
    for (int i = 0; i < pb_world_size(s->c->o.world); i++)
        if (strcmp(name, s->files[i].name) == 0) return pb_index_add_file(&s->index, name, &s->files[i].file);
    PB_TRY(pb_disk_sync_path(disk, path));
    PB_TRY(pb_digest_file(disk, path, 0, &all));
    return pb_index_add_file(&s->index, name, &all);
}

static pb_status add_settings(json_t *to, const pb_setting *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_object_set_new(to, s[i].key, json_string(s[i].value)) != 0)
            return pb_fail(PB_EINVAL, "checkpoint: setting %s is not UTF-8", s[i].key);
    return PB_OK;
}

static pb_status write_index(pb_saving *s)
{
    const pb_checkpoint_options *o = &s->c->o;
    pb_path path;
    pb_state_settings own;
    char *text = NULL;
    size_t n = 0;
    pb_state_describe(s->t, &own);
    PB_TRY(add_settings(s->index.settings, own.s, PB_STATE_SETTINGS));
    PB_TRY(add_settings(s->index.settings, o->settings, o->nsettings));
    PB_TRY(pb_checkpoint_path(&path, s->folder.text, PB_CHECKPOINT_INDEX));
    PB_TRY(pb_index_format(&s->index, &text, &n));
    const pb_status status = pb_disk_write_file(o->disk, path.text, text, n);
    free(text);
    return status;
}

pb_status pb_fill_rest(pb_saving *s)
{
    s->index = (pb_index){.progress = s->progress, .base = s->c->base, .settings = json_object()};
    if (!s->index.settings) return pb_fail(PB_ENOMEM, "no memory for the index of a checkpoint");
    PB_TRY(pb_disk_walk(s->folder.text, sync_and_digest, s));
    PB_TRY(write_index(s));
    return pb_disk_sync_path(s->c->o.disk, s->folder.text);
}
