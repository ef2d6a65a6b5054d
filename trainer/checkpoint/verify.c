/* verify.c - checks whether a checkpoint is complete and undamaged, and whether it belongs to this run. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/checkpoint/checkpoint_impl.h"

/* ---- checking that a checkpoint is complete and undamaged ----------------------------------------------- */

bool pb_checkpoint_is_state(const char *name)
{
    return strcmp(name, PB_CHECKPOINT_STATE) == 0 || (strncmp(name, "state-", 6) == 0 && !strchr(name, '/'));
}

static pb_status read_index(const pb_checkpoints *c, const char *folder, uint64_t iteration, pb_index *out)
{
    pb_path path;
    char *text = NULL;
    size_t n = 0;
    PB_TRY(pb_checkpoint_path(&path, folder, PB_CHECKPOINT_INDEX));
    PB_TRY(pb_disk_read_file(c->o.disk, path.text, PB_INDEX_MOST, &text, &n));
    const pb_status s = pb_index_parse(path.text, text, n, out);
    free(text);
    PB_TRY(s);
    if (out->progress.iteration != iteration)
        return pb_fail(PB_EINVAL, "%s is of iteration %" PRIu64 ", but its folder is of iteration %" PRIu64, path.text,
                       out->progress.iteration, iteration);
    for (size_t i = 0; i < out->files; i++)
        if (pb_checkpoint_is_state(out->file[i].name)) return PB_OK;
    return pb_fail(PB_EINVAL, "%s does not list the file " PB_CHECKPOINT_STATE, path.text);
}

static pb_status check_file(const pb_checkpoints *c, const char *folder, const pb_index_file *want)
{
    pb_path path;
    pb_file_digest got;
    PB_TRY(pb_checkpoint_path(&path, folder, want->name));
    PB_TRY(pb_digest_file(c->o.disk, path.text, 0, &got));
    if (got.bytes != want->bytes)
        return pb_fail(PB_EINVAL, "%s is damaged: it has %" PRIu64 " bytes, but was written with %" PRIu64, path.text,
                       got.bytes, want->bytes);
    if (pb_digest_equal(&got.digest, &want->digest)) return PB_OK;
    return pb_fail(PB_EINVAL, "%s is damaged: its digest is %s, but was %s when it was written", path.text,
                   got.digest.hex, want->digest.hex);
}

static pb_status open_whole(const pb_checkpoints *c, const char *folder, uint64_t iteration, bool files,
                            pb_candidate *x)
{
    pb_path path;
    PB_TRY(read_index(c, folder, iteration, &x->index));
    for (size_t i = 0; files && i < x->index.files; i++) PB_TRY(check_file(c, folder, &x->index.file[i]));
    for (size_t i = 0; i < x->index.files; i++) {
        if (!pb_checkpoint_is_state(x->index.file[i].name)) continue;
        PB_TRY(pb_checkpoint_path(&path, folder, x->index.file[i].name));
        PB_TRY(pb_state_open(&x->state, path.text));
    }
    return PB_OK;
}

pb_status pb_candidate_open(const pb_checkpoints *c, const char *folder, uint64_t iteration, bool files,
                            pb_candidate *out)
{
    pb_candidate x = {0};
    const pb_status s = open_whole(c, folder, iteration, files, &x);
    if (s == PB_OK) *out = x;
    else pb_candidate_close(&x);
    return s;
}

void pb_candidate_close(pb_candidate *x)
{
    pb_index_free(&x->index);
    pb_state_close(&x->state);
    *x = (pb_candidate){0};
}

/* ---- checking that a checkpoint belongs to this run ----------------------------------------------------- */

const char *pb_setting_in_words(const char *stored, char *out, size_t room)
{
    static const char word[] = " targets ";
    const char *at = strstr(stored, word);
    char *end, names[PB_STATE_TARGETS];
    if (!at || !isdigit((unsigned char)at[sizeof word - 1])) return stored;
    pb_state_targets((unsigned)strtoul(at + sizeof word - 1, &end, 10), names);
    snprintf(out, room, "%.*s%s%s%s", (int)(at - stored), stored, word, names, end);
    return out;
}

static pb_status compare(const pb_checkpoints *c, const char *folder, const pb_candidate *x, const pb_setting *s,
                         bool note)
{
    const char *was = json_string_value(json_object_get(x->index.settings, s->key));
    char words[sizeof(((pb_state_settings *)0)->text[0])];
    if (!was) was = s->absent;
    if (was && strcmp(s->key, "model.adapters") == 0) was = pb_setting_in_words(was, words, sizeof words);
    if (was && strcmp(was, s->value) == 0) return PB_OK;
    if (s->fixed)
        return pb_fail(PB_EINVAL, "%s belongs to a run with other settings: %s was %s%s%s, but is \"%s\" now", folder,
                       s->key, was ? "\"" : "", was ? was : "not set", was ? "\"" : "", s->value);
    if (note)
        pb_checkpoints_note(c, "%s: %s was %s%s%s, but is \"%s\" now", folder, s->key, was ? "\"" : "",
                            was ? was : "not set", was ? "\"" : "", s->value);
    return PB_OK;
}

pb_status pb_candidate_fits(pb_checkpoints *c, pb_trainer *t, const char *folder, const pb_candidate *x, bool note)
{
    pb_state_settings own;
    pb_state_describe(t, &own);
    for (int i = 0; i < PB_STATE_SETTINGS; i++) PB_TRY(compare(c, folder, x, &own.s[i], note));
    for (size_t i = 0; i < c->o.nsettings; i++) PB_TRY(compare(c, folder, x, &c->o.settings[i], note));
    PB_TRY(pb_checkpoints_digest_base(c, t));
    if (!pb_digest_equal(&c->base, &x->index.base))
        return pb_fail(PB_EINVAL, "%s belongs to other base weights: their digest was %s, but is %s now", folder,
                       x->index.base.hex, c->base.hex);
    return pb_state_check(folder, &x->state, t);
}
