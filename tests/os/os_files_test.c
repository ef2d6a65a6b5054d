/* os_files_test.c - tests of the file functions of os/: a written file is complete or absent, only regular files are
 * read, and every failure has the documented exit code. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/append.h"
#include "os/draft.h"
#include "os/file.h"
#include "os/memory.h"
#include "tests/test.h"

static char dir[64] = "/tmp/pb_door_XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[4][200];
    static int turn;
    char *at = path[turn++ % 4];
    snprintf(at, sizeof path[0], "%s/%s", dir, name);
    return at;
}

static void check_text(const char *path, const char *want)
{
    char *text = NULL;
    size_t n;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, path, 1 << 20, &text, &n));
    assert_string_equal(text, want);
    free(text);
}

static size_t drafts(void)
{
    glob_t found;
    const size_t n = glob(in_dir("*.partial"), 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (n) globfree(&found);
    return n;
}

static void statuses_have_exit_codes(void **state)
{
    (void)state;
    static const struct {
        pb_status s;
        int code;
    } want[] = {{PB_OK, 0},    {PB_EINVAL, 2},         {PB_EFORMAT, 2},   {PB_EPATH, 2}, {PB_ENOMEM, 125},
                {PB_EIO, 125}, {PB_EUNSUPPORTED, 125}, {PB_EDEVICE, 125}, {PB_EWRONG, 1}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) assert_int_equal(pb_status_exit(want[i].s), want[i].code);
    assert_int_equal(pb_status_exit((pb_status)99), 125);
    static const int users[] = {ENOENT, EACCES, EISDIR, ENOTDIR, EEXIST, EROFS, ENAMETOOLONG, ELOOP};
    static const int machines[] = {ENOSPC, EDQUOT, EIO, EFBIG, EMFILE, ENFILE, ENOMEM, ENOLCK};
    for (size_t i = 0; i < 8; i++) assert_int_equal(pb_fail_errno(users[i], "p"), PB_EPATH);
    for (size_t i = 0; i < 8; i++) assert_int_equal(pb_fail_errno(machines[i], "p"), PB_EIO);
    assert_int_equal(pb_fail_errno(ENOSPC, "file %d", 3), PB_EIO);
    assert_string_equal(pb_error(), "file 3: No space left on device");
}

static void only_regular_files_are_read(void **state)
{
    (void)state;
    FILE *f = NULL;
    pb_map m = {0};
    char *text = NULL;
    size_t n;
    const char *fifo = in_dir("fifo"), *sock = in_dir("socket");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s", sock);
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&name, sizeof name), 0);
    close(s);
    const struct {
        const char *path, *line;
    } bad[] = {{fifo, "is a FIFO, but must be a regular file"},
               {"/dev/zero", "/dev/zero is a device, but must be a regular file"},
               {dir, "is a folder, but must be a regular file"},
               {sock, "socket: "},
               {in_dir("none"), "none: No such file or directory"}};
    alarm(20); /* opening a FIFO for reading would block until a writer opens it */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(pb_file_read(bad[i].path, &f), PB_EPATH, bad[i].line);
        CHECK_FAILS(pb_map_open(bad[i].path, &m), PB_EPATH, bad[i].line);
        CHECK_FAILS(pb_disk_read_file(&pb_disk_posix, bad[i].path, 9, &text, &n), PB_EPATH, bad[i].line);
        if (i < 4) CHECK_FAILS(pb_file_replace(bad[i].path, "x", 1), PB_EPATH, "but must be a regular file");
    }
    alarm(0);
    assert_int_equal(drafts(), 0);
}

/* A replacement of read: every second call is interrupted by a signal, the others return at most 3 bytes. */
static ssize_t interrupted_read(void *self, int fd, void *to, size_t n)
{
    int *calls = self;
    errno = EINTR;
    return (*calls)++ % 2 == 0 ? -1 : read(fd, to, n < 3 ? n : 3);
}

static void a_signal_does_not_end_a_read(void **state)
{
    (void)state;
    int calls = 0;
    pb_disk disk = pb_disk_posix;
    char *text = NULL;
    size_t n;
    const char *path = in_dir("slow");
    CHECK_OK(pb_file_replace(path, "ten bytes.", 10));
    disk.self = &calls, disk.read = interrupted_read;
    CHECK_OK(pb_disk_read_file(&disk, path, 100, &text, &n));
    assert_int_equal(n, 10);
    assert_string_equal(text, "ten bytes.");
    assert_int_equal(calls, 8);
    free(text);
}

