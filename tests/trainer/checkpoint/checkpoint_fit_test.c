/* checkpoint_fit_test.c - tests that checkpoints of another model, of other base weights or of other settings are
 * refused. */
#include "tests/trainer/checkpoint/checkpoint_fixture.h"
#include "trainer/checkpoint/checkpoint_impl.h"

static void refused(const char *dir, const pb_checkpoint_options *o, run_kind k, void (*change)(pb_train_config *),
                    pb_status want, const char *says)
{
    run r;
    pb_train_config cfg = run_config(k);
    lines notes = {""};
    pb_checkpoint_options with = *o;
    with.note = note_line;
    with.note_self = &notes;
    if (change) change(&cfg);
    run_open_as(&r, k, &cfg);
    const pb_digest_text before = run_digest(&r);
    pb_checkpoints *c = open_folder(dir, &with);
    CHECK_FAILS(pb_checkpoints_resume(c, "latest", r.t, &r.p), want, says);
    CHECK_DIGEST(run_digest(&r), before);
    /* The checkpoint is refused, but it is not damaged, so `latest` does not fall back to an earlier one. */
    assert_null(strstr(notes.text, "checkpoint not used"));
    CHECK_FAILS(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &(pb_progress){.iteration = 9}), PB_EINVAL,
                "has checkpoints of another run");
    pb_checkpoints_close(c);
    run_close(&r);
}

static void other_seed(pb_train_config *c) { c->model.seed++; }
static void other_rank(pb_train_config *c) { c->model.rank++; }
static void other_alpha(pb_train_config *c) { c->model.alpha += 1; }
static void other_layers(pb_train_config *c) { c->model.layers = 2; }

