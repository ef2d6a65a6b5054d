/* step_files.c - implements step_files.h. */
#include "bench/analyze/step_files.h"

#include <stdio.h>
#include <stdlib.h>

static int is_step_file(const struct dirent *e)
{
    long step;
    int rank, end = 0;
    return sscanf(e->d_name, "step%ld-rank%d.csv%n", &step, &rank, &end) == 2 && end && !e->d_name[end];
}

pb_status pb_step_files_list(const char *run, const char *sub, const char *advice, pb_step_files *out)
{
    *out = (pb_step_files){0};
    if (snprintf(out->folder, sizeof out->folder, "%s/%s", run, sub) >= (int)sizeof out->folder)
        return pb_fail(PB_EINVAL, "analyze: the path of the folder is too long");
    out->n = scandir(out->folder, &out->names, is_step_file, alphasort);
    if (out->n > 0) return PB_OK;
    if (out->n < 0) out->names = NULL, out->n = 0;
    pb_step_files_free(out);
    return pb_fail(PB_EINVAL, "%s: %s", run, advice);
}

void pb_step_files_path(const pb_step_files *f, int i, char path[PB_STEP_PATH])
{
    snprintf(path, PB_STEP_PATH, "%s/%s", f->folder, f->names[i]->d_name);
}

void pb_step_files_free(pb_step_files *f)
{
    for (int i = 0; i < f->n; i++) free(f->names[i]);
    free(f->names);
    *f = (pb_step_files){0};
}