static void the_old_file_remains_until_the_new_one_is_complete(void **state)
{
    (void)state;
    pb_draft d;
    const char *path = in_dir("file");
    CHECK_OK(pb_file_replace(path, "old", 3));
    assert_int_equal(chmod(path, 0640), 0);
    CHECK_OK(pb_draft_open(&pb_disk_posix, path, &d));
    CHECK_OK(pb_draft_put(&d, "new", 3));
    check_text(path, "old");
    assert_int_equal(drafts(), 1);
    pb_draft_drop(&d);
    pb_draft_drop(&d); /* dropping a draft twice is allowed */
    assert_int_equal(drafts(), 0);
    check_text(path, "old");
    CHECK_OK(pb_file_replace(path, "new", 3));
    check_text(path, "new");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640); /* a replaced file keeps its permissions */
    CHECK_FAILS(pb_file_create(path, "x", 1), PB_EPATH, "File exists");
    check_text(path, "new");
    CHECK_OK(pb_file_create(in_dir("created"), "x", 1));
    assert_int_equal(drafts(), 0);
}

/* An append is complete or has no effect: with a file size limit of 8 bytes, the first 6 bytes fit and 6 more do
 * not. */
static void appends_are_complete_or_have_no_effect(void **state)
{
    (void)state;
    int fd = -1;
    const char *path = in_dir("rows"), *fifo = in_dir("log");
    struct rlimit had, small = {.rlim_cur = 8, .rlim_max = RLIM_INFINITY};
    assert_int_equal(mkfifo(fifo, 0600), 0);
    CHECK_FAILS(pb_append(path, "x", 1), PB_EPATH, "No such file");
    CHECK_OK(pb_append_open(path, true, &fd));
    close(fd);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &had), 0);
    small.rlim_max = had.rlim_max;
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_OK(pb_append(path, "first\n", 6));
    CHECK_FAILS(pb_append(path, "second", 6), PB_EIO, "rows: File too large");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &had), 0);
    signal(SIGXFSZ, before);
    check_text(path, "first\n");
    CHECK_OK(pb_append_cut(path, 6));
    check_text(path, "first\n");
    CHECK_OK(pb_append_cut(path, 2));
    check_text(path, "fi");
    alarm(20); /* opening a FIFO for writing would block until a reader opens it */
    CHECK_FAILS(pb_append_open(fifo, true, &fd), PB_EPATH, "is a FIFO");
    CHECK_FAILS(pb_append_open("/dev/full", true, &fd), PB_EPATH, "is a device");
    CHECK_FAILS(pb_append(dir, "x", 1), PB_EPATH, "Is a directory");
    CHECK_FAILS(pb_append_cut("/dev/null", 0), PB_EPATH, "is a device");
    alarm(0);
}

/* descriptor through which "another process" appends to the written file; -1: write() works as usual */
static int other = -1;

ssize_t __real_write(int fd, const void *from, size_t n);
ssize_t __wrap_write(int fd, const void *from, size_t n);
/* Replaces write(): the first call writes only 2 bytes; in the second call another process appends, and then the disk
 * is full. */
ssize_t __wrap_write(int fd, const void *from, size_t n)
{
    static int calls;
    if (other < 0 || fd == other) return __real_write(fd, from, n);
    if (calls++ % 2 == 0) return __real_write(fd, from, 2);
    if (__real_write(other, "other\n", 6) != 6) return -1;
    errno = ENOSPC;
    return -1;
}

/* A failed append does not cut off what another process has appended meanwhile. */
static void appended_bytes_of_another_process_are_kept(void **state)
{
    (void)state;
    int fd = -1;
    const char *path = in_dir("both");
    CHECK_OK(pb_append_open(path, true, &fd));
    CHECK_OK(pb_append_put(fd, path, "first\n", 6));
    CHECK_OK(pb_append_open(path, false, &other));
    CHECK_FAILS(pb_append_put(fd, path, "second\n", 7), PB_EIO,
                "both: an incomplete line was written; it is not removed");
    close(other);
    other = -1;
    close(fd);
    check_text(path, "first\nseother\n");
}

/* Writes the three files of a cgroup. max: text of memory.max. */
static void make_group(const char *name, const char *max, const char *current, const char *stat)
{
    char path[400];
    const char *const file[] = {"memory.max", "memory.current", "memory.stat"}, *const text[] = {max, current, stat};
    CHECK_OK(pb_make_folder(in_dir(name)));
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", in_dir(name), file[i]);
        CHECK_OK(pb_file_replace(path, text[i], strlen(text[i])));
    }
}

