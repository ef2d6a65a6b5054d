/* checkpoint_test.c - tests of the checkpoints of a training run: a resumed run equals an uninterrupted one bit for
 * bit, and the right checkpoints are kept. */
#include "tests/trainer/checkpoint/checkpoint_fixture.h"

static const run_kind kinds[] = {
    {PB_FULL, PB_F32, 1, false, false}, {PB_FULL, PB_BF16, 2, true, false},   {PB_LORA, PB_F32, 2, false, false},
    {PB_LORA, PB_F32, 1, true, false},  {PB_QLORA, PB_BF16, 2, false, false}, {PB_QLORA, PB_BF16, 2, true, false},
    {PB_FULL, PB_F32, 1, false, true},  {PB_FULL, PB_BF16, 2, true, true},    {PB_LORA, PB_F32, 1, true, true},
};

/* ---- a resumed run equals an uninterrupted one ----------------------------------------------------------- */

static void resumed_equals_uninterrupted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        run whole, before, after;
        pb_digest_text at[7];
        double loss[7];
        const char *dir = make_folder();
        const pb_checkpoint_options o = {.save_interval = 3};
        run_open(&whole, kinds[i]);
        for (int step = 1; step <= 6; step++) {
            run_to(&whole, NULL, (uint64_t)step);
            at[step] = run_digest(&whole);
            loss[step] = whole.loss;
        }
        run_open(&before, kinds[i]);
        const pb_checkpoint_options in_background = {.save_interval = 3, .background = true};
        pb_checkpoints *c = open_folder(dir, i % 2 ? &in_background : &o);
        run_to(&before, c, 3);
        pb_checkpoints_close(c);
        run_close(&before);
        run_open(&after, kinds[i]);
        c = open_folder(dir, &o);
        CHECK_OK(run_resume(&after, c, "latest"));
        assert_int_equal(after.p.iteration, 3);
        CHECK_DIGEST(run_digest(&after), at[3]);
        for (int step = 4; step <= 6; step++) {
            run_to(&after, c, (uint64_t)step);
            CHECK_DIGEST(run_digest(&after), at[step]);
            assert_memory_equal(&after.loss, &loss[step], sizeof *loss);
        }
        assert_true(after.p.data.epoch > 0); /* the run is in its second epoch, which has another order */
        pb_checkpoints_close(c);
        run_close(&after);
        run_close(&whole);
        remove_folder(dir);
    }
}

/* Skipped steps, the learning rate and all counters are restored. */
static void counters_are_restored(void **state)
{
    (void)state;
    run r, s;
    const char *dir = make_folder();
    const pb_checkpoint_options o = {.save_interval = 1};
    pb_checkpoints *c = open_folder(dir, &o);
    pb_adamw_state a, b;
    run_open(&r, plain);
    run_step(&r);
    CHECK_OK(pb_trainer_set_lr(r.t, 0.123f));
    const uint64_t most = INT64_MAX;
    r.p = (pb_progress){
        .iteration = 1, .data = {most, 5}, .tokens = most, .samples = 6, .skipped = 7, .skipped_in_row = 8};
    CHECK_OK(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p));
    r.p.tokens++;
    CHECK_FAILS(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p), PB_EINVAL, "tokens");
    r.p.tokens--;
    run_open(&s, plain);
    CHECK_OK(pb_checkpoints_resume(c, "1", s.t, &s.p));
    assert_memory_equal(&r.p, &s.p, sizeof r.p);
    CHECK_OK(pb_trainer_state(r.t, &a));
    CHECK_OK(pb_trainer_state(s.t, &b));
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(pb_trainer_config(s.t)->lr == 0.123f);
    pb_checkpoints_close(c);
    run_close(&r), run_close(&s);
    remove_folder(dir);
}

/* ---- which checkpoints are kept, and when they are saved ------------------------------------------------- */

