/* save.c - checkpoints of a run with the options that shape it, and the export of what it trained. */
#include "trainer/program/save.h"

#include <stdlib.h>
#include <string.h>

#include "trainer/io/file.h"
#include "trainer/hf/hf_save.h"
#include "trainer/hf/peft.h"

/* ---- settings: what a resumed run must share, and what it should ------------------------------------- */

static void word(pb_saver *s, const char *key, const char *value, bool fixed)
{
    s->settings[s->n++] = (pb_setting){key, value ? value : "", fixed};
}

static void number(pb_saver *s, const char *key, double value, bool fixed)
{
    snprintf(s->text[s->n], sizeof s->text[s->n], "%.9g", value);
    word(s, key, s->text[s->n], fixed);
}

/* Fixed is what the stored position of the data depends on; the checkpoint itself compares the model and the optimiser.
 */
static void settings(pb_saver *s)
{
    const pb_train_options *o = s->j->o;
    const pb_dataset_config *d = &s->j->data_cfg;
    number(s, "data.conversations", (double)s->j->counts.kept, true);
    number(s, "data.tokens", (double)s->j->counts.tokens, true);
    number(s, "data.counted", (double)s->j->counts.counted, true);
    number(s, "data.seq", d->S, true);
    number(s, "data.held_out", d->held_out, true);
    number(s, "data.seed", (double)d->seed, true);
    word(s, "data.pack", o->pack, true);
    word(s, "data.path", s->j->data_path, false);
    word(s, "data.loss_mask_type", o->loss_mask_type, true);
    number(s, "run.accumulate", s->j->micro, false);
    number(s, "run.batch", s->j->cfg.B, false);
    number(s, "run.bucket", s->j->bucket, false);
    number(s, "run.loss_scale", (double)s->j->cfg.loss_scale, false);
    number(s, "run.steps", (double)s->j->schedule.steps, false);
    word(s, "run.schedule", o->schedule, false);
    number(s, "run.lr", s->j->schedule.lr, false);
    number(s, "run.min_lr", s->j->schedule.min, false);
    number(s, "run.warmup", (double)s->j->schedule.warmup, false);
    word(s, "run.clip", o->clip, false);
    word(s, "run.device", o->device, false);
}

/* ---- checkpoints ----------------------------------------------------------------------------------- */

static void note(void *self, const char *line)
{
    (void)self;
    fprintf(stderr, "train: %s\n", line);
}

/* Adapters are small: every checkpoint has them in the layout that other programs load. */
static pb_status add_adapter(void *self, pb_trainer *t, const char *dir)
{
    const pb_saver *s = self;
    char *path;
    if (s->j->cfg.model.tuning == PB_FULL) return PB_OK;
    PB_TRY(pb_path_join(dir, "adapter", &path));
    const pb_status status = pb_peft_save(pb_trainer_model(t), path, s->j->o->model);
    free(path);
    return status;
}

static pb_status resume(pb_saver *s, pb_progress *p)
{
    const char *which = s->j->o->resume;
    if (!which) return PB_OK;
    PB_TRY(pb_checkpoints_resume(s->c, which, s->j->trainer, p));
    if (!p->iteration) return PB_OK;
    if (!s->j->o->quiet) printf("resumed after step %llu of %s\n", (unsigned long long)p->iteration, s->j->o->save);
    return pb_dataset_seek(s->j->data, p->data);
}

pb_status pb_saver_open(pb_job *j, pb_saver *s, pb_progress *p)
{
    const pb_train_options *o = j->o;
    *s = (pb_saver){.j = j};
    *p = (pb_progress){0};
    if (!o->save) {
        if (o->resume || o->save_interval > 0 || o->save_retain_interval > 0)
            return pb_fail(PB_EINVAL, "--%s needs --save DIR",
                           o->resume              ? "resume"
                           : o->save_interval > 0 ? "save-interval"
                                                  : "save-retain-interval");
        return PB_OK;
    }
    settings(s);
    const pb_checkpoint_options c = {.save_interval = (int)(o->save_interval > 0 ? o->save_interval : 0),
                                     .retain_interval =
                                         (int)(o->save_retain_interval > 0 ? o->save_retain_interval : 0),
                                     .last = (uint64_t)j->schedule.steps,
                                     .settings = s->settings,
                                     .nsettings = s->n,
                                     .extra = add_adapter,
                                     .extra_self = s,
                                     .note = note};
    PB_TRY(pb_checkpoints_open(o->save, &c, &s->c));
    if (!o->resume && pb_checkpoints_latest(s->c))
        return pb_fail(
            PB_EINVAL,
            "%s: it holds checkpoints (the last of step %llu): go on with --resume latest, or save elsewhere", o->save,
            (unsigned long long)pb_checkpoints_latest(s->c));
    return resume(s, p);
}

void pb_saver_close(pb_saver *s) { pb_checkpoints_close(s->c); }

pb_status pb_saver_step(pb_saver *s, const pb_progress *p, bool now)
{
    if (!s->c) return PB_OK;
    const pb_save due = pb_checkpoints_due(s->c, p->iteration);
    return pb_checkpoints_save(s->c, now ? PB_SAVE_KEEP : due, s->j->trainer, p);
}

/* ---- export ------------------------------------------------------------------------------------------- */

pb_status pb_export(pb_job *j)
{
    const char *dir = j->o->export;
    pb_model *m = pb_trainer_model(j->trainer);
    if (!dir) return PB_OK;
    if (j->cfg.model.tuning == PB_FULL || j->o->merge)
        PB_TRY(pb_model_save_hf(m, dir, &(pb_hf_save_config){.merge = j->o->merge}));
    else PB_TRY(pb_peft_save(m, dir, j->o->model));
    if (!j->o->quiet) printf("exported %s\n", dir);
    return PB_OK;
}
