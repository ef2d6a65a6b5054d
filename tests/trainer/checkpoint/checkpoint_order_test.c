/* checkpoint_order_test.c - tests the order in which the files of a checkpoint are written, synced and renamed. Killing
 * a process cannot test this order, because only a power loss destroys data that was written but not synced. A model of
 * the disk therefore tracks which data a power loss could still destroy. */
#include <errno.h>
#include <fcntl.h>

#include "tests/trainer/checkpoint/checkpoint_fixture.h"

enum { MOST = 256, PATHS = 300 }; /* MOST: maximum number of paths, and of descriptors; PATHS: bytes of a path */
/* A disk that records which data a power loss could destroy. dirty: paths whose contents (the bytes of a file, the
 * names in a folder) are not durable yet. of: the path of each open descriptor. */
typedef struct model {
    pb_disk table;
    char dirty[MOST][PATHS];
    char of[MOST][PATHS];
    /* Since the folder was last synced: published: a checkpoint got its final name; tracked: the tracker was replaced;
     * dropped: a checkpoint was renamed for removal. */
    bool published, tracked, dropped;
    int publishes, trackers, drops, trials;
    const char *dir;
} model;

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }
static const char *last_part(const char *path) { return strrchr(path, '/') + 1; }

static void parent_of(const char *path, char *out)
{
    snprintf(out, PATHS, "%s", path);
    *strrchr(out, '/') = 0;
}

static bool is_dirty(const model *m, const char *path)
{
    for (int i = 0; i < MOST; i++)
        if (strcmp(m->dirty[i], path) == 0) return true;
    return false;
}

static void set_dirty(model *m, const char *path)
{
    if (is_dirty(m, path)) return;
    for (int i = 0; i < MOST; i++)
        if (!*m->dirty[i]) {
            snprintf(m->dirty[i], PATHS, "%s", path);
            return;
        }
    fail_msg("too many paths");
}

static void set_clean(model *m, const char *path)
{
    for (int i = 0; i < MOST; i++)
        if (strcmp(m->dirty[i], path) == 0) *m->dirty[i] = 0;
    if (strcmp(path, m->dir) == 0) m->published = m->tracked = m->dropped = false;
}

static void set_parent_dirty(model *m, const char *path)
{
    char parent[PATHS];
    parent_of(path, parent);
    set_dirty(m, parent);
}

/* Returns whether `path` is `root` or inside it. */
static bool is_within(const char *path, const char *root)
{
    const size_t n = strlen(root);
    return begins(path, root) && (!path[n] || path[n] == '/');
}

/* A file or folder must be durable before it is renamed to its final name. */
static void check_durable(const model *m, const char *root)
{
    for (int i = 0; i < MOST; i++)
        if (*m->dirty[i] && is_within(m->dirty[i], root)) fail_msg("%s is renamed before it is durable", m->dirty[i]);
}

/* The checkpoint that the tracker will name must exist. */
static void check_named(const model *m, const char *tracker)
{
    char *text = NULL, name[64];
    size_t n;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, tracker, 64, &text, &n));
    snprintf(name, sizeof name, "iter_%07llu/checkpoint.json", strtoull(text, NULL, 10));
    if (!is_there(m->dir, name)) fail_msg("the tracker names %s, which is not there", name);
    free(text);
}

/* The resume point must not be removed. */
static void check_not_named(const model *m, const char *folder)
{
    char *text = NULL, name[64];
    size_t n;
    if (!is_there(m->dir, TRACKER)) return;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, in_folder(m->dir, TRACKER), 64, &text, &n));
    snprintf(name, sizeof name, "iter_%07llu", strtoull(text, NULL, 10));
    if (strcmp(last_part(folder), name) == 0) fail_msg("%s is removed, but the tracker names it", name);
    free(text);
}

static int model_open(void *self, const char *path, int flags)
{
    model *m = self;
    const bool made = flags & O_CREAT && access(path, F_OK) != 0;
    const int fd = pb_disk_posix.open(NULL, path, flags);
    if (fd < 0) return fd;
    assert_true(fd < MOST);
    snprintf(m->of[fd], PATHS, "%s", path);
    if (made) set_parent_dirty(m, path);
    if (made && begins(last_part(path), ".lock")) return fd;
    if (flags & O_CREAT) set_dirty(m, path);
    if (flags & O_CREAT && !strstr(path + strlen(m->dir), "/.")) fail_msg("%s is written under its own name", path);
    return fd;
}

static ssize_t model_read(void *self, int fd, void *to, size_t n)
{
    (void)self;
    return read(fd, to, n);
}