static const char *tracked(const char *dir)
{
    static char text[32];
    FILE *f = fopen(in_folder(dir, TRACKER), "r");
    if (!f) return "none";
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void retention_in(bool background, int save, int retain, uint64_t last, const char *want)
{
    run r;
    const char *dir = make_folder();
    const pb_checkpoint_options o = {
        .save_interval = save, .retain_interval = retain, .last = last, .background = background};
    pb_checkpoints *c = open_folder(dir, &o);
    run_open(&r, plain);
    run_to(&r, c, last);
    assert_string_equal(names_in(dir), want);
    assert_int_equal(strtoull(tracked(dir), NULL, 10), last);
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

static void retention_of(int save, int retain, uint64_t last, const char *want)
{
    retention_in(false, save, retain, last, want);
    retention_in(true, save, retain, last, want);
}

static void old_checkpoints_are_removed(void **state)
{
    (void)state;
    retention_of(2, 4, 6, "iter_0000004/ iter_0000006/ " TRACKER " ");
    retention_of(2, 4, 5, "iter_0000004/ iter_0000005/ " TRACKER " ");
    retention_of(1, 3, 8, "iter_0000003/ iter_0000006/ iter_0000008/ " TRACKER " ");
    retention_of(1, 0, 5, "iter_0000004/ iter_0000005/ " TRACKER " ");
    retention_of(0, 0, 3, "iter_0000003/ " TRACKER " ");
}

static void a_trial_save_leaves_no_files(void **state)
{
    (void)state;
    run r;
    const char *dir = make_folder();
    const pb_checkpoint_options o = {.save_interval = 2, .last = 9};
    pb_checkpoints *c = open_folder(dir, &o);
    run_open(&r, plain);
    run_step(&r);
    assert_int_equal(pb_checkpoints_due(c, 1), PB_SAVE_TRIAL);
    CHECK_OK(pb_checkpoints_save(c, PB_SAVE_TRIAL, r.t, &r.p));
    assert_string_equal(names_in(dir), "");
    assert_int_equal(pb_checkpoints_latest(c), 0);
    assert_int_equal(pb_checkpoints_due(c, 1), PB_SAVE_NONE);
    assert_int_equal(pb_checkpoints_due(c, 2), PB_SAVE_KEEP);
    assert_int_equal(pb_checkpoints_due(c, 3), PB_SAVE_NONE);
    assert_int_equal(pb_checkpoints_due(c, 9), PB_SAVE_KEEP);
    CHECK_OK(pb_checkpoints_save(c, PB_SAVE_NONE, r.t, &r.p));
    assert_string_equal(names_in(dir), "");
    pb_checkpoints_close(c);
    const pb_checkpoint_options never = {.save_interval = 0};
    c = open_folder(dir, &never);
    assert_int_equal(pb_checkpoints_due(c, 1), PB_SAVE_NONE);
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

/* ---- files that the caller adds to a checkpoint -------------------------------------------------------- */

static pb_status spoil(void *self, pb_model *m, const char *dir)
{
    char path[600];
    (void)m;
    snprintf(path, sizeof path, "%s/%s", dir, (const char *)self);
    return pb_disk_write_file(&pb_disk_posix, path, "x", 1);
}

static pb_status link_something(void *self, pb_model *m, const char *dir)
{
    (void)self, (void)m;
    char path[600];
    snprintf(path, sizeof path, "%s/link", dir);
    return symlink("/etc/passwd", path) == 0 ? PB_OK : PB_EIO;
}

static pb_status export_files(void *self, pb_model *m, const char *dir)
{
    char path[600];
    (void)self;
    assert_non_null(m);
    snprintf(path, sizeof path, "%s/adapter", dir);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/adapter/config.json", dir);
    PB_TRY(pb_disk_write_file(&pb_disk_posix, path, "{}", 2));
    snprintf(path, sizeof path, "%s/readme.txt", dir);
    return pb_disk_write_file(&pb_disk_posix, path, "", 0);
}

static pb_status refuse_export(void *self, pb_model *m, const char *dir)
{
    (void)self, (void)m, (void)dir;
    return pb_fail(PB_EFORMAT, "no export today");
}

static void extra_files_are_part_of_the_checkpoint(void **state)
{
    (void)state;
    run r;
    const char *dir = make_folder();
    pb_checkpoint_options o = {.save_interval = 1, .extra = export_files};
    pb_checkpoints *c = open_folder(dir, &o);
    run_open(&r, plain);
    run_to(&r, c, 1);
    assert_true(is_there(dir, "iter_0000001/adapter/config.json"));
    CHECK_OK(pb_checkpoints_resume(c, "1", r.t, &r.p));
    FILE *f = fopen(in_folder(dir, "iter_0000001/adapter/config.json"), "w");
    fputs("[]", f);
    fclose(f);
    CHECK_FAILS(pb_checkpoints_resume(c, "1", r.t, &r.p), PB_EINVAL, "adapter/config.json is damaged");
    pb_checkpoints_close(c);
    static const struct {
        pb_status (*extra)(void *, pb_model *, const char *);
        const char *name;
        pb_status status;
        const char *says;
    } bad[] = {{refuse_export, "", PB_EFORMAT, "no export today"},
               {link_something, "", PB_EINVAL, "link is neither a regular file nor a folder"},
               {spoil, "checkpoint.json", PB_EINVAL, "checkpoint.json"},
               {spoil, "a\nb", PB_EINVAL, "is not a valid name"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s", bad[i].name);
        o.extra = bad[i].extra;
        o.extra_self = name;
        c = open_folder(dir, &o);
        CHECK_FAILS(pb_checkpoints_resume(c, "latest", r.t, &r.p), PB_EINVAL, "none of the 1 checkpoints is intact");
        pb_checkpoints_close(c);
        const char *other = make_folder();
        c = open_folder(other, &o);
        CHECK_FAILS(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p), bad[i].status, bad[i].says);
        assert_string_equal(names_in(other), "");
        pb_checkpoints_close(c);
        remove_folder(other);
    }
    run_close(&r);
    remove_folder(dir);
}

/* ---- locking and cleaning the folder of checkpoints -------------------------------------------------------- */

static void one_writer_at_a_time(void **state)
{
    (void)state;
    const char *dir = make_folder();
    const pb_checkpoint_options o = {.save_interval = 1};
    pb_checkpoints *a = open_folder(dir, &o), *b = NULL;
    CHECK_FAILS(pb_checkpoints_open(dir, &o, &b), PB_EINVAL, "another process is writing checkpoints into this folder");
    pb_checkpoints_close(a);
    b = open_folder(dir, &o);
    pb_checkpoints_close(b);
    CHECK_FAILS(pb_checkpoints_open("/nowhere/at/all", &o, &b), PB_EPATH, "/nowhere/at/all: No such file");
    CHECK_FAILS(pb_checkpoints_open("/dev/null", &o, &b), PB_EPATH, "/dev/null/.lock: Not a directory");
    CHECK_FAILS(pb_checkpoints_open("", &o, &b), PB_EINVAL, "the name of the checkpoint folder is empty");
    remove_folder(dir);
}

static void temporary_files_of_killed_processes_are_removed(void **state)
{
    (void)state;
    run r;
    const pb_checkpoint_options o = {.save_interval = 1};
    const char *dir = two_checkpoints(&r, &o);
    assert_int_equal(mkdir(in_folder(dir, ".iter_0000003.77.tmp"), 0777), 0);
    assert_int_equal(mkdir(in_folder(dir, ".iter_0000003.77.tmp/adapter"), 0777), 0);
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, in_folder(dir, ".iter_0000003.77.tmp/adapter/x"), "x", 1));
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, in_folder(dir, ".latest_.77.tmp"), "3", 1));
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, in_folder(dir, "iter_3"), "a file of the user's", 1));
    /* a replaced checkpoint whose replacement was published: it must be removed */
    assert_int_equal(mkdir(in_folder(dir, ".iter_0000001.77.old"), 0777), 0);
    /* a replaced checkpoint whose replacement is missing: it must get its name back */
    assert_int_equal(rename(in_folder(dir, "iter_0000002"), in_folder(dir, ".iter_0000002.77.old")), 0);
    pb_checkpoints *c = open_folder(dir, &o);
    assert_string_equal(names_in(dir), "iter_0000001/ iter_0000002/ iter_3 " TRACKER " ");
    CHECK_OK(run_resume(&r, c, "latest"));
    assert_int_equal(r.p.iteration, 2);
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

