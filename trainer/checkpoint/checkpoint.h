/* checkpoint.h - training that can be killed at any instant and goes on from its last checkpoint, bit for bit.
 *
 *     DIR/iter_0000004/state.safetensors       every trained parameter: w.NAME, m.NAME, v.NAME in f32 (w is the
 *                                              master where there is one), and the optimiser's counters
 *     DIR/iter_0000004/checkpoint.json         progress, configuration, size and XXH3-128 of every file and of itself
 *     DIR/latest_checkpointed_iteration.txt    the tracker: which of them is the resume point
 *     DIR/.lock                                held by the process that writes here
 *
 * A checkpoint is written under a name that begins with a dot, and made durable file by file; then its folder gets its
 * name, then the tracker points to it, then older ones go: each under another name first. So whatever has a
 * checkpoint's name is whole, and the tracker always names a whole one. What a killed writer leaves behind is tidied by
 * the next pb_checkpoints_open.
 *
 * Not stored: base weights that are frozen (their digest is: resuming on others is refused), gradients (a checkpoint
 * lies between steps) and generators' state (there is none: what is random follows from a seed of the configuration and
 * a position that is stored). */
#ifndef PB_CHECKPOINT_H
#define PB_CHECKPOINT_H
#include "trainer/data/dataset.h"
#include "os/disk.h"
#include "trainer/trainer.h"

/* What the host counts beside the iteration. X(name, meaning) */
#define PB_COUNTER_MAP(X)                                                                                              \
    X(tokens, "places of rows that were trained on")                                                                   \
    X(samples, "conversations that were trained on")                                                                   \
    X(skipped, "steps that were not taken, in all")                                                                    \
    X(skipped_in_row, "and since the last one that was")

/* Whole numbers below 2^63. */
typedef struct pb_progress {
    uint64_t iteration;    /* completed steps, >= 1 when saved */
    pb_data_position data; /* the next row */
#define X(name, meaning) uint64_t name;
    PB_COUNTER_MAP(X)
#undef X
} pb_progress;

/* One setting of the run, for the record. Keys that begin with "model." or "train." are the checkpoint's own. */
typedef struct pb_setting {
    const char *key, *value;
    bool fixed; /* resuming with another value is refused; else it is noted */
} pb_setting;

typedef struct pb_checkpoint_options {
    long save_interval;   /* every so many steps; 0: none but the last */
    long retain_interval; /* multiples of it stay for ever; of the others the newest. 0: the two newest resume points */
    uint64_t last;        /* the iteration that ends the run, which is always saved; 0: there is none */
    const pb_setting *settings; /* [nsettings]; borrowed until pb_checkpoints_close, as everything here */
    size_t nsettings;
    /* Called while a checkpoint is filled; the files and folders that it makes in `dir` belong to the checkpoint, are
     * digested and made durable. May be NULL. */
    pb_status (*extra)(void *self, pb_trainer *t, const char *dir);
    void *extra_self;
    /* One line each: a checkpoint that was not used, a setting that differs. May be NULL. */
    void (*note)(void *self, const char *line);
    void *note_self;
    const pb_disk *disk; /* NULL: pb_disk_posix */
} pb_checkpoint_options;

typedef struct pb_checkpoints pb_checkpoints;

/* Makes the folder if need be (its parent must be there), takes its lock, and tidies what a killed writer left.
 * EINVAL: another process holds the lock; EIO. The trainer of the calls below is one and the same until close. */
pb_status pb_checkpoints_open(const char *dir, const pb_checkpoint_options *o, pb_checkpoints **out);
void pb_checkpoints_close(pb_checkpoints *c); /* NULL is fine */

/* The iteration that `latest` would begin with; 0: the folder holds no checkpoint. */
uint64_t pb_checkpoints_latest(const pb_checkpoints *c);

typedef enum pb_save {
    PB_SAVE_NONE,
    PB_SAVE_TRIAL, /* written all the way under a temporary name, verified, removed: the disk works. Due after the
                      first step of a process that will save later */
    PB_SAVE_KEEP,
} pb_save;
pb_save pb_checkpoints_due(const pb_checkpoints *c, uint64_t iteration);

/* Waits for the device. May also be called (PB_SAVE_KEEP) when nothing is due, as before an orderly end; PB_SAVE_NONE
 * does nothing. A checkpoint of the same iteration is replaced. On failure the resume point is what it was or, when
 * only the removal of older ones failed, p->iteration; the same call may be repeated.
 * EINVAL: the folder holds checkpoints and this process resumed none of them; EIO: one line that names the path. */
pb_status pb_checkpoints_save(pb_checkpoints *c, pb_save how, pb_trainer *t, const pb_progress *p);

/* `which`: "latest", or an iteration. All is verified (sizes, digests, settings, base weights, names and shapes) before
 * the trainer changes; it then has weights, moments, step counters and learning rate of the checkpoint. `latest` begins
 * with the tracker's, notes every checkpoint that is damaged, with the reason, and takes the one before; a folder
 * without checkpoints is fine, and gives an iteration of 0 and an unchanged trainer.
 * EINVAL, EIO: damaged, or none is whole; EINVAL: the trainer or a fixed setting is another; EFORMAT: a newer
 * version wrote it; EDEVICE while loading: the trainer is good for nothing but closing. */
pb_status pb_checkpoints_resume(pb_checkpoints *c, const char *which, pb_trainer *t, pb_progress *out);
#endif
