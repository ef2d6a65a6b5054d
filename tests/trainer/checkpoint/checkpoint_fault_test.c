/* checkpoint_fault_test.c - tests of checkpoints on a disk that fails at each of its calls in turn, and of checkpoints
 * whose files are damaged afterwards: no saved state is lost, and no damaged state is loaded. */
#include "tests/trainer/checkpoint/checkpoint_disk.h"

static const char *const fault_names[] = {
#define X(id, what) #id,
    FAULT_MAP(X)
#undef X
};

/* ---- disks that fail at a chosen call ---------------------------------------------------------------------- */

typedef struct scene {
    run r;
    bad_disk disk;
    const char *dir;
    pb_checkpoint_options o;
    pb_checkpoints *c;    /* NULL: begin_and_try has not opened the folder yet */
    pb_digest_text point; /* the state in the last good checkpoint */
    uint64_t iteration;   /* iteration of `point` */
    lines notes;
} scene;

/* Opens a run with two checkpoints. background: a thread writes them, and those of the test. */
static void scene_open_as(scene *s, bool background)
{
    *s = (scene){.dir = make_folder()};
    bad_disk_make(&s->disk);
    s->o = (pb_checkpoint_options){.save_interval = 1,
                                   .disk = &s->disk.table,
                                   .note = note_line,
                                   .note_self = &s->notes,
                                   .background = background};
    s->c = open_folder(s->dir, &s->o);
    run_open(&s->r, plain);
    run_to(&s->r, s->c, 2);
}

static void scene_open(scene *s) { scene_open_as(s, false); }

static void scene_close(scene *s)
{
    pb_checkpoints_close(s->c);
    run_close(&s->r);
    remove_folder(s->dir);
}

/* An operation to try on the failing disk. */
typedef struct flow {
    const char *name;
    pb_status (*go)(scene *s);
    bool reopens; /* starts with the folder closed */
    bool moves;   /* true: the operation saves the trainer's new state, from which training then resumes */
} flow;

static pb_status save_next(scene *s) { return save_wait(s->c, PB_SAVE_KEEP, &s->r, &s->r.p); }

/* Does what a process does at its start: opens the folder, resumes, and saves a trial checkpoint. */
static pb_status begin_and_try(scene *s)
{
    pb_progress p = s->r.p;
    pb_status got = pb_checkpoints_open(s->dir, &s->o, &s->c);
    if (got == PB_OK) got = pb_checkpoints_resume(s->c, "latest", s->r.t, &s->r.p);
    if (got == PB_OK && s->r.p.iteration != s->iteration && !strstr(s->notes.text, "checkpoint not used: "))
        return pb_fail(PB_EWRONG, "resumed another, and did not say so");
    if (got == PB_OK) got = save_wait(s->c, PB_SAVE_TRIAL, &s->r, &p);
    return got;
}

/* Saves different contents under the same iteration. */
static pb_status replace(scene *s)
{
    s->r.p.iteration = s->iteration;
    return save_wait(s->c, PB_SAVE_KEEP, &s->r, &s->r.p);
}

static const flow flows[] = {
    {"save", save_next, false, true}, {"begin", begin_and_try, true, false}, {"replace", replace, false, true}};

/* The error must be one line that contains the folder's path. */
static void check_line(const scene *s, pb_status got, const char *what)
{
    if (got != PB_EIO && got != PB_EPATH && got != PB_EINVAL)
        fail_msg("%s: %s: %s", what, pb_status_name(got), pb_error());
    if (strpbrk(pb_error(), "\n\r") || !strstr(pb_error(), s->dir))
        fail_msg("%s: '%s' names no path", what, pb_error());
}

static void check_no_leftovers(const scene *s, const char *what)
{
    const char *names = names_in(s->dir);
    if (strchr(names, '.') != strstr(names, ".txt")) fail_msg("%s left %s", what, names);
}

/* Checks the folder once the disk works again: no temporary file is left, and training resumes from the last good state
 * s->point or, if may_move is set and the save had got far enough before the fault, from *next. */
