/* folder.c - manages the folder of all checkpoints: their names, the tracker, publishing and removing them.
 *
 * Names that begin with a dot are temporary: ".iter_0000004.PID.tmp" is being written, ".old" was replaced, ".drop" is
 * being removed. Only the process that holds the lock writes here, so temporary names that it finds are from a process
 * that has ended. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/checkpoint/checkpoint_impl.h"

#define ITERATION "iter_%07" PRIu64

/* ---- names of checkpoint folders ------------------------------------------------------------------------ */

pb_status pb_checkpoint_path(pb_path *out, const char *folder, const char *name)
{
    const int n = snprintf(out->text, sizeof out->text, "%s/%s", folder, name);
    if (n > 0 && (size_t)n < sizeof out->text) return PB_OK;
    return pb_fail(PB_EINVAL, "%.200s contains a path that is too long", folder);
}

pb_status pb_folder_path(const pb_checkpoints *c, uint64_t iteration, const char *suffix, pb_path *out)
{
    char name[80];
    if (suffix) snprintf(name, sizeof name, "." ITERATION ".%ld.%s", iteration, c->pid, suffix);
    else snprintf(name, sizeof name, ITERATION, iteration);
    return pb_checkpoint_path(out, c->dir, name);
}

bool pb_folder_exists(const char *path) { return access(path, F_OK) == 0; }

/* Returns the iteration in a name of n bytes such as "iter_0000004"; 0: the name is not one that pb_folder_path
 * writes. */
static uint64_t iteration_of(const char *name, size_t n)
{
    char again[40], *end;
    if (n < sizeof "iter_0000004" - 1 || n > 24 || memcmp(name, "iter_", 5) != 0) return 0;
    errno = 0;
    const uint64_t v = strtoull(name + 5, &end, 10);
    if (errno || end != name + n || v > INT64_MAX) return 0;
    snprintf(again, sizeof again, ITERATION, v);
    return strlen(again) == n && memcmp(again, name, n) == 0 ? v : 0;
}

static int is_iteration(const struct dirent *e) { return iteration_of(e->d_name, strlen(e->d_name)) > 0; }

