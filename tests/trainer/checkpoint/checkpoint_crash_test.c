/* checkpoint_crash_test.c - kills a training process at random instants, hundreds of times, and checks the folder
 * that it left. Training must resume from the last completed save or from the save in progress, and that state must
 * equal, bit for bit, the state of an uninterrupted run at the same iteration. In every second life a thread writes the
 * checkpoints. CHECKPOINT_CRASH_SEED selects other instants. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "kernels/engine/bind.h"
#include "tests/trainer/checkpoint/checkpoint_fixture.h"

enum { KILLS = 300, ITERATIONS = 48, LIFE = 5, CALLS = 260 };

/* The stage in which a process was killed. X(enumerator, description) */
#define STAGE_MAP(X)                                                                                                   \
    X(TRAINING, "training")                                                                                            \
    X(TIDYING, "tidying what another left")                                                                            \
    X(READING, "reading a checkpoint")                                                                                 \
    X(FILLING, "filling a checkpoint")                                                                                 \
    X(NAMING, "giving it its name")                                                                                    \
    X(TRACKING, "moving the tracker")                                                                                  \
    X(DROPPING, "removing older ones")
enum {
#define X(id, what) STAGE_##id,
    STAGE_MAP(X)
#undef X
        STAGES
};
static const char *const stage_names[STAGES] = {
#define X(id, what) what,
    STAGE_MAP(X)
#undef X
};

/* Memory shared by parent and child. */
typedef struct shared {
    volatile int stage;
    /* begun: iteration of the last save that was started; saved: iteration of the last save that was complete */
    volatile uint64_t begun, saved;
} shared;
static shared *common;

/* ---- the child's disk, which kills the child at a chosen call ------------------------------------------------- */

enum { BEFORE, HALFWAY, AFTER, PHASES };
typedef struct deadly {
    pb_disk table;
    int call, phase; /* the process kills itself at phase `phase` of disk call number `call`; call -1: never */
    int calls;
    bool opened; /* true: opening the folder has removed all leftovers; later removals are of old checkpoints */
} deadly;

static void die_if(const deadly *d, int phase)
{
    if (d->calls == d->call && d->phase == phase) kill(getpid(), SIGKILL);
}

static void enter(deadly *d, int stage)
{
    common->stage = stage;
    die_if(d, BEFORE);
}

static int leave(deadly *d, int result)
{
    const int error = errno;
    die_if(d, AFTER);
    d->calls++;
    errno = error;
    return result;
}

static int stage_of(const deadly *d, const char *path)
{
    if (strstr(path, ".drop") || !d->opened) return d->opened ? STAGE_DROPPING : STAGE_TIDYING;
    return strstr(path, "latest_") ? STAGE_TRACKING : STAGE_FILLING;
}

static int deadly_open(void *self, const char *path, int flags)
{
    enter(self, flags & O_CREAT                   ? stage_of(self, path)
                : common->stage == STAGE_TRAINING ? STAGE_READING
                                                  : common->stage);
    return leave(self, pb_disk_posix.open(NULL, path, flags));
}

static ssize_t deadly_read(void *self, int fd, void *to, size_t n)
{
    enter(self, common->stage);
    return leave(self, (int)read(fd, to, n));
}

static ssize_t deadly_write(void *self, int fd, const void *from, size_t n)
{
    enter(self, common->stage);
    const ssize_t half = write(fd, from, n / 2);
    die_if(self, HALFWAY);
    return leave(self, half < 0 ? -1 : (int)(half + write(fd, (const char *)from + half, n - (size_t)half)));
}

/* Replaces fsync by nothing: SIGKILL does not lose data that was written, so syncing would only slow the test. */
static int deadly_fsync(void *self, int fd)
{
    (void)fd;
    enter(self, common->stage);
    return leave(self, 0);
}

static int deadly_close(void *self, int fd)
{
    enter(self, common->stage);
    return leave(self, close(fd));
}