static void check_nothing_lost(scene *s, const pb_digest_text *next, bool may_move, const char *what)
{
    pb_checkpoints_close(s->c);
    s->disk.at = -1;
    s->c = open_folder(s->dir, &s->o);
    if (strchr(names_in(s->dir), '.') != strstr(names_in(s->dir), ".txt"))
        fail_msg("%s left %s", what, names_in(s->dir));
    CHECK_OK(run_resume(&s->r, s->c, "latest"));
    const pb_digest_text got = run_digest(&s->r);
    if (!pb_digest_equal(&got, &s->point) && !(may_move && pb_digest_equal(&got, next)))
        fail_msg("%s: iteration %d came back as something else", what, (int)s->r.p.iteration);
}

/* Runs operation f on a disk whose call number n fails. Returns false if f made fewer calls, so that none failed. */
static bool attempt(scene *s, const flow *f, int kind, int n)
{
    char what[80];
    CHECK_OK(run_resume(&s->r, s->c, "latest"));
    s->point = run_digest(&s->r);
    s->iteration = s->r.p.iteration;
    run_step(&s->r);
    if (f->go == replace) s->r.p.iteration--;
    const pb_digest_text next = run_digest(&s->r);
    const pb_progress p = s->r.p;
    if (f->reopens) {
        pb_checkpoints_close(s->c);
        s->c = NULL;
    }
    snprintf(what, sizeof what, "%s, %s at call %d", f->name, fault_names[kind], n);
    s->disk = (bad_disk){.table = s->disk.table, .kind = kind, .at = n};
    *s->notes.text = 0;
    const pb_status got = f->go(s);
    const bool harmless = kind == FAULT_SHORT || kind == FAULT_INTERRUPTED || !s->disk.fired;
    if (harmless && got != PB_OK) fail_msg("%s: %s", what, pb_error());
    if (!harmless && got == PB_OK && kind != FAULT_CORRUPT && !*s->notes.text) fail_msg("%s: not noticed", what);
    if (got != PB_OK) check_line(s, got, what);
    if (got == PB_OK) check_no_leftovers(s, what);
    if (got == PB_OK && f->moves) s->point = next;
    const bool more = s->disk.calls > n;
    check_nothing_lost(s, &next, f->moves, what);
    if (got != PB_OK && f->moves) { /* now the disk works again, and saving the same state must succeed */
        CHECK_OK(pb_checkpoints_resume(s->c, "latest", s->r.t, &s->r.p));
        CHECK_OK(save_wait(s->c, PB_SAVE_KEEP, &s->r, &p));
    }
    return more;
}

static void fail_every_call(bool background)
{
    int calls = 0;
    for (size_t f = 0; f < sizeof flows / sizeof *flows; f++)
        for (int kind = 0; kind < FAULTS; kind++) {
            scene s;
            int n = 0;
            if (background && flows[f].reopens && kind != FAULT_BAD_DISK) continue; /* mostly reads, as without */
            scene_open_as(&s, background);
            while (attempt(&s, &flows[f], kind, n)) n++;
            assert_true(n > 20);
            calls += n;
            scene_close(&s);
        }
    print_message("%d faults\n", calls);
}

static void no_failing_call_loses_a_checkpoint(void **state)
{
    (void)state;
    fail_every_call(false);
}

static void no_failing_call_of_the_thread_loses_a_checkpoint(void **state)
{
    (void)state;
    fail_every_call(true);
}

/* A process keeps running while its disk is full or unreachable, and can save again afterwards. */
static void saving_works_after_the_disk_recovers(void **state)
{
    (void)state;
    for (int kind = FAULT_FULL; kind <= FAULT_DEAD; kind++) {
        scene s;
        scene_open_as(&s, kind == FAULT_DEAD);
        run_step(&s.r);
        const pb_digest_text third = run_digest(&s.r);
        for (int n = 0; n < 40; n += 3) {
            s.disk = (bad_disk){.table = s.disk.table, .kind = kind, .at = n};
            if (save_next(&s) != PB_OK) check_line(&s, PB_EIO, fault_names[kind]);
        }
        s.disk.at = -1;
        CHECK_OK(save_next(&s));
        assert_string_equal(names_in(s.dir), "iter_0000002/ iter_0000003/ " TRACKER " ");
        CHECK_OK(run_resume(&s.r, s.c, "latest"));
        CHECK_DIGEST(run_digest(&s.r), third);
        scene_close(&s);
    }
}

