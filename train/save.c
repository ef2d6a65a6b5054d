/* save.c - saves the checkpoints of a run and resumes from them, and exports the trained model. A checkpoint records
 * the run's settings, so that a resumed run with other settings is noticed. */
#include "train/save.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/engine/clock.h"
#include "os/file.h"
#include "os/where.h"
#include "trainer/checkpoint/state.h"
#include "trainer/hf/hf_save.h"
#include "trainer/hf/peft.h"

/* ---- collecting the settings that a checkpoint records (column `resumed` of options.def) ----------------- */

enum { FREE, OWN, NOTED, FIXED };
enum {
    COUNTS = 3,
    NEEDED = COUNTS
#define OPT(name, type, letter, argument, deflt, commands, resumed, help) +(resumed >= NOTED)
#include "train/options.def"
#undef OPT
};
_Static_assert((int)NEEDED <= (int)PB_SETTINGS, "PB_SETTINGS is too small for the options that a checkpoint records");

static void set(pb_saver *s, const char *key, const char *value, bool fixed, const char *absent)
{
    s->settings[s->n++] = (pb_setting){key, value ? value : "", fixed, absent};
}

static const char *option_key(pb_saver *s, const char *name)
{
    pb_option_text(&(pb_option_info){.name = name}, s->key[s->n], sizeof s->key[s->n]);
    return s->key[s->n];
}

/* Formats an option's value as text; one function per option type. */
static const char *format_flag(pb_saver *s, bool v)
{
    (void)s;
    return v ? "on" : "off";
}
static const char *format_text(pb_saver *s, const char *v)
{
    (void)s;
    return v;
}
#define format_choice format_text
static const char *format_whole(pb_saver *s, long v)
{
    snprintf(s->text[s->n], sizeof s->text[s->n], "%ld", v);
    return s->text[s->n];
}
#define format_count format_whole
static const char *format_number(pb_saver *s, double v)
{
    snprintf(s->text[s->n], sizeof s->text[s->n], "%.9g", v);
    return s->text[s->n];
}

/* Identifies the tokenizer: "bytes", or the digest of its tokenizer.json or GGUF file. A path would not identify it,
 * because the file may have been moved when the run is resumed. */
static pb_status identify_tokenizer(const pb_job *j, pb_digest_text *out)
{
    pb_file_digest d;
    if (!j->input.tokenizer_path) {
        snprintf(out->hex, sizeof out->hex, "bytes");
        return PB_OK;
    }
    PB_TRY(pb_digest_file(&pb_disk_posix, j->input.tokenizer_path, 0, &d));
    *out = d.digest;
    return PB_OK;
}

/* Collects the settings that the checkpoint records. An option that the user did not give is recorded with the value in
 * effect (template, data path, learning rate, warm-up), so that the settings of two runs can be compared. A checkpoint
 * without an option was written before the option existed; the option then counts as having its default. */
