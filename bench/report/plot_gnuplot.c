/* plot_gnuplot.c - runs gnuplot in a temporary folder that holds only the files of one figure, and reads the
 * picture. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report/gnuplot.h"
#include "os/disk.h"
#include "os/file.h"

enum { MOST_PICTURE = 256 << 20 };
#define SETTINGS "settings.gp"
#define SCRIPT   "script.gp"
#define DATA     "data"
#define PICTURE  "picture"

static pb_status put(const char *folder, const char *name, const void *bytes, size_t n)
{
    char *path;
    PB_TRY(pb_path_join(folder, name, &path));
    const pb_status s = pb_disk_write_file(&pb_disk_posix, path, bytes, n);
    free(path);
    return s;
}

static pb_status put_files(const pb_drawing *d, const char *folder)
{
    char settings[1024];
    const int n = snprintf(settings, sizeof settings, "data='%s'; out='%s'; term='%s'; variants=%d; heading='%s'\n",
                           DATA, PICTURE, d->term, d->variants, d->heading);
    PB_TRY(put(folder, SETTINGS, settings, (size_t)n));
    PB_TRY(put(folder, SCRIPT, d->script, d->script_n));
    return put(folder, DATA, d->data, d->data_n);
}

/* Replaces the child process by gnuplot. The option -d skips the init files of the system and of the user. */
static _Noreturn void become_gnuplot(const char *program, const char *folder)
{
    const int none = open("/dev/null", O_RDONLY);
    if (none >= 0) dup2(none, STDIN_FILENO);
    signal(SIGPIPE, SIG_DFL), signal(SIGXFSZ, SIG_DFL);
    unsetenv("GNUPLOT_LIB");
    if (chdir(folder) != 0) _exit(126);
    execlp(program, program, "-d", SETTINGS, SCRIPT, (char *)NULL);
    _exit(errno == ENOENT ? 127 : 126);
}

static pb_status run(const pb_drawing *d, const char *folder)
{
    int status;
    const pid_t pid = fork();
    if (pid < 0) return pb_fail(PB_EIO, "plot: fork: %s", strerror(errno));
    if (pid == 0) become_gnuplot(d->gnuplot, folder);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return pb_fail(PB_EIO, "plot: waitpid: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return PB_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return pb_fail(PB_EDEVICE, "plot: the program %s was not found: apt-get install gnuplot-nox", d->gnuplot);
    return pb_fail(PB_EDEVICE, "plot: %s failed on %s.gp", d->gnuplot, d->name);
}

/* True if the picture is complete. It is checked because gnuplot exits with 0 even if the disk was full. */
static bool is_whole(const char *term, const char *bytes, size_t n)
{
    static const char svg[] = "</svg>", png[] = "IEND\xae\x42\x60\x82";
    const char *end = strcmp(term, "svg") == 0 ? svg : png;
    while (n && strchr("\n\r ", bytes[n - 1])) n--;
    return n >= strlen(end) && memcmp(bytes + n - strlen(end), end, strlen(end)) == 0;
}

static pb_status read_back(const pb_drawing *d, const char *folder, char **picture, size_t *n)
{
    char *path, *bytes;
    PB_TRY(pb_path_join(folder, PICTURE, &path));
    if (access(path, F_OK) != 0) {
        free(path);
        return pb_fail(PB_EDEVICE, "plot: %s wrote no picture from %s.gp", d->gnuplot, d->name);
    }
    const pb_status s = pb_disk_read_file(&pb_disk_posix, path, MOST_PICTURE, &bytes, n);
    free(path);
    PB_TRY(s);
    if (!is_whole(d->term, bytes, *n)) {
        free(bytes);
        return pb_fail(PB_EIO, "plot: %s wrote an incomplete picture to %s: the disk may be full", d->gnuplot, folder);
    }
    *picture = bytes;
    return PB_OK;
}

/* Removes the temporary folder. If s is a failure, its message is kept: a failure to remove the folder would overwrite
 * it. */
static void remove_folder(const char *folder, pb_status s)
{
    char why[512];
    snprintf(why, sizeof why, "%s", pb_error());
    (void)pb_disk_remove(&pb_disk_posix, folder);
    if (s != PB_OK) pb_fail(s, "%s", why);
}

pb_status pb_gnuplot_draw(const pb_drawing *d, char **picture, size_t *n)
{
    const char *parent = getenv("TMPDIR");
    char *folder;
    PB_TRY(pb_path_join(parent && *parent ? parent : "/tmp", "pb-plot-XXXXXX", &folder));
    pb_status s = mkdtemp(folder) ? PB_OK : pb_fail_errno(errno, "%s", folder);
    if (s == PB_OK) {
        s = put_files(d, folder);
        if (s == PB_OK) s = run(d, folder);
        if (s == PB_OK) s = read_back(d, folder, picture, n);
        remove_folder(folder, s);
    }
    free(folder);
    return s;
}