/* The memory limit of a cgroup is the smallest of its own and its ancestors' limits. */
static void limits_of_ancestors_count(void **state)
{
    (void)state;
    static const struct {
        const char *top, *middle, *own; /* memory.max of g, g/a and g/a/b; 100 bytes are used, 40 of them page cache */
        double left;
    } trees[] = {{"max\n", "max\n", "1000\n", 940},  {"max\n", "1000\n", "max\n", 940},
                 {"1000\n", "max\n", "max\n", 940},  {"500\n", "1000\n", "2000\n", 440},
                 {"2000\n", "500\n", "1000\n", 440}, {"max\n", "max\n", "max\n", INFINITY}};
    const char *const stat = "anon 60\nfile 40\n";
    char list[200], root[200];
    snprintf(list, sizeof list, "%s", in_dir("list")), snprintf(root, sizeof root, "%s", in_dir("g"));
    const char *const places[] = {"1:name=systemd:/x\n0::/a/b\n", "0::/a/b/missing\n"};
    for (size_t i = 0; i < sizeof trees / sizeof *trees; i++)
        for (size_t k = 0; k < 2; k++) {
            make_group("g", trees[i].top, "100\n", stat);
            make_group("g/a", trees[i].middle, "100\n", stat);
            make_group("g/a/b", trees[i].own, "100\n", stat);
            CHECK_OK(pb_file_replace(list, places[k], strlen(places[k])));
            assert_true(pb_memory_left_in_groups(list, root) == trees[i].left);
        }
    make_group("g", "300\n", "100\n", stat);
    CHECK_OK(pb_file_replace(list, "0::/\n", 5));
    assert_true(pb_memory_left_in_groups(list, root) == 240);
    assert_true(pb_memory_left_in_groups(in_dir("none"), root) == 240); /* no list: the root alone */
    assert_true(isinf(pb_memory_left_in_groups(list, in_dir("none"))));
}

/* Text from a file cannot send control sequences to a terminal. */
static void messages_have_no_control_characters(void **state)
{
    (void)state;
    pb_fail(PB_EINVAL, "a\x1b[2J b\n c\xc2\x9b d\xc3\xa9");
    assert_string_equal(pb_error(), "a?[2J b? c?? d\xc3\xa9");
    pb_fail_errno(ENOENT, "x\r");
    assert_string_equal(pb_error(), "x?: No such file or directory");
}

static void a_symbolic_link_means_its_target(void **state)
{
    (void)state;
    const char *file = in_dir("behind"), *link = in_dir("link");
    struct stat st;
    CHECK_OK(pb_file_replace(file, "old", 3));
    assert_int_equal(symlink(file, link), 0);
    CHECK_OK(pb_file_replace(link, "new", 3));
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    check_text(file, "new");
}

/* Several processes replace one file repeatedly: no write fails, and every reader sees one of the texts in full. */
static void two_writers_do_not_disturb_each_other(void **state)
{
    (void)state;
    enum { WRITERS = 4, TIMES = 60, LENGTH = 20000 };
    const char *path = in_dir("shared");
    pid_t pid[WRITERS];
    CHECK_OK(pb_file_replace(path, "a", 1));
    for (int w = 0; w < WRITERS; w++) {
        pid[w] = fork();
        if (pid[w] > 0) continue;
        char text[LENGTH];
        memset(text, 'a' + w, sizeof text);
        for (int i = 0; i < TIMES; i++)
            if (pb_file_replace(path, text, sizeof text) != PB_OK) _exit(1);
        _exit(0);
    }
    for (int alive = WRITERS, status; alive > 0;) {
        char *text = NULL;
        size_t n;
        CHECK_OK(pb_disk_read_file(&pb_disk_posix, path, LENGTH, &text, &n));
        assert_true(n == 1 || n == LENGTH);
        for (size_t i = 0; i < n; i++) assert_int_equal(text[i], text[0]);
        free(text);
        while (waitpid(-1, &status, WNOHANG) > 0) assert_int_equal(status, 0), alive--;
    }
    assert_int_equal(drafts(), 0);
}

/* The next draft removes the temporary file of a killed writer, but not one whose writer still lives. */
static void temporary_files_of_killed_writers_are_removed(void **state)
{
    (void)state;
    pb_draft alive, next;
    const char *path = in_dir("again"), *foreign = in_dir("again.too.longer.partial");
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, in_dir("again.abcdef.partial"), "x", 1));
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, foreign, "x", 1));
    CHECK_OK(pb_draft_open(&pb_disk_posix, path, &alive));
    assert_int_equal(access(in_dir("again.abcdef.partial"), F_OK), -1);
    CHECK_OK(pb_draft_open(&pb_disk_posix, path, &next));
    assert_int_equal(access(alive.temporary, F_OK), 0);
    pb_draft_drop(&next);
    CHECK_OK(pb_draft_put(&alive, "y", 1));
    CHECK_OK(pb_draft_keep(&alive));
    check_text(path, "y");
    check_text(foreign, "x");
    assert_int_equal(unlink(foreign), 0);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return pb_disk_remove(&pb_disk_posix, dir) == PB_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_have_exit_codes),
        cmocka_unit_test(only_regular_files_are_read),
        cmocka_unit_test(a_signal_does_not_end_a_read),
        cmocka_unit_test(the_old_file_remains_until_the_new_one_is_complete),
        cmocka_unit_test(appends_are_complete_or_have_no_effect),
        cmocka_unit_test(appended_bytes_of_another_process_are_kept),
        cmocka_unit_test(limits_of_ancestors_count),
        cmocka_unit_test(messages_have_no_control_characters),
        cmocka_unit_test(a_symbolic_link_means_its_target),
        cmocka_unit_test(two_writers_do_not_disturb_each_other),
        cmocka_unit_test(temporary_files_of_killed_writers_are_removed),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