static void checkpoints_of_other_runs_are_refused(void **state)
{
    (void)state;
    run r;
    pb_setting s = {"data.file", "a.jsonl", true};
    const pb_checkpoint_options o = {.save_interval = 1, .settings = &s, .nsettings = 1};
    const char *dir = two_checkpoints(&r, &o);
    run_close(&r);
    refused(dir, &o, plain, other_seed, PB_EINVAL, "iter_0000002 belongs to other base weights");
    refused(dir, &o, plain, other_rank, PB_EINVAL,
            "model.adapters was \"rank 2 alpha 4 targets q+v\", but is \"rank 3");
    refused(dir, &o, plain, other_alpha, PB_EINVAL, "model.adapters was");
    refused(dir, &o, plain, other_layers, PB_EINVAL, "model.geometry was");
    refused(dir, &o, (run_kind){PB_FULL, PB_F32, 1, false}, NULL, PB_EINVAL,
            "model.tuning was \"lora\", but is \"full\"");
    refused(dir, &o, (run_kind){PB_LORA, PB_BF16, 1, false}, NULL, PB_EINVAL, "model.dtype was");
    s.value = "b.jsonl";
    refused(dir, &o, plain, NULL, PB_EINVAL, "data.file was \"a.jsonl\", but is \"b.jsonl\"");
    s.key = "data.seed";
    refused(dir, &o, plain, NULL, PB_EINVAL, "data.seed was not set, but is \"b.jsonl\"");
    s.absent = "a.jsonl"; /* the option is newer than the checkpoint, and its value is not the default */
    refused(dir, &o, plain, NULL, PB_EINVAL, "data.seed was \"a.jsonl\", but is \"b.jsonl\"");
    s.value = "a.jsonl"; /* with its default */
    run_open(&r, plain);
    pb_checkpoints *c = open_folder(dir, &o);
    CHECK_OK(run_resume(&r, c, "latest"));
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

static void fewer_targets(pb_train_config *c) { c->model.targets = 1u << PB_TARGET_Q; }

/* Writes the state files of a run and of one with changed settings; `says`: the error when the first is read for the
 * second (NULL: it is accepted). Only tensors are checked here, not settings. */
static void state_of(void (*change)(pb_train_config *), const char *says)
{
    run r, s;
    pb_state_files f = {0}, g = {0};
    pb_file_digest data;
    pb_train_config cfg = run_config(plain);
    const char *dir = make_folder();
    if (change) change(&cfg);
    run_open(&r, plain), run_open_as(&s, plain, &cfg);
    CHECK_OK(pb_state_write(r.t, NULL, &pb_disk_posix, in_folder(dir, "r"), &data));
    CHECK_OK(pb_state_write(s.t, NULL, &pb_disk_posix, in_folder(dir, "s"), &data));
    CHECK_OK(pb_state_open(&f, in_folder(dir, "r")));
    CHECK_OK(pb_state_open(&g, in_folder(dir, "s")));
    CHECK_OK(pb_state_check("x", &f, r.t));
    if (says) CHECK_FAILS(pb_state_check("x", &f, s.t), PB_EINVAL, says);
    if (change == fewer_targets)
        CHECK_FAILS(pb_state_check("x", &g, r.t), PB_EINVAL, "x belongs to another model: it has no tensor");
    pb_state_close(&f), pb_state_close(&g);
    run_close(&r), run_close(&s);
    remove_folder(dir);
}

static void checkpoints_with_other_tensors_are_refused(void **state)
{
    (void)state;
    state_of(NULL, NULL);
    state_of(fewer_targets, "x belongs to another model: it has 21 tensors, but must have 15");
    state_of(other_rank,
             "x belongs to another model: its tensor w.layers.0.lora_a.q is F32 [2,64], but must be F32 [3,64]");
    state_of(other_layers, "x belongs to another model: it has no tensor w.layers.1.norm1");
}

static void changed_settings_are_reported(void **state)
{
    (void)state;
    run r;
    pb_setting s[2] = {{"lr", "1e-3", false}, {"by", "me", false}};
    lines notes = {""};
    pb_checkpoint_options o = {
        .save_interval = 1, .settings = s, .nsettings = 2, .note = note_line, .note_self = &notes};
    const char *dir = two_checkpoints(&r, &o);
    pb_checkpoints *c = open_folder(dir, &o);
    CHECK_OK(run_resume(&r, c, "latest"));
    assert_string_equal(notes.text, "");
    s[0].value = "2e-3";
    CHECK_OK(pb_trainer_set_clip(r.t, PB_CLIP_MULTI, 2));
    CHECK_OK(run_resume(&r, c, "latest"));
    assert_non_null(strstr(notes.text, "lr was \"1e-3\", but is \"2e-3\" now\n"));
    assert_non_null(strstr(notes.text, "train.clip was \"fused 1\", but is \"multi 2\" now\n"));
    assert_null(strstr(notes.text, "by was"));
    pb_checkpoints_close(c);
    pb_checkpoints *none = NULL;
    s[1].key = "lr";
    CHECK_FAILS(pb_checkpoints_open(dir, &o, &none), PB_EINVAL, "setting \"lr\" is given twice");
    s[1].key = "model.x";
    CHECK_FAILS(pb_checkpoints_open(dir, &o, &none), PB_EINVAL, "setting \"model.x\"");
    s[1] = (pb_setting){"x", "a\nb", false};
    CHECK_FAILS(pb_checkpoints_open(dir, &o, &none), PB_EINVAL, "setting \"x\"");
    run_close(&r);
    remove_folder(dir);
}

/* Checkpoints of earlier versions have bits in place of names. */
static void targets_are_named(void **state)
{
    char out[100];
    (void)state;
    assert_string_equal(pb_setting_in_words("rank 2 alpha 4 targets 5", out, sizeof out), "rank 2 alpha 4 targets q+v");
    assert_string_equal(pb_setting_in_words("rank 2 alpha 4 targets 127", out, sizeof out),
                        "rank 2 alpha 4 targets q+k+v+o+gate+up+down");
    assert_string_equal(pb_setting_in_words("rank 2 alpha 4 targets q", out, sizeof out), "rank 2 alpha 4 targets q");
    assert_string_equal(pb_setting_in_words("none", out, sizeof out), "none");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_of_other_runs_are_refused),
        cmocka_unit_test(checkpoints_with_other_tensors_are_refused),
        cmocka_unit_test(changed_settings_are_reported),
        cmocka_unit_test(targets_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
