/* log.c - opens and writes the CSV log of a run (--log), and truncates it when a run resumes. */
#include "train/log.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/file.h"

static const char header[] =
#define LOG(name, format, what) #name ","
#include "train/log.def"
#undef LOG
    "status,note\n";

static pb_status fail(const char *path) { return pb_fail_errno(errno, "%s", path); }

static pb_status is_not_ours(const char *path)
{
    return pb_fail(PB_EINVAL, "%s is not a log of train --log: its first line is not the log's header", path);
}

/* Removes the rows of steps later than `after`, and an incomplete last row. Writes the header if the file is empty. */
static pb_status truncate_after(FILE *f, const char *path, long after)
{
    char line[1024];
    if (!fgets(line, sizeof line, f)) return fputs(header, f) < 0 || fflush(f) != 0 ? fail(path) : PB_OK;
    if (strcmp(line, header) != 0) return is_not_ours(path);
    long end = ftell(f);
    while (fgets(line, sizeof line, f) && strchr(line, '\n') && atol(line) <= after) end = ftell(f);
    if (end < 0 || fseek(f, end, SEEK_SET) != 0 || ftruncate(fileno(f), end) != 0) return fail(path);
    return PB_OK;
}

static bool has_rows(const char *path)
{
    char line[1024];
    FILE *f;
    if (access(path, F_OK) != 0 || pb_file_read(path, &f) != PB_OK) return false;
    const bool ours = fgets(line, sizeof line, f) && strcmp(line, header) == 0, rows = ours && fgets(line, 2, f);
    fclose(f);
    return rows;
}

/* Renames an existing log to the first free name PATH.1, PATH.2, ... Used when a run resumes without a checkpoint and
 * therefore starts at step 0: the rows may be from a run that ended before its first checkpoint, or from an unrelated
 * run, so they must not be deleted. */
static pb_status rename_old_log(const char *path)
{
    char to[PATH_MAX];
    for (int i = 1; i < 1000; i++) {
        if (snprintf(to, sizeof to, "%s.%d", path, i) >= (int)sizeof to) break;
        if (link(path, to) != 0) {
            if (errno == EEXIST) continue;
            return fail(path);
        }
        if (unlink(path) != 0) return fail(path);
        fprintf(stderr, "train: note: the run starts at step 0, so the existing log %s was renamed to %s\n", path, to);
        return PB_OK;
    }
    return pb_fail(PB_EPATH, "%s has rows of an earlier run and cannot be renamed: the names with .1 to .999 exist",
                   path);
}

static pb_status exists_already(const char *path)
{
    return pb_fail(PB_EPATH, "--log %s exists already: give a new name, or --resume to continue it", path);
}

/* A new file can be made if its folder can be written, or will exist. */
static pb_status check_folder(const char *path, const char *const *made, size_t n)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const int length = slash ? (int)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s", !slash ? 1 : length ? length : 1, !slash ? "." : length ? path : "/");
    if (access(folder, W_OK | X_OK) == 0) return PB_OK;
    const pb_status s = fail(path);
    for (size_t i = 0; i < n; i++)
        if (made[i] && access(made[i], F_OK) != 0 && strcmp(made[i], folder) == 0) return PB_OK;
    return s;
}

pb_status pb_log_check(const char *path, long after, const char *const *made, size_t n)
{
    char line[1024];
    FILE *f;
    if (!path) return PB_OK;
    if (access(path, F_OK) != 0) return check_folder(path, made, n);
    if (after < 0) return exists_already(path);
    if (access(path, R_OK | W_OK) != 0) return fail(path);
    PB_TRY(pb_file_read(path, &f));
    const bool ours = !fgets(line, sizeof line, f) || strcmp(line, header) == 0;
    fclose(f);
    return ours ? PB_OK : is_not_ours(path);
}

pb_status pb_log_open(const char *path, long after, pb_log *out)
{
    *out = (pb_log){.path = path};
    if (!path) return PB_OK;
    FILE *f;
    if (after == 0 && has_rows(path)) PB_TRY(rename_old_log(path));
    if (after < 0 && access(path, F_OK) == 0) return exists_already(path);
    PB_TRY(pb_file_update(path, after < 0, &f));
    const pb_status s = truncate_after(f, path, after);
    if (s == PB_OK) out->f = f;
    else fclose(f);
    return s;
}

static void format_row(FILE *f, const pb_log_row *r)
{
#define LOG(name, format, what)                                                                                        \
    if (isfinite(r->name)) fprintf(f, format, r->name);                                                                \
    putc(',', f);
#include "train/log.def"
#undef LOG
    fprintf(f, "%s,", r->status);
    for (const char *s = r->note; *s; s++) putc(*s == ',' ? ';' : *s, f); /* fields of the log are never quoted */
    putc('\n', f);
}

pb_status pb_log_write(pb_log *l, const pb_log_row *r)
{
    char row[1024];
    if (!l->f) return PB_OK;
    FILE *f = fmemopen(row, sizeof row, "w");
    if (!f) return pb_fail(PB_ENOMEM, "%s: no memory for a row", l->path);
    format_row(f, r);
    const long n = ftell(f);
    if (fclose(f) != 0 || n < 0 || n >= (long)sizeof row) return pb_fail(PB_EIO, "%s: a row is too long", l->path);
    const int fd = fileno(l->f);
    const off_t end = lseek(fd, 0, SEEK_END);
    long done = 0;
    while (done < n) {
        const ssize_t wrote = write(fd, row + done, (size_t)(n - done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) break;
        done += wrote;
    }
    if (done == n) return PB_OK;
    const int why = errno;
    if (end >= 0 && ftruncate(fd, end) != 0) return fail(l->path); /* half a row would remain */
    return pb_fail_errno(why, "%s", l->path);
}

pb_status pb_log_close(pb_log *l)
{
    FILE *f = l->f;
    l->f = NULL;
    return f && fclose(f) != 0 ? fail(l->path) : PB_OK;
}