static pb_status fail_and_lose_disk(void *self, pb_model *m, const char *dir)
{
    bad_disk *d = self;
    (void)m, (void)dir;
    d->kind = FAULT_DEAD;
    d->at = d->calls;
    return pb_fail(PB_EFORMAT, "the first failure");
}

static void the_first_failure_is_reported(void **state)
{
    (void)state;
    scene s;
    scene_open(&s);
    pb_checkpoints_close(s.c);
    s.o.extra = fail_and_lose_disk;
    s.o.extra_self = &s.disk;
    s.c = open_folder(s.dir, &s.o);
    CHECK_OK(run_resume(&s.r, s.c, "latest"));
    CHECK_FAILS(save_next(&s), PB_EFORMAT, "the first failure");
    s.disk.at = -1;
    scene_close(&s);
}

/* ---- checkpoints with damaged files ------------------------------------------------------------------------- */

typedef struct wreck {
    scene s;
    char path[256];
    const char *name; /* name of the damaged file, for messages */
    unsigned char *bytes;
    size_t n;
    pb_digest_text first, second;
} wreck;

static void wreck_open(wreck *w, const char *name)
{
    scene_open(&w->s);
    w->name = name;
    w->second = run_digest(&w->s.r);
    CHECK_OK(run_resume(&w->s.r, w->s.c, "1"));
    w->first = run_digest(&w->s.r);
    snprintf(w->path, sizeof w->path, "%s/%s", w->s.dir, name);
    char *text = NULL;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, w->path, 1 << 20, &text, &w->n));
    w->bytes = (unsigned char *)text;
}

static void put_bytes(const wreck *w, size_t n)
{
    const int fd = open(w->path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0 && write(fd, w->bytes, n) == (ssize_t)n);
    close(fd);
}

static void wreck_close(wreck *w)
{
    put_bytes(w, w->n);
    CHECK_OK(run_resume(&w->s.r, w->s.c, "2")); /* with the original bytes the checkpoint loads again */
    CHECK_DIGEST(run_digest(&w->s.r), w->second);
    free(w->bytes);
    scene_close(&w->s);
}

/* Checkpoint 2 is refused with a message that names the file, the trainer's state is unchanged, and `latest` falls
 * back to checkpoint 1. */
static void check_damage(wreck *w, const char *what, size_t at)
{
    static const char marker[] = "checkpoint not used: ";
    CHECK_OK(pb_trainer_set_lr(w->s.r.t, 77));
    const pb_digest_text before = run_digest(&w->s.r);
    const pb_status got = pb_checkpoints_resume(w->s.c, "2", w->s.r.t, &w->s.r.p);
    if (got != PB_EINVAL && got != PB_EIO && got != PB_EPATH)
        fail_msg("%s %s at %zu: %s", w->name, what, at, pb_status_name(got));
    if (!strstr(pb_error(), w->name)) fail_msg("%s %s at %zu: '%s' does not name it", w->name, what, at, pb_error());
    CHECK_DIGEST(run_digest(&w->s.r), before);
    *w->s.notes.text = 0;
    CHECK_OK(run_resume(&w->s.r, w->s.c, "latest"));
    CHECK_DIGEST(run_digest(&w->s.r), w->first);
    if (strncmp(w->s.notes.text, marker, sizeof marker - 1) != 0 || !strstr(w->s.notes.text, w->name))
        fail_msg("%s %s at %zu: '%s'", w->name, what, at, w->s.notes.text);
}