static int is_temporary(const struct dirent *e)
{
    return strncmp(e->d_name, ".iter_", 6) == 0 || strncmp(e->d_name, ".latest_", 8) == 0;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

typedef struct names {
    struct dirent **e;
    int n;
} names;

static pb_status list(const pb_checkpoints *c, int (*filter)(const struct dirent *), names *out)
{
    out->n = scandir(c->dir, &out->e, filter, alphasort);
    return out->n < 0 ? pb_fail_errno(errno, "%s", c->dir) : PB_OK;
}

static void names_free(names *x)
{
    for (int i = 0; i < x->n; i++) free(x->e[i]);
    free(x->e);
}

pb_status pb_folder_list(const pb_checkpoints *c, pb_iterations *out)
{
    names found;
    PB_TRY(list(c, is_iteration, &found));
    uint64_t *at = malloc(((size_t)found.n + 1) * sizeof *at);
    for (int i = 0; at && i < found.n; i++) at[i] = iteration_of(found.e[i]->d_name, strlen(found.e[i]->d_name));
    if (at) qsort(at, (size_t)found.n, sizeof *at, ascending);
    if (at) *out = (pb_iterations){at, (size_t)found.n};
    names_free(&found);
    return at ? PB_OK : pb_fail(PB_ENOMEM, "%s: no memory for the list of checkpoints", c->dir);
}

/* ---- removing temporary files --------------------------------------------------------------------------- */

/* An ".old" folder is a checkpoint that was about to be replaced. If its replacement was not published, it gets its
 * final name back; otherwise *restored is false and the caller removes it. */
static pb_status restore(const pb_checkpoints *c, const char *name, const char *path, bool *restored)
{
    pb_path real;
    const char *dot = strchr(name + 1, '.');
    const uint64_t iteration = dot ? iteration_of(name + 1, (size_t)(dot - name - 1)) : 0;
    *restored = false;
    if (!iteration || strcmp(strrchr(name, '.'), ".old") != 0) return PB_OK;
    PB_TRY(pb_folder_path(c, iteration, NULL, &real));
    if (pb_folder_exists(real.text)) return PB_OK;
    PB_TRY(pb_disk_rename(c->o.disk, path, real.text));
    *restored = true;
    return pb_disk_sync_path(c->o.disk, c->dir);
}

static pb_status tidy_one(const pb_checkpoints *c, const char *name)
{
    pb_path path;
    bool restored;
    PB_TRY(pb_checkpoint_path(&path, c->dir, name));
    PB_TRY(restore(c, name, path.text, &restored));
    return restored ? PB_OK : pb_disk_remove(c->o.disk, path.text);
}

pb_status pb_folder_remove_leftovers(const pb_checkpoints *c)
{
    names found;
    PB_TRY(list(c, is_temporary, &found));
    pb_status s = PB_OK;
    for (int i = 0; s == PB_OK && i < found.n; i++) s = tidy_one(c, found.e[i]->d_name);
    names_free(&found);
    return s;
}

/* ---- reading the tracker -------------------------------------------------------------------------------- */

pb_status pb_folder_tracker(const pb_checkpoints *c, uint64_t *out)
{
    pb_path path;
    char *text = NULL, again[32];
    size_t n = 0;
    *out = 0;
    PB_TRY(pb_checkpoint_path(&path, c->dir, PB_CHECKPOINT_TRACKER));
    if (!pb_folder_exists(path.text)) return PB_OK;
    PB_TRY(pb_disk_read_file(c->o.disk, path.text, 64, &text, &n));
    errno = 0;
    const uint64_t v = strtoull(text, NULL, 10);
    const int m = snprintf(again, sizeof again, "%" PRIu64 "\n", v);
    const bool fine = v && v <= INT64_MAX && !errno && (size_t)m == n && memcmp(text, again, n) == 0;
    free(text);
    if (!fine) return pb_fail(PB_EINVAL, "%s is damaged: it must be one line with an iteration", path.text);
    *out = v;
    return PB_OK;
}

static pb_status write_tracker(const pb_checkpoints *c, uint64_t iteration)
{
    pb_path path, temporary;
    char name[64], text[32];
    snprintf(name, sizeof name, ".latest_.%ld.tmp", c->pid);
    const int n = snprintf(text, sizeof text, "%" PRIu64 "\n", iteration);
    PB_TRY(pb_checkpoint_path(&path, c->dir, PB_CHECKPOINT_TRACKER));
    PB_TRY(pb_checkpoint_path(&temporary, c->dir, name));
    PB_TRY(pb_disk_write_file(c->o.disk, temporary.text, text, (size_t)n));
    PB_TRY(pb_disk_rename(c->o.disk, temporary.text, path.text));
    return pb_disk_sync_path(c->o.disk, c->dir);
}

/* ---- publishing and removing checkpoints ---------------------------------------------------------------- */

pb_status pb_folder_publish(const pb_checkpoints *c, uint64_t iteration, const char *filled)
{
    pb_path real, old;
    PB_TRY(pb_folder_path(c, iteration, NULL, &real));
    PB_TRY(pb_folder_path(c, iteration, "old", &old));
    if (pb_folder_exists(real.text)) PB_TRY(pb_disk_rename(c->o.disk, real.text, old.text));
    PB_TRY(pb_disk_rename(c->o.disk, filled, real.text));
    PB_TRY(pb_disk_sync_path(c->o.disk, c->dir));
    return write_tracker(c, iteration);
}

pb_status pb_folder_drop(const pb_checkpoints *c, const pb_path *path, const uint64_t *iteration, size_t n)
{
    pb_path dropped;
    for (size_t i = 0; i < n; i++) {
        PB_TRY(pb_folder_path(c, iteration[i], "drop", &dropped));
        PB_TRY(pb_disk_rename(c->o.disk, path[i].text, dropped.text));
    }
    if (n) PB_TRY(pb_disk_sync_path(c->o.disk, c->dir));
    for (size_t i = 0; i < n; i++) {
        PB_TRY(pb_folder_path(c, iteration[i], "drop", &dropped));
        PB_TRY(pb_disk_remove(c->o.disk, dropped.text));
    }
    return PB_OK;
}
