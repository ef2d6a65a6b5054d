/* checkpoint.h - checkpoints of a training run. A run that is killed at any moment resumes from its last checkpoint and
 * gives the same results, bit for bit.
 *
 *     DIR/iter_0000004/state.safetensors       w.NAME, m.NAME, v.NAME of every trained parameter in f32 (w is the
 *                                              master copy of a bf16 parameter), and the optimizer's counters
 *     DIR/iter_0000004/state-1-of-4.safetensors     instead, with several ranks: the part that rank 1 of 4 has written
 *                                              (state.h); any number of ranks can resume from it
 *     DIR/iter_0000004/checkpoint.json         progress, configuration, size and XXH3-128 of every file and of itself
 *     DIR/latest_checkpointed_iteration.txt    the tracker: the iteration of the resume point
 *     DIR/.lock                                locked by the process that writes to DIR
 *
 * A checkpoint is written in four steps: its files are written to a folder whose name begins with a dot, and each is
 * made durable; the folder is renamed to its final name; the tracker is updated; older checkpoints are renamed to
 * temporary names and then removed. Therefore every folder with a final name is a complete checkpoint, and the tracker
 * always names a complete one. pb_checkpoints_open removes the temporary folders of a killed process.
 *
 * Several ranks call all functions together and get the same status; they see the same folder. Rank 0 holds the lock,
 * chooses the checkpoint to resume from, and publishes a folder when all ranks have written their state files and made
 * them durable. Every rank checks that its frozen weights are those of the checkpoint.
 *
 * With pb_checkpoint_options.background, pb_checkpoints_save only copies the state to host memory (state.h) and
 * returns; one thread then writes the copy with the four steps above, while training changes the weights. One
 * checkpoint at a time is written: a save that is due earlier waits for it, and none is left out. What is written has
 * the bits of a save without `background`. Only the thread that trains talks to the other ranks: each rank's thread
 * writes its state file, pb_checkpoints_poll notices that all ranks have finished, and the thread of rank 0 publishes
 * the folder.
 *
 * Not stored: frozen weights (only their digest, so that resuming with different ones is refused); gradients
 * (checkpoints are taken between steps); random generator states (all randomness derives from the configured seed and a
 * stored position). */
#ifndef PB_CHECKPOINT_H
#define PB_CHECKPOINT_H
#include "os/disk.h"
#include "trainer/data/dataset.h"
#include "trainer/step/trainer.h"

/* Counters of a run that the host keeps in addition to the iteration. Each entry: X(name, meaning). */
#define PB_COUNTER_MAP(X)                                                                                              \
    X(tokens, "token positions that were trained on")                                                                  \
    X(samples, "conversations, or rows of a stream, that were trained on")                                             \
    X(skipped, "skipped steps of the whole run")                                                                       \
    X(skipped_in_row, "skipped steps since the last step that was not skipped")

/* Progress of a run. All values are below 2^63. */
typedef struct pb_progress {
    uint64_t iteration;    /* completed steps; at least 1 when saved */
    pb_data_position data; /* epoch and index of the row that is trained on next */
#define X(name, meaning) uint64_t name;
    PB_COUNTER_MAP(X)
#undef X
} pb_progress;

/* A setting of the run that is recorded in the checkpoint. Keys that begin with "model." or "train." are reserved. */
typedef struct pb_setting {
    const char *key, *value;
    /* true: resuming with another value of this setting is refused; false: the difference is only reported. */
    bool fixed;
    const char *absent; /* value to assume for a checkpoint that lacks this setting, because an older version of the
                           program wrote it; NULL: such a checkpoint counts as different */
} pb_setting;

typedef struct pb_checkpoint_options {
    long save_interval; /* save every n steps; 0: only at the end of the run */
    /* Selects the checkpoints that are kept. n > 0: those whose iteration is a multiple of n, and the newest one. 0:
     * the two newest resume points. While steps are skipped, older ones are kept too. */
    long retain_interval;
    uint64_t last; /* number of steps of the run; a checkpoint is always saved after the last; 0: unknown */
    const pb_setting *settings; /* [nsettings]; like all pointers here, borrowed until pb_checkpoints_close */
    size_t nsettings;
    /* Called on rank 0 while a checkpoint is written, to add files and folders to its folder `dir`. Added files get a
     * digest and are made durable like the other files. m: the trainer's model; with `background` a copy of it, in
     * which only the adapters and the gains of the layers can be read, and nothing without adapters
     * (pb_state_copy_model), and the call is made on the thread that writes. May be NULL. */
    pb_status (*extra)(void *self, pb_model *m, const char *dir);
    void *extra_self;
    /* Receives messages of one line: a checkpoint that was not used, a setting that differs. May be NULL. */
    void (*note)(void *self, const char *line);
    void *note_self;
    const pb_disk *disk; /* table of file operations; NULL: pb_disk_posix */
    pb_world *world;     /* the ranks that save and resume together; NULL: one */
    bool background;     /* write checkpoints on a thread, during the following steps */
} pb_checkpoint_options;