static pb_status settings(pb_saver *s)
{
    static const char *const templates[] = {
#define X(id, word) word,
        PB_TEMPLATE_MAP(X)
#undef X
    };
    pb_train_options o = *s->j->o;
    PB_TRY(identify_tokenizer(s->j, &s->tokenizer));
    o.tokenizer = s->tokenizer.hex;
    o.template = templates[s->j->data_cfg.chat.family];
    o.data = s->j->input.data_path;
    o.lr = s->j->schedule.lr;
    o.warmup = (double)s->j->schedule.warmup;
#define OPT(name, type, letter, argument, deflt, commands, resumed, help)                                              \
    if (resumed >= NOTED) set(s, option_key(s, #name), format_##type(s, o.name), resumed == FIXED, deflt);
#include "train/options.def"
#undef OPT
    /* These counts identify the data set by its contents. Its path is not fixed, so that the file may be moved. */
    set(s, "data.conversations", format_whole(s, (long)s->j->counts.kept), true, NULL);
    set(s, "data.tokens", format_whole(s, (long)s->j->counts.tokens), true, NULL);
    set(s, "data.counted", format_whole(s, (long)s->j->counts.counted), true, NULL);
    return PB_OK;
}

/* ---- saving and resuming --------------------------------------------------------------------------- */

static void note(void *self, const char *line)
{
    const pb_saver *s = self;
    if (pb_train_leads(s->j->o)) fprintf(stderr, "train: %s\n", line);
}

/* Called for every checkpoint. Adds the adapters in PEFT's layout, so that other programs can load them from the
 * checkpoint. */
static pb_status add_adapter(void *self, pb_model *m, const char *dir)
{
    const pb_saver *s = self;
    char *path;
    if (s->j->cfg.model.tuning == PB_FULL) return PB_OK;
    PB_TRY(pb_path_join(dir, "adapter", &path));
    const pb_status status = pb_peft_save(m, path, s->j->o->model);
    free(path);
    return status;
}

static pb_status resume(pb_saver *s, pb_progress *p)
{
    const char *which = s->j->o->resume;
    if (!which) return PB_OK;
    PB_TRY(pb_checkpoints_resume(s->c, which, s->j->trainer, p));
    if (!p->iteration) return PB_OK;
    if (!s->j->o->quiet) printf("resumed after step %llu from %s\n", (unsigned long long)p->iteration, s->j->o->save);
    return pb_dataset_seek(s->j->data, p->data);
}

/* Fails on all ranks if a setting differs between them: what is computed, or when they compute together. */
static pb_status compare_ranks(pb_saver *s)
{
    const pb_train_options *o = s->j->o;
    pb_state_settings own;
    char when[200];
    if (s->j->ranks == 1) return PB_OK;
    pb_state_describe(s->j->trainer, &own);
    for (int i = 0; i < PB_STATE_SETTINGS; i++) PB_TRY(pb_world_same(o->world, own.s[i].key, own.s[i].value));
    for (size_t i = 0; i < s->n; i++) PB_TRY(pb_world_same(o->world, s->settings[i].key, s->settings[i].value));
    snprintf(when, sizeof when, "%ld, %ld, %ld, %s, %s, %s, %s, %s", o->eval_interval, o->save_interval, o->max_skipped,
             o->mode, o->save ? "yes" : "no", o->save_async ? "yes" : "no", o->export ? "yes" : "no",
             o->resume ? o->resume : "no");
    return pb_world_same(
        o->world, "--eval-interval, --save-interval, --max-skipped, --mode, --save, --save-async, --export, --resume",
        when);
}

pb_status pb_saver_open(pb_job *j, pb_saver *s, pb_progress *p)
{
    const pb_train_options *o = j->o;
    *s = (pb_saver){.j = j};
    *p = (pb_progress){0};
    PB_TRY(pb_job_agree(j, "the settings", settings(s)));
    PB_TRY(compare_ranks(s));
    if (!o->save) return PB_OK;
    const pb_checkpoint_options c = {.save_interval = o->save_interval > 0 ? o->save_interval : 0,
                                     .retain_interval = o->save_retain_interval > 0 ? o->save_retain_interval : 0,
                                     .last = (uint64_t)j->schedule.steps,
                                     .settings = s->settings,
                                     .nsettings = s->n,
                                     .extra = add_adapter,
                                     .extra_self = s,
                                     .note = note,
                                     .note_self = s,
                                     .world = o->world,
                                     .background = o->save_async};
    PB_TRY(pb_checkpoints_open(o->save, &c, &s->c));
    if (!o->resume && pb_checkpoints_latest(s->c))
        return pb_fail(
            PB_EINVAL,
            "%s already has checkpoints (the newest is of step %llu): use --resume latest, or another folder", o->save,
            (unsigned long long)pb_checkpoints_latest(s->c));
    return resume(s, p);
}

void pb_saver_close(pb_saver *s) { pb_checkpoints_close(s->c); }

/* Gathers the f32 master weights of adapters, from which they are written, or frees them. */
static pb_status gather_adapters(const pb_job *j, bool on)
{
    return j->cfg.model.tuning == PB_FULL ? PB_OK : pb_trainer_gather_masters(j->trainer, on);
}

/* The name of the checkpoint that is being written, in the messages of --save-async. */
static const char *name_of(const pb_saver *s) { return s->trial ? "trial checkpoint" : "checkpoint"; }
static bool prints(const pb_saver *s) { return pb_train_leads(s->j->o) && !s->j->o->quiet; }

/* With --save-async: `status` is that of the checkpoint that was being written. Says when it is complete. */
static pb_status written(pb_saver *s, pb_status status)
{
    if (status != PB_OK || !s->writing || pb_checkpoints_busy(s->c)) return status;
    if (prints(s))
        printf("step %6llu  %s written in %.3g s\n", (unsigned long long)s->writing, name_of(s),
               pb_checkpoints_write_time(s->c));
    s->writing = 0;
    return PB_OK;
}

/* Waits for the checkpoint that is being written, and says for how long. */
static pb_status wait_for_thread(pb_saver *s)
{
    const double start = pb_clock_seconds();
    const uint64_t step = s->writing;
    if (!step) return PB_OK;
    PB_TRY(written(s, pb_checkpoints_wait(s->c)));
    if (prints(s))
        printf("step %6llu  %s: training waited %.3g s until it was written\n", (unsigned long long)step, name_of(s),
               pb_clock_seconds() - start);
    return PB_OK;
}

/* Copies the state, and leaves the checkpoint to the thread. One that is still being written comes first. */
static pb_status save_async(pb_saver *s, pb_save how, const pb_progress *p)
{
    PB_TRY(wait_for_thread(s));
    const double start = pb_clock_seconds();
    PB_TRY(pb_checkpoints_save(s->c, how, s->j->trainer, p));
    s->writing = p->iteration;
    s->trial = how == PB_SAVE_TRIAL;
    if (prints(s))
        printf("step %6llu  %s: training waited %.3g s for the copy\n", (unsigned long long)s->writing, name_of(s),
               pb_clock_seconds() - start);
    return PB_OK;
}

static pb_status save(pb_saver *s, pb_save how, const pb_progress *p)
{
    if (s->j->o->save_async) return save_async(s, how, p);
    PB_TRY(gather_adapters(s->j, true)); /* for add_adapter */
    PB_TRY(pb_checkpoints_save(s->c, how, s->j->trainer, p));
    return gather_adapters(s->j, false);
}

pb_status pb_saver_step(pb_saver *s, const pb_progress *p, bool now)
{
    if (!s->c) return PB_OK;
    const double start = pb_clock_seconds();
    PB_TRY(written(s, pb_checkpoints_poll(s->c)));
    const pb_save how = now ? PB_SAVE_KEEP : pb_checkpoints_due(s->c, p->iteration);
    if (how != PB_SAVE_NONE) {
        pb_where_phase("checkpoint");
        PB_TRY(save(s, how, p));
        pb_where_phase(NULL);
    }
    s->waited += pb_clock_seconds() - start;
    return PB_OK;
}

pb_status pb_saver_finish(pb_saver *s)
{
    if (!s->c) return PB_OK;
    pb_where_phase("checkpoint");
    const pb_status status = wait_for_thread(s);
    pb_where_phase(NULL);
    return status;
}

/* ---- exporting the trained model ---------------------------------------------------------------------- */

pb_export_kind pb_export_kind_of(const pb_job *j)
{
    return j->cfg.model.tuning == PB_FULL || j->o->merge ? PB_EXPORT_MODEL : PB_EXPORT_ADAPTERS;
}

static pb_status check_kind(const char *dir, pb_export_kind kind)
{
    static const char *const files[] = {"adapter_config.json", "config.json"}; /* that an export of each kind has */
    static const char *const what[] = {"adapters", "a whole model"};
    char path[PATH_MAX];
    const int other = kind == PB_EXPORT_ADAPTERS;
    if (snprintf(path, sizeof path, "%s/%s", dir, files[other]) >= (int)sizeof path || access(path, F_OK) != 0)
        return PB_OK;
    return pb_fail(PB_EINVAL, "%s holds %s (%s), and an export of %s would be mixed with it: give another folder", dir,
                   what[other], files[other], what[!other]);
}

pb_status pb_export_open(const char *dir, pb_export_kind kind, pb_export_folder *out)
{
    *out = (pb_export_folder){0};
    if (!dir) return PB_OK;
    PB_TRY(pb_make_folder(dir));
    if (access(dir, W_OK | X_OK) != 0) return pb_fail_errno(errno, "%s", dir);
    PB_TRY(check_kind(dir, kind));
    PB_TRY(pb_folder_lock(dir, "is exporting into this folder", &out->lock));
    out->dir = dir;
    return PB_OK;
}

void pb_export_close(pb_export_folder *x)
{
    if (x->dir) close(x->lock);
    *x = (pb_export_folder){0};
}

typedef struct export_call {
    const pb_job *j;
    const char *dir;
} export_call;

static pb_status write_export(void *self)
{
    const export_call *x = self;
    const pb_job *j = x->j;
    const char *dir = x->dir;
    pb_model *m = pb_trainer_model(j->trainer);
    if (pb_export_kind_of(j) == PB_EXPORT_MODEL) {
        const pb_hf_text text = {j->cfg.model.blank ? j->o->model : NULL, j->input.tokenizer_path,
                                 j->input.tokenizer_folder};
        PB_TRY(pb_model_save_hf(m, dir, &(pb_hf_save_config){.merge = j->o->merge, .text = &text}));
    } else {
        PB_TRY(pb_peft_save(m, dir, j->o->model));
    }
    if (!j->o->quiet) printf("exported to %s\n", dir);
    return PB_OK;
}

pb_status pb_export(pb_job *j, const pb_export_folder *to)
{
    if (!j->o->export) return PB_OK;
    PB_TRY(gather_adapters(j, true));
    return pb_trainer_read(j->trainer, write_export, &(export_call){j, to->dir});
}