static int deadly_rename(void *self, const char *from, const char *to)
{
    const bool names = strncmp(strrchr(to, '/') + 1, "iter_", 5) == 0 || strstr(to, ".old");
    enter(self, names ? STAGE_NAMING : stage_of(self, to));
    return leave(self, rename(from, to));
}

static int deadly_unlink(void *self, const char *path)
{
    enter(self, stage_of(self, path));
    return leave(self, unlink(path));
}

static int deadly_mkdir(void *self, const char *path)
{
    enter(self, stage_of(self, path));
    return leave(self, mkdir(path, 0777));
}

static int deadly_rmdir(void *self, const char *path)
{
    enter(self, stage_of(self, path));
    return leave(self, rmdir(path));
}

/* ---- the child, which trains and saves ------------------------------------------------------------------------ */

static pb_checkpoint_options options(uint64_t life)
{
    return (pb_checkpoint_options){
        .save_interval = 2 - (int)(life / 20 % 2), .retain_interval = 4 * (int)(life / 40 % 2), .background = life % 2};
}

/* A thread may still write the checkpoint that was begun last when the function returns. */
static pb_status save_if_due(run *r, pb_checkpoints *c)
{
    const pb_save how = pb_checkpoints_due(c, r->p.iteration);
    PB_TRY(pb_checkpoints_poll(c));
    if (how != PB_SAVE_NONE) PB_TRY(pb_checkpoints_wait(c));
    if (!pb_checkpoints_busy(c)) common->saved = common->begun;
    if (how == PB_SAVE_KEEP) common->begun = r->p.iteration;
    PB_TRY(pb_checkpoints_save(c, how, r->t, &r->p));
    if (!pb_checkpoints_busy(c)) common->saved = common->begun;
    return PB_OK;
}

static pb_status live(run *r, const char *dir, deadly *disk, uint64_t life)
{
    pb_checkpoint_options o = options(life);
    pb_checkpoints *c = NULL;
    o.disk = &disk->table;
    PB_TRY(pb_checkpoints_open(dir, &o, &c));
    disk->opened = true;
    common->stage = STAGE_TRAINING;
    PB_TRY(run_resume(r, c, "latest"));
    for (int i = 0; i < LIFE; i++) {
        if (!pb_checkpoints_busy(c)) common->stage = STAGE_TRAINING;
        run_step(r);
        PB_TRY(save_if_due(r, c));
    }
    PB_TRY(pb_checkpoints_wait(c));
    common->saved = common->begun;
    return PB_OK; /* exits without releasing the folder's lock */
}

static void child(run *r, const char *dir, int call, int phase, uint64_t life)
{
    deadly d = {.call = call, .phase = phase};
    d.table = (pb_disk){&d,           deadly_open,   deadly_read,   deadly_write, deadly_fsync,
                        deadly_close, deadly_rename, deadly_unlink, deadly_mkdir, deadly_rmdir};
    const pb_status s = live(r, dir, &d, life);
    if (s != PB_OK) fprintf(stderr, "child: %s\n", pb_error());
    _exit(s == PB_OK ? 0 : 1);
}

/* ---- the parent, which checks the folder ----------------------------------------------------------------------- */

static uint64_t draws, seed;
static int draw(int n) { return (int)(pb_uniform(seed, draws++) * n); }

/* Checks the folder as the killed child left it: the checkpoint that the tracker file names must exist. */
static void check_tracker(const char *dir)
{
    char *text = NULL, name[64];
    size_t n;
    if (!is_there(dir, TRACKER)) return;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, in_folder(dir, TRACKER), 64, &text, &n));
    snprintf(name, sizeof name, "iter_%07llu/checkpoint.json", strtoull(text, NULL, 10));
    if (!is_there(dir, name)) fail_msg("the tracker names %s, which is not there", name);
    free(text);
}

/* Every checkpoint in the folder must be complete, the tracker must name one of them, and nothing else may be left.
 * Returns the iteration of the resume point. */
