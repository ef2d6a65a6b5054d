/* log.c - the rows of a run as CSV. */
#include "trainer/program/log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/file.h"

static const char header[] =
#define LOG(name, format, what) #name ","
#include "trainer/program/log.def"
#undef LOG
    "status,note\n";

static pb_status fail(const char *path) { return pb_fail_errno(errno, "%s", path); }

/* Cuts the file behind the last row of a step up to `after`. */
static pb_status cut(FILE *f, const char *path, long after)
{
    char line[1024];
    if (!fgets(line, sizeof line, f)) return fputs(header, f) < 0 || fflush(f) != 0 ? fail(path) : PB_OK;
    if (strcmp(line, header) != 0)
        return pb_fail(PB_EINVAL, "%s: not a log of this program: its first line is another", path);
    long end = ftell(f);
    while (fgets(line, sizeof line, f) && strchr(line, '\n') && atol(line) <= after) end = ftell(f);
    if (end < 0 || fseek(f, end, SEEK_SET) != 0 || ftruncate(fileno(f), end) != 0) return fail(path);
    return PB_OK;
}

pb_status pb_log_open(const char *path, long after, pb_log *out)
{
    *out = (pb_log){.path = path};
    if (!path) return PB_OK;
    FILE *f;
    PB_TRY(pb_file_update(path, after < 0, &f));
    const pb_status s = cut(f, path, after);
    if (s == PB_OK) out->f = f;
    else fclose(f);
    return s;
}

pb_status pb_log_write(pb_log *l, const pb_log_row *r)
{
    if (!l->f) return PB_OK;
#define LOG(name, format, what)                                                                                        \
    if (isfinite(r->name)) fprintf(l->f, format, r->name);                                                             \
    putc(',', l->f);
#include "trainer/program/log.def"
#undef LOG
    fprintf(l->f, "%s,%s\n", r->status, r->note);
    return fflush(l->f) != 0 || ferror(l->f) ? fail(l->path) : PB_OK;
}

pb_status pb_log_close(pb_log *l)
{
    FILE *f = l->f;
    l->f = NULL;
    return f && fclose(f) != 0 ? fail(l->path) : PB_OK;
}