static void resuming_in_an_empty_folder_starts_at_step_0(void **state)
{
    (void)state;
    run r;
    const char *dir = make_folder();
    const pb_checkpoint_options o = {.save_interval = 1};
    pb_checkpoints *c = open_folder(in_folder(dir, "new/"), &o);
    run_open(&r, plain);
    const pb_digest_text before = run_digest(&r);
    r.p.iteration = 5;
    CHECK_OK(pb_checkpoints_resume(c, "latest", r.t, &r.p));
    assert_int_equal(r.p.iteration, 0);
    CHECK_DIGEST(run_digest(&r), before);
    CHECK_FAILS(pb_checkpoints_resume(c, "4", r.t, &r.p), PB_EINVAL, "iter_0000004 does not exist");
    CHECK_FAILS(pb_checkpoints_resume(c, "0", r.t, &r.p), PB_EINVAL, "--resume 0: need \"latest\"");
    CHECK_FAILS(pb_checkpoints_resume(c, "4x", r.t, &r.p), PB_EINVAL, "--resume 4x: need");
    CHECK_FAILS(pb_checkpoints_resume(c, "-4", r.t, &r.p), PB_EINVAL, "--resume -4: need");
    CHECK_FAILS(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p), PB_EINVAL, "before the first step");
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

/* The newest checkpoint is the one with the largest number. Comparing the names as text would be wrong: iter_9999999
 * sorts after iter_10000000. */
