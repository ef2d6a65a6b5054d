/* checkpoint_background_test.c - tests of checkpoints that a thread writes while training continues: their bits, the
 * order of saves, what training waits for, and how failures are reported. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "tests/trainer/checkpoint/checkpoint_fixture.h"
#include "trainer/checkpoint/state.h"
#include "trainer/hf/peft.h"
#include "trainer/step/trainer_impl.h"

/* ---- a disk whose writes wait until a gate is open, or sleep, or fail ----------------------------------------- */

typedef struct slow_disk {
    pb_disk table;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool closed;     /* writes wait */
    bool full;       /* writes fail with ENOSPC */
    double sleep;    /* seconds before every write */
    pthread_t owner; /* the thread of the test */
    int own, other;  /* writes on that thread, and on another one */
} slow_disk;

static ssize_t slow_write(void *self, int fd, const void *from, size_t n)
{
    slow_disk *d = self;
    pthread_mutex_lock(&d->lock);
    *(pthread_equal(pthread_self(), d->owner) ? &d->own : &d->other) += 1;
    while (d->closed) pthread_cond_wait(&d->changed, &d->lock);
    const bool full = d->full;
    const double sleep = d->sleep;
    pthread_mutex_unlock(&d->lock);
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * sleep)}, NULL);
    if (full) return errno = ENOSPC, -1;
    return write(fd, from, n);
}

static int slow_fsync(void *self, int fd)
{
    (void)self, (void)fd;
    return 0;
}

static void slow_open(slow_disk *d)
{
    *d = (slow_disk){.table = pb_disk_posix, .owner = pthread_self()};
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    d->table.self = d;
    d->table.write = slow_write;
    d->table.fsync = slow_fsync;
}

