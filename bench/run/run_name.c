/* run_name.c - derives a run's name from the current time, and creates its folder. */
#define _GNU_SOURCE
#include "bench/run/run_name.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char *const pb_run_files[PB_RUN_FILES] = {"results.csv", "samples.csv", "progress.csv", "processes.csv",
                                                "run.json"};

bool pb_is_run_file(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char run[PB_RUN_DIR_TEXT];
    const int dir = (int)(name - path);
    bool known = false;
    for (int i = 0; i < PB_RUN_FILES; i++) known |= strcmp(name, pb_run_files[i]) == 0;
    if (snprintf(run, sizeof run, "%.*srun.json", dir, path) >= (int)sizeof run) return false;
    return known && access(run, F_OK) == 0;
}

void pb_run_name_new(const char *what, const char *dir, pb_run_name *out)
{
    time_t now = time(NULL);
    struct tm utc;
    char stamp[32];
    if (getrandom(&out->mark, sizeof out->mark, 0) != sizeof out->mark) out->mark = (uint32_t)getpid();
    gmtime_r(&now, &utc);
    strftime(out->time_utc, sizeof out->time_utc, "%Y-%m-%dT%H:%M:%SZ", &utc);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(out->run_id, sizeof out->run_id, "%s-%.64s-%04x", stamp, what, out->mark >> 16);
    if (dir) snprintf(out->dir, sizeof out->dir, "%s", dir);
    else snprintf(out->dir, sizeof out->dir, "runs/%s", out->run_id);
}

/* Refuses a folder that has files already, because they would look like files of the run. */
static pb_status check_empty(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d) return pb_fail_errno(errno, "--out %s", dir);
    const struct dirent *e;
    do e = readdir(d);
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0));
    const bool empty = !e;
    closedir(d);
    return empty ? PB_OK : pb_fail(PB_EPATH, "--out %s: the folder is not empty; name a new one", dir);
}

pb_status pb_run_make_folder(const char *dir)
{
    char path[PB_RUN_DIR_TEXT];
    /* A path that fills the buffer is refused, because pb_run_name_new() may have truncated it. */
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path - 1)
        return pb_fail(PB_EINVAL, "--out %.60s...: the path is too long (%zu characters or more)", dir,
                       sizeof path - 1);
    for (char *slash = path + 1;; slash++) {
        slash += strcspn(slash, "/");
        char end = *slash;
        *slash = 0;
        if (mkdir(path, 0777) != 0 && errno != EEXIST) return pb_fail_errno(errno, "--out %s", path);
        if (!end) return check_empty(path);
        *slash = end;
    }
}