typedef struct pb_checkpoints pb_checkpoints;

/* Creates the folder if it does not exist (its parent must exist), locks it, and removes the temporary files of a
 * killed process. All calls below must use the same trainer until pb_checkpoints_close. EINVAL: another process holds
 * the lock; EIO. */
pb_status pb_checkpoints_open(const char *dir, const pb_checkpoint_options *o, pb_checkpoints **out);
/* Waits for the thread that writes: of a single rank, the checkpoint is then complete. With several ranks it may be
 * left unpublished; call pb_checkpoints_wait before, unless a rank is lost. NULL is allowed. */
void pb_checkpoints_close(pb_checkpoints *c);

/* Returns the iteration that resuming with "latest" tries first; 0: the folder has no checkpoint. */
uint64_t pb_checkpoints_latest(const pb_checkpoints *c);

typedef enum pb_save {
    PB_SAVE_NONE,
    /* Write a checkpoint under a temporary name, verify and remove it, so that an unusable disk is found early. Due
     * after the first step of a process that will save later. */
    PB_SAVE_TRIAL,
    PB_SAVE_KEEP, /* write a checkpoint that becomes the resume point */
} pb_save;
/* Returns what the caller must pass to pb_checkpoints_save after this iteration. */
pb_save pb_checkpoints_due(const pb_checkpoints *c, uint64_t iteration);

/* Saves a checkpoint; PB_SAVE_NONE does nothing. Host syncs. PB_SAVE_KEEP is also allowed when no checkpoint is due,
 * for instance when the user interrupts the run. An existing checkpoint of the same iteration is replaced. After a
 * failure the call may be repeated. The resume point is then unchanged, except that it is p->iteration if only the
 * removal of older checkpoints failed. EINVAL: no step was made yet, or the folder has checkpoints and this process
 * resumed from none of them; EIO: one line that names the path.
 *
 * With `background` it first waits for the checkpoint that is being written, whose failure it returns without saving
 * another one; then it copies the state. Failures of the thread are returned by the next call of this function, of
 * pb_checkpoints_poll or of pb_checkpoints_wait, with the status and the message of a save without `background`.
 * ENOMEM: no memory for the copy, which the first save allocates. */
pb_status pb_checkpoints_save(pb_checkpoints *c, pb_save how, pb_trainer *t, const pb_progress *p);

/* With `background`, call it after every step, on all ranks: does not wait for the disk, returns the failure of a
 * checkpoint that could not be written, and with several ranks lets rank 0 publish what all have written. */
pb_status pb_checkpoints_poll(pb_checkpoints *c);
/* Waits until the checkpoint that is being written, if any, is the resume point. On all ranks together. */
pb_status pb_checkpoints_wait(pb_checkpoints *c);
/* True while a checkpoint is being written; the same on all ranks. */
bool pb_checkpoints_busy(const pb_checkpoints *c);
/* Seconds from the end of the copy until the last checkpoint was complete, as pb_checkpoints_poll or _wait noticed; 0:
 * none was written in the background. */
double pb_checkpoints_write_time(const pb_checkpoints *c);

/* Resumes from a checkpoint. `which`: "latest", or an iteration. Everything is verified (sizes, digests, settings, base
 * weights, tensor names and shapes) before the trainer is modified; then weights, moments, step counters and learning
 * rate are loaded. "latest" starts at the tracker's checkpoint. When a checkpoint is damaged, it reports the reason
 * and tries the next one: first the earlier ones, then those after the tracker's. In a folder without checkpoints,
 * "latest" sets out->iteration to 0 and leaves the trainer unchanged.
 *
 * EINVAL, EIO: the checkpoint, or every checkpoint, is damaged; EINVAL: it is from another model or differs
 * in a fixed setting; EFORMAT: a newer version of the program wrote it; EDEVICE: loading failed, and the
 * trainer can only be closed. */
pb_status pb_checkpoints_resume(pb_checkpoints *c, const char *which, pb_trainer *t, pb_progress *out);
#endif