static void damage_file(const char *name, size_t step)
{
    wreck w;
    wreck_open(&w, name);
    /* damages each of the first 16 bytes (the header's length), then every step-th byte */
    for (size_t i = 0; i < w.n; i += i < 16 ? 1 : step) {
        put_bytes(&w, i);
        check_damage(&w, "cut", i);
        w.bytes[i] ^= (unsigned char)(1 << i % 8);
        put_bytes(&w, w.n);
        check_damage(&w, "changed", i);
        w.bytes[i] ^= (unsigned char)(1 << i % 8);
    }
    put_bytes(&w, w.n - 1);
    check_damage(&w, "cut", w.n - 1);
    put_bytes(&w, w.n);
    FILE *f = fopen(w.path, "a");
    fputc('\n', f);
    fclose(f);
    check_damage(&w, "longer", w.n);
    unlink(w.path);
    check_damage(&w, "missing", 0);
    wreck_close(&w);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    damage_file("iter_0000002/checkpoint.json", 7);
    damage_file("iter_0000002/state.safetensors", 211);
}

/* A file copied from another checkpoint counts as damage. */
static void files_of_other_checkpoints_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"checkpoint.json", "state.safetensors"};
    for (int i = 0; i < 2; i++) {
        wreck w;
        char name[64], command[600];
        snprintf(name, sizeof name, "iter_0000002/%s", names[i]);
        wreck_open(&w, name);
        snprintf(command, sizeof command, "cp %s/iter_0000001/%s %s", w.s.dir, names[i], w.path);
        assert_int_equal(system(command), 0);
        check_damage(&w, "another's", 0);
        wreck_close(&w);
    }
}

/* A complete checkpoint is loaded for any content of the tracker file: the one that it names or, if the content is
 * invalid, the newest one. */
static void invalid_trackers_are_survived(void **state)
{
    (void)state;
    wreck w;
    wreck_open(&w, TRACKER);
    for (size_t i = 0; i < 8 * w.n + w.n; i++) {
        const size_t cut = i < 8 * w.n ? w.n : i - 8 * w.n;
        if (i < 8 * w.n) w.bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        put_bytes(&w, cut);
        if (i < 8 * w.n) w.bytes[i / 8] ^= (unsigned char)(1 << i % 8);
        *w.s.notes.text = 0;
        CHECK_OK(run_resume(&w.s.r, w.s.c, "latest"));
        CHECK_DIGEST(run_digest(&w.s.r), w.second);
        assert_non_null(strstr(w.s.notes.text, "resuming from the newest intact checkpoint"));
    }
    unlink(w.path);
    *w.s.notes.text = 0;
    CHECK_OK(run_resume(&w.s.r, w.s.c, "latest"));
    CHECK_DIGEST(run_digest(&w.s.r), w.second);
    assert_non_null(strstr(w.s.notes.text, TRACKER " is missing"));
    wreck_close(&w);
}

static void resuming_fails_if_all_checkpoints_are_damaged(void **state)
{
    (void)state;
    wreck w;
    wreck_open(&w, "iter_0000002/checkpoint.json");
    unlink(w.path);
    unlink(in_folder(w.s.dir, "iter_0000001/checkpoint.json"));
    CHECK_FAILS(run_resume(&w.s.r, w.s.c, "latest"), PB_EINVAL, "none of the 2 checkpoints is intact");
    remove_folder(in_folder(w.s.dir, "iter_0000001"));
    remove_folder(in_folder(w.s.dir, "iter_0000002"));
    CHECK_FAILS(run_resume(&w.s.r, w.s.c, "latest"), PB_EINVAL, "the resume point 2 is missing");
    free(w.bytes);
    scene_close(&w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_failing_call_loses_a_checkpoint),
        cmocka_unit_test(no_failing_call_of_the_thread_loses_a_checkpoint),
        cmocka_unit_test(saving_works_after_the_disk_recovers),
        cmocka_unit_test(the_first_failure_is_reported),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(files_of_other_checkpoints_are_refused),
        cmocka_unit_test(invalid_trackers_are_survived),
        cmocka_unit_test(resuming_fails_if_all_checkpoints_are_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