static uint64_t look(run *r, const char *dir, const pb_digest_text *at, uint64_t life)
{
    const pb_checkpoint_options o = options(life);
    pb_checkpoints *c = open_folder(dir, &o);
    char names[4096], number[24];
    snprintf(names, sizeof names, "%s", names_in(dir));
    for (char *save = NULL, *name = strtok_r(names, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
        if (strncmp(name, "iter_", 5) == 0) {
            snprintf(number, sizeof number, "%llu", strtoull(name + 5, NULL, 10));
            CHECK_OK(run_resume(r, c, number));
            CHECK_DIGEST(run_digest(r), at[r->p.iteration]);
        } else if (strcmp(name, TRACKER) != 0) {
            fail_msg("%s was left", name);
        }
    }
    CHECK_OK(run_resume(r, c, "latest"));
    if (r->p.iteration) CHECK_DIGEST(run_digest(r), at[r->p.iteration]);
    pb_checkpoints_close(c);
    return r->p.iteration;
}

/* Creates leftovers of an earlier process, which the child must remove. */
static void plant(const char *dir)
{
    mkdir(in_folder(dir, ".iter_0000099.1.tmp"), 0777);
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, in_folder(dir, ".iter_0000099.1.tmp/x"), "x", 1));
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, in_folder(dir, ".latest_.1.tmp"), "99", 2));
}

/* Runs one child; returns true when it was killed. */
static bool live_and_die(run *r, const char *dir, uint64_t life)
{
    const bool from_outside = draw(3) == 0, planted = draw(4) == 0;
    const int call = from_outside ? -1 : draw(planted ? 12 : CALLS), phase = draw(PHASES), wait = draw(4000);
    int status;
    if (planted) plant(dir);
    common->stage = STAGE_TIDYING;
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) child(r, dir, call, phase, life);
    if (from_outside) {
        usleep((useconds_t)wait);
        kill(pid, SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) fail_msg("life %d failed", (int)life);
    return WIFSIGNALED(status);
}

static void a_killed_process_leaves_a_usable_checkpoint(void **state)
{
    (void)state;
    run r, fresh; /* each child is forked from `fresh`, which has not taken a step */
    pb_digest_text at[ITERATIONS + LIFE + 1];
    int kills = 0, hit[STAGES] = {0};
    const char *dir = make_folder();
    run_open(&r, plain), run_open(&fresh, plain);
    at[0] = run_digest(&r);
    for (int i = 1; i <= ITERATIONS + LIFE; i++) {
        run_to(&r, NULL, (uint64_t)i);
        at[i] = run_digest(&r);
    }
    for (uint64_t life = 0; kills < KILLS; life++) {
        if (common->saved >= ITERATIONS) { /* start over in an empty folder */
            remove_folder(dir);
            assert_int_equal(mkdir(dir, 0777), 0);
            common->begun = common->saved = 0;
        }
        if (live_and_die(&fresh, dir, life)) hit[common->stage]++, kills++;
        check_tracker(dir);
        const uint64_t got = common->saved || common->begun ? look(&r, dir, at, life) : 0;
        if (got != common->saved && got != common->begun)
            fail_msg("life %d: resumed %d, saved %d, begun %d", (int)life, (int)got, (int)common->saved,
                     (int)common->begun);
        common->begun = common->saved = got;
    }
    print_message("%d kills, seed %llu:\n", kills, (unsigned long long)seed);
    for (int i = 0; i < STAGES; i++) print_message("%6d %s\n", hit[i], stage_names[i]);
    for (int i = 0; i < STAGES; i++)
        if (!hit[i]) fail_msg("no kill hit %s", stage_names[i]);
    run_close(&r), run_close(&fresh);
    remove_folder(dir);
}

int main(int argc, char **argv)
{
    /* A forked child cannot use OpenMP threads of its parent: run with one thread. */
    (void)argc;
    const char *threads = getenv("OMP_NUM_THREADS"), *chosen = getenv("CHECKPOINT_CRASH_SEED");
    if (!threads || strcmp(threads, "1") != 0) {
        setenv("OMP_NUM_THREADS", "1", 1);
        execv("/proc/self/exe", argv);
    }
    seed = chosen ? strtoull(chosen, NULL, 10) : 42;
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_killed_process_leaves_a_usable_checkpoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