static void set_gate(slow_disk *d, bool closed)
{
    pthread_mutex_lock(&d->lock);
    d->closed = closed;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

static void set_full(slow_disk *d, bool full)
{
    pthread_mutex_lock(&d->lock);
    d->full = full;
    pthread_mutex_unlock(&d->lock);
}

static int others(slow_disk *d)
{
    pthread_mutex_lock(&d->lock);
    const int n = d->other;
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* ---- comparing folders ---------------------------------------------------------------------------------------- */

typedef struct comparison {
    const char *other;
    int files;
} comparison;

static pb_status compare_file(void *self, const char *path, const char *name, pb_disk_kind kind)
{
    comparison *x = self;
    char *a = NULL, *b = NULL;
    size_t an, bn;
    if (kind != PB_DISK_FILE) return PB_OK;
    PB_TRY(pb_disk_read_file(&pb_disk_posix, path, 1 << 24, &a, &an));
    PB_TRY(pb_disk_read_file(&pb_disk_posix, in_folder(x->other, name), 1 << 24, &b, &bn));
    if (an != bn || memcmp(a, b, an) != 0) fail_msg("%s differs", name);
    free(a), free(b);
    x->files++;
    return PB_OK;
}

static void check_same(const char *a, const char *b, int files)
{
    comparison x = {.other = b};
    CHECK_OK(pb_disk_walk(a, compare_file, &x));
    assert_int_equal(x.files, files);
    assert_int_equal(strlen(names_in(a)), strlen(names_in(b)));
}

/* As train does: adds the adapters in PEFT's layout. */
static pb_status add_adapter(void *self, pb_model *m, const char *dir)
{
    char path[300];
    (void)self;
    if (m->cfg.tuning == PB_FULL) return PB_OK;
    snprintf(path, sizeof path, "%s/adapter", dir);
    return pb_peft_save(m, path, "base");
}

/* ---- tests ---------------------------------------------------------------------------------------------------- */

/* The writer is stopped at its first write until training has changed all parameters. */
static void the_bits_are_those_of_the_step(void **state)
{
    (void)state;
    static const run_kind kinds[] = {{PB_LORA, PB_F32, 1, false, false},
                                     {PB_LORA, PB_BF16, 2, false, false},
                                     {PB_QLORA, PB_BF16, 1, false, false},
                                     {PB_FULL, PB_F32, 1, true, false},
                                     {PB_FULL, PB_BF16, 1, false, true}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        run r;
        slow_disk disk;
        slow_open(&disk);
        char here[64], there[64];
        snprintf(here, sizeof here, "%s", make_folder()), snprintf(there, sizeof there, "%s", make_folder());
        const pb_checkpoint_options waits = {.save_interval = 2, .extra = add_adapter};
        const pb_checkpoint_options o = {
            .save_interval = 2, .extra = add_adapter, .disk = &disk.table, .background = true};
        pb_checkpoints *c = open_folder(here, &o), *w = open_folder(there, &waits);
        run_open(&r, kinds[i]);
        run_to(&r, c, 1);
        run_step(&r);
        CHECK_OK(pb_checkpoints_save(w, PB_SAVE_KEEP, r.t, &r.p));
        const pb_digest_text at = run_digest(&r);
        set_gate(&disk, true);
        CHECK_OK(pb_checkpoints_save(c, pb_checkpoints_due(c, 2), r.t, &r.p));
        for (int k = 0; k < 3; k++) {
            run_step(&r);
            CHECK_OK(pb_checkpoints_poll(c));
            assert_true(pb_checkpoints_busy(c));
        }
        const pb_digest_text later = run_digest(&r);
        assert_string_not_equal(at.hex, later.hex);
        assert_null(strstr(names_in(here), " iter_"));
        set_gate(&disk, false);
        CHECK_OK(pb_checkpoints_wait(c));
        assert_false(pb_checkpoints_busy(c));
        assert_int_equal(disk.own, 0); /* training has not written */
        check_same(there, here, kinds[i].tuning == PB_FULL ? 4 : 6);
        CHECK_OK(run_resume(&r, c, "latest"));
        CHECK_DIGEST(run_digest(&r), at);
        pb_checkpoints_close(c), pb_checkpoints_close(w);
        run_close(&r);
        remove_folder(here), remove_folder(there);
    }
}

/* A slow disk: each save that is due waits for the one before, and every checkpoint appears. */
static void no_save_is_left_out(void **state)
{
    (void)state;
    run r;
    slow_disk disk;
    slow_open(&disk);
    disk.sleep = 0.01;
    const char *dir = make_folder();
    const pb_checkpoint_options o = {.save_interval = 1, .retain_interval = 1, .disk = &disk.table, .background = true};
    pb_checkpoints *c = open_folder(dir, &o);
    run_open(&r, plain);
    for (int i = 1; i <= 4; i++) {
        run_step(&r);
        CHECK_OK(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p));
        if (i > 1 && !(pb_checkpoints_write_time(c) > 0.03)) fail_msg("not the time of at least three writes");
        assert_true(pb_checkpoints_busy(c));
        assert_int_equal(pb_checkpoints_latest(c), i - 1);
    }
    CHECK_OK(pb_checkpoints_wait(c));
    assert_int_equal(pb_checkpoints_latest(c), 4);
    assert_string_equal(names_in(dir), "iter_0000001/ iter_0000002/ iter_0000003/ iter_0000004/ " TRACKER " ");
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

/* Closing waits for the thread, and one trial is enough although it is being written when the next is due. */
static void closing_completes_the_last(void **state)
{
    (void)state;
    run r;
    slow_disk disk;
    slow_open(&disk);
    const char *dir = make_folder();
    const pb_checkpoint_options o = {.save_interval = 3, .disk = &disk.table, .background = true};
    pb_checkpoints *c = open_folder(dir, &o);
    run_open(&r, plain);
    run_step(&r);
    set_gate(&disk, true);
    assert_int_equal(pb_checkpoints_due(c, 1), PB_SAVE_TRIAL);
    CHECK_OK(pb_checkpoints_save(c, PB_SAVE_TRIAL, r.t, &r.p));
    assert_int_equal(pb_checkpoints_due(c, 2), PB_SAVE_NONE);
    set_gate(&disk, false);
    CHECK_OK(pb_checkpoints_wait(c));
    assert_string_equal(names_in(dir), "");
    run_step(&r);
    disk.sleep = 0.02;
    CHECK_OK(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p));
    pb_checkpoints_close(c);
    assert_string_equal(names_in(dir), "iter_0000002/ " TRACKER " ");
    run_close(&r);
    remove_folder(dir);
}

/* A failure of the thread has the status and the message of a save that training waits for, whichever call returns it,
 * and is returned once. */
static void failures_are_reported(void **state)
{
    (void)state;
    run r;
    slow_disk disk;
    slow_open(&disk);
    const char *dir = make_folder();
    pb_checkpoint_options o = {.save_interval = 1, .disk = &disk.table};
    pb_checkpoints *c = open_folder(dir, &o);
    run_open(&r, plain);
    run_to(&r, c, 1);
    run_step(&r);
    set_full(&disk, true);
    char why[1024];
    const pb_status want = pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p);
    snprintf(why, sizeof why, "%s", pb_error());
    assert_int_equal(want, PB_EIO);
    assert_non_null(strstr(why, "No space left on device"));
    pb_checkpoints_close(c);
    o.background = true;
    set_full(&disk, false);
    for (int call = 0; call < 3; call++) {
        c = open_folder(dir, &o);
        CHECK_OK(run_resume(&r, c, "latest"));
        run_step(&r);
        set_full(&disk, true);
        const int before = others(&disk);
        CHECK_OK(pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p));
        pb_status got = PB_OK;
        for (int i = 0; call == 0 && got == PB_OK && i < 5000; i++) {
            got = pb_checkpoints_poll(c);
            (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        if (call == 1) got = pb_checkpoints_wait(c);
        if (call == 2) got = pb_checkpoints_save(c, PB_SAVE_KEEP, r.t, &r.p);
        assert_true(others(&disk) > before);
        assert_int_equal(got, want);
        assert_string_equal(pb_error(), why);
        assert_false(pb_checkpoints_busy(c));
        assert_string_equal(names_in(dir), "iter_0000001/ " TRACKER " ");
        CHECK_OK(pb_checkpoints_wait(c));
        set_full(&disk, false);
        if (call == 2) { /* saving the same state succeeds now */
            CHECK_OK(save_wait(c, PB_SAVE_KEEP, &r, &r.p));
            assert_string_equal(names_in(dir), "iter_0000001/ iter_0000002/ " TRACKER " ");
        }
        pb_checkpoints_close(c);
    }
    run_close(&r);
    remove_folder(dir);
}

/* The planned size is that of what a rank writes: w, m and v of every trained element, and what pb_peft_save reads. */
static void the_size_of_the_copy_is_planned(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        const run_kind kind = {i ? PB_FULL : PB_LORA, PB_BF16, 1, false, i == 2};
        run r;
        size_t want = 0, planned;
        run_open(&r, kind);
        const pb_model *m = pb_trainer_model(r.t);
        for (int k = 0; k < m->n; k++) {
            const pb_param *p = &m->params[k];
            if (!p->trained) continue;
            want += sizeof(float) * (2 * pb_param_n(p) + pb_param_v_n(p));
            if (kind.tuning == PB_LORA) want += sizeof(float) * pb_param_n(p);
        }
        if (kind.tuning == PB_LORA) assert_int_equal(want, 16 * m->trained);
        if (i == 1) assert_int_equal(want, 12 * m->trained);
        if (i == 2) assert_true(want < 12 * m->trained);
        pb_ctx plan;
        pb_trainer *t = NULL;
        const pb_train_config cfg = run_config(kind);
        CHECK_OK(pb_ctx_open_plan(&plan, PB_CPU));
        CHECK_OK(pb_trainer_open(&plan, &cfg, &t));
        planned = pb_state_copy_bytes(t);
        assert_int_equal(planned, want);
        assert_int_equal(pb_state_copy_bytes(r.t), want);
        pb_trainer_close(t);
        pb_ctx_close(&plan);
        run_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_the_step),  cmocka_unit_test(no_save_is_left_out),
        cmocka_unit_test(closing_completes_the_last),      cmocka_unit_test(failures_are_reported),
        cmocka_unit_test(the_size_of_the_copy_is_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