static ssize_t model_write(void *self, int fd, const void *from, size_t n)
{
    model *m = self;
    set_dirty(m, m->of[fd]);
    return write(fd, from, n);
}

static int model_fsync(void *self, int fd)
{
    model *m = self;
    set_clean(m, m->of[fd]);
    return 0;
}

static int model_close(void *self, int fd)
{
    (void)self;
    return close(fd);
}

static int model_rename(void *self, const char *from, const char *to)
{
    model *m = self;
    const char *name = last_part(to);
    if (begins(name, "iter_")) {
        check_durable(m, from);
        m->published = true;
        m->publishes++;
    } else if (strcmp(name, TRACKER) == 0) {
        check_durable(m, from);
        if (m->published) fail_msg("the tracker moves before the checkpoint's name is durable");
        check_named(m, from);
        m->tracked = true;
        m->trackers++;
    } else if (strstr(name, ".drop")) {
        if (m->tracked || m->published) fail_msg("%s goes before the tracker is durable", from);
        check_not_named(m, from);
        m->dropped = true;
        *(strstr(last_part(from), ".tmp") ? &m->trials : &m->drops) += 1;
    } else if (!strcmp(name, "state.safetensors")) {
        check_durable(m, from);
    } else {
        fail_msg("%s becomes %s", from, to);
    }
    for (int i = 0; i < MOST; i++)
        if (*m->dirty[i] && is_within(m->dirty[i], from)) {
            char rest[PATHS];
            snprintf(rest, sizeof rest, "%s", m->dirty[i] + strlen(from));
            *m->dirty[i] = 0;
            char moved[2 * PATHS];
            snprintf(moved, sizeof moved, "%s%s", to, rest);
            set_dirty(m, moved);
        }
    set_parent_dirty(m, from), set_parent_dirty(m, to);
    return rename(from, to);
}

static void going(model *m, const char *path)
{
    if (m->dropped) fail_msg("%s is removed before its folder's other name is durable", path);
    if (!strstr(path + strlen(m->dir), "/.")) fail_msg("%s is removed under its own name", path);
    set_clean(m, path);
    set_parent_dirty(m, path);
}

static int model_unlink(void *self, const char *path)
{
    going(self, path);
    return unlink(path);
}

static int model_mkdir(void *self, const char *path)
{
    if (strcmp(path, ((model *)self)->dir) != 0) {
        set_parent_dirty(self, path);
        set_dirty(self, path);
    }
    return mkdir(path, 0777);
}

static int model_rmdir(void *self, const char *path)
{
    going(self, path);
    return rmdir(path);
}

static pb_status export_something(void *self, pb_model *m, const char *dir)
{
    (void)m;
    char path[PATHS];
    const pb_disk *disk = self;
    int fd;
    snprintf(path, sizeof path, "%s/adapter", dir);
    if (disk->mkdir(disk->self, path) != 0) return pb_fail(PB_EIO, "%s", path);
    snprintf(path, sizeof path, "%s/adapter/config.json", dir);
    PB_TRY(pb_disk_open(disk, path, O_WRONLY | O_CREAT, &fd));
    return pb_disk_close(disk, fd, path, pb_disk_put(disk, fd, path, "{}", 2)); /* exporters do not sync */
}

static void check_order(bool background)
{
    static model m;
    run r;
    const char *dir = make_folder();
    m = (model){.dir = dir,
                .table = {&m, model_open, model_read, model_write, model_fsync, model_close, model_rename, model_unlink,
                          model_mkdir, model_rmdir}};
    const pb_checkpoint_options o = {.save_interval = 2,
                                     .retain_interval = 4,
                                     .disk = &m.table,
                                     .extra = export_something,
                                     .extra_self = &m.table,
                                     .background = background};
    pb_checkpoints *c = open_folder(dir, &o);
    run_open(&r, plain);
    for (uint64_t i = 1; i <= 8; i++) {
        run_to(&r, c, i);
        if (m.published || m.tracked) fail_msg("the save of %d returned before it was durable", (int)i);
    }
    assert_string_equal(names_in(dir), "iter_0000004/ iter_0000008/ " TRACKER " ");
    assert_int_equal(m.publishes, 4);
    assert_int_equal(m.trackers, 4);
    assert_int_equal(m.drops, 2);
    assert_int_equal(m.trials, 1);
    pb_checkpoints_close(c);
    run_close(&r);
    remove_folder(dir);
}

static void checkpoints_are_durable_before_they_are_named(void **state)
{
    (void)state;
    check_order(false);
}

static void a_thread_keeps_the_order(void **state)
{
    (void)state;
    check_order(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(checkpoints_are_durable_before_they_are_named),
                                       cmocka_unit_test(a_thread_keeps_the_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