static void the_newest_is_the_largest_number(void **state)
{
    (void)state;
    run r;
    lines notes = {""};
    const char *dir = make_folder();
    assert_int_equal(mkdir(in_folder(dir, "iter_9999999"), 0777), 0);
    assert_int_equal(mkdir(in_folder(dir, "iter_10000000"), 0777), 0);
    pb_checkpoints *c = open_folder(dir, &(pb_checkpoint_options){.note = note_line, .note_self = &notes});
    run_open(&r, plain);
    CHECK_FAILS(run_resume(&r, c, "latest"), PB_EINVAL, "none of the 2 checkpoints is intact");
    assert_non_null(strstr(strstr(notes.text, "iter_10000000"), "iter_9999999"));
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

/* A run resumes from checkpoint 2 although checkpoint 5 exists; its next checkpoint, 3, becomes the one to resume from.
 * Older checkpoints of later iterations (4, 5) are kept until the run reaches these iterations; if it saves one of
 * them, the new checkpoint replaces the old one. */
static void a_run_can_resume_from_an_older_checkpoint(void **state)
{
    (void)state;
    run r;
    lines notes = {""};
    const char *dir = make_folder();
    const pb_checkpoint_options o = {.save_interval = 1, .retain_interval = 2, .note = note_line, .note_self = &notes};
    pb_checkpoints *c = open_folder(dir, &o);
    run_open(&r, plain);
    run_to(&r, c, 5);
    CHECK_OK(run_resume(&r, c, "2"));
    run_step(&r);
    const pb_digest_text third = run_digest(&r);
    CHECK_OK(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p));
    assert_string_equal(names_in(dir), "iter_0000002/ iter_0000003/ iter_0000004/ iter_0000005/ " TRACKER " ");
    assert_string_equal(tracked(dir), "3\n");
    CHECK_OK(run_resume(&r, c, "latest"));
    assert_non_null(strstr(notes.text, "the checkpoint of step 5 is newer than the resume point 3, and is not used"));
    CHECK_DIGEST(run_digest(&r), third);
    run_to(&r, c, 6);
    assert_string_equal(names_in(dir), "iter_0000002/ iter_0000004/ iter_0000006/ " TRACKER " ");
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_equals_uninterrupted),
        cmocka_unit_test(counters_are_restored),
        cmocka_unit_test(old_checkpoints_are_removed),
        cmocka_unit_test(a_trial_save_leaves_no_files),
        cmocka_unit_test(extra_files_are_part_of_the_checkpoint),
        cmocka_unit_test(one_writer_at_a_time),
        cmocka_unit_test(temporary_files_of_killed_processes_are_removed),
        cmocka_unit_test(resuming_in_an_empty_folder_starts_at_step_0),
        cmocka_unit_test(the_newest_is_the_largest_number),
        cmocka_unit_test(a_run_can_resume_from_an_older_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
