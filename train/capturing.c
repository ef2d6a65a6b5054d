/* capturing.c - implements capturing.h. */
#include "train/capturing.h"

#include <stdio.h>

#include "os/file.h"

static pb_status open_folder(const pb_job *j)
{
    const pb_train_options *o = j->o;
    if (!o->capture_nan) return PB_OK;
    if (strlen(o->capture_nan) > PB_CAPTURING_PATH / 2)
        return pb_fail(PB_EINVAL, "--capture-nan: the path of the folder is longer than %d bytes",
                       PB_CAPTURING_PATH / 2);
    return pb_make_folder(o->capture_nan);
}

pb_status pb_capturing_open(const pb_job *j) { return pb_job_agree(j, "the folder of captures", open_folder(j)); }

pb_status pb_capturing_step(pb_job *j, long step, const pb_matrix_fault *f, char path[PB_CAPTURING_PATH])
{
    pb_capture *c;
    *path = 0;
    if (!j->o->capture_nan || !f->name) return PB_OK;
    PB_TRY(pb_matrix_fault_capture(j->trainer, f, (size_t)j->o->capture_limit << 20, &c));
    snprintf(path, PB_CAPTURING_PATH, "%s/step%ld-rank%d-%s.safetensors", j->o->capture_nan, step, j->rank, f->name);
    pb_status s = pb_capture_note(c, PB_NOTE_program, "train %s", pb_train_commit());
    if (s == PB_OK) s = pb_capture_note(c, PB_NOTE_step, "%ld", step);
    if (s == PB_OK) s = pb_capture_note(c, PB_NOTE_rank, "%d", j->rank);
    if (s == PB_OK) s = pb_capture_write(c, &pb_disk_posix, path);
    pb_capture_close(c);
    return s;
}
