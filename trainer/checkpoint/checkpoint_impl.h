/* checkpoint_impl.h - the members of pb_checkpoints, and functions that the files of this folder share. */
#ifndef PB_CHECKPOINT_IMPL_H
#define PB_CHECKPOINT_IMPL_H
#include <limits.h>

#include "os/task.h"
#include "trainer/checkpoint/state.h"

#define PB_CHECKPOINT_TRACKER "latest_checkpointed_iteration.txt"
#define PB_CHECKPOINT_INDEX   "checkpoint.json"
#define PB_CHECKPOINT_STATE   "state.safetensors"
#define PB_CHECKPOINT_PART    "state-%d-of-%d.safetensors"

/* The stored text of a setting as this version writes it: earlier ones wrote the bits of adapters' targets ("targets 5")
 * in place of their names ("targets q+v"). Returns `stored`, or `out` with the text. */
const char *pb_setting_in_words(const char *stored, char *out, size_t room);

typedef struct pb_saving pb_saving;
struct pb_checkpoints {
    char *dir;
    pb_checkpoint_options o; /* disk is never NULL */
    int lock;                /* -1: not locked, or this is not rank 0 */
    long pid;                /* of rank 0, in the names of temporary folders */
    bool verified_save;      /* this process has saved and verified a checkpoint */
    uint64_t latest;         /* see pb_checkpoints_latest */
    uint64_t own_iteration;  /* last iteration that this process resumed or saved; 0: none */
    pb_trainer *trainer;     /* the trainer that `base` was computed for, or NULL */
    pb_digest_text base;
    /* With o.background: the copy of the state (NULL until the first save), and the save that a thread works on (NULL:
     * none). Until it is joined, the thread reads this struct, and the members above do not change. */
    pb_state_copy *copy;
    pb_saving *saving;
    double write_time; /* see pb_checkpoints_write_time */
};

typedef struct pb_path {
    char text[PATH_MAX];
} pb_path;

/* Writes "FOLDER/name" to *out. EINVAL: too long. */
pb_status pb_checkpoint_path(pb_path *out, const char *folder, const char *name);
/* Writes the path of an iteration's folder to *out. `suffix` NULL: the final name; else a temporary name that ends with
 * `suffix`. */
pb_status pb_folder_path(const pb_checkpoints *c, uint64_t iteration, const char *suffix, pb_path *out);
bool pb_folder_exists(const char *path);

/* Functions of folder.c, for the folder of all checkpoints. */
pb_status
pb_folder_remove_leftovers(const pb_checkpoints *c); /* removes temporary files of a killed process or a failed save */
typedef struct pb_iterations {
    uint64_t *at; /* [n] in ascending order */
    size_t n;
} pb_iterations;
pb_status pb_folder_list(const pb_checkpoints *c, pb_iterations *out); /* the caller frees out->at */
/* Reads the iteration from the tracker; 0: no tracker exists. EINVAL: the tracker is not one line with a number. */
pb_status pb_folder_tracker(const pb_checkpoints *c, uint64_t *out);
/* Renames the folder `filled` to its final name, makes that durable, then updates the tracker. */
pb_status pb_folder_publish(const pb_checkpoints *c, uint64_t iteration, const char *filled);
/* Removes n checkpoints so that an incomplete one never has a final name: renames all to temporary names, makes the
 * renaming durable, then deletes all. */
pb_status pb_folder_drop(const pb_checkpoints *c, const pb_path *path, const uint64_t *iteration, size_t n);

/* Functions of verify.c. A candidate is an open checkpoint that has passed the checks of pb_candidate_open. */
typedef struct pb_candidate {
    pb_index index;
    pb_state_files state;
} pb_candidate;
/* Reads the index and opens the state file. With `files`, also checks the size and digest of every file. EINVAL, EIO:
 * damaged; EFORMAT: another version of the format. */
pb_status pb_candidate_open(const pb_checkpoints *c, const char *folder, uint64_t iteration, bool files,
                            pb_candidate *out);
void pb_candidate_close(pb_candidate *x); /* {0} is allowed */
/* Checks that the checkpoint belongs to this trainer and run. EINVAL: another model, other base weights, or a different
 * fixed setting. With `note`, reports every difference in a setting that is not fixed. */
pb_status pb_candidate_fits(pb_checkpoints *c, pb_trainer *t, const char *folder, const pb_candidate *x, bool note);

/* Functions of fill.c. The state file that a rank has written and made durable. */
typedef struct pb_rank_file {
    char name[64];
    pb_file_digest file;
} pb_rank_file;

/* A checkpoint that is being saved. */
struct pb_saving {
    pb_checkpoints *c;
    pb_trainer *t; /* of which the functions of fill.c read the state only without `copy` */
    pb_save how;
    pb_progress progress;
    pb_path folder;            /* the temporary one */
    const pb_state_copy *copy; /* NULL: the state is that of the trainer */
    pb_rank_file mine, *files; /* files: [ranks] */
    pb_index index;
    bool published; /* it is the resume point */
    pb_task task;   /* the members below are used with a thread only */
    bool written;   /* the state files of all ranks are written; the task publishes */
    double began;   /* pb_clock_seconds() when the copy was complete */
};
/* Writes this rank's state file and makes it durable. */
pb_status pb_fill_rank(pb_saving *s);
/* Makes all that is not a state file durable, and adds the index. On rank 0. */
pb_status pb_fill_rest(pb_saving *s);

/* saving.c: waits for the thread, if one writes, and forgets its checkpoint. Does not talk to other ranks. */
void pb_saving_close(pb_checkpoints *c);

/* Computes c->base, the digest of the frozen weights, once per trainer. */
pb_status pb_checkpoints_digest_base(pb_checkpoints *c, pb_trainer *t);
/* If the weights are sharded: all ranks compute the same together. Otherwise it does nothing. */
pb_status pb_checkpoints_share_base(pb_checkpoints *c, pb_trainer *t);
/* True on the rank that holds the lock and publishes: rank 0. */
static inline bool pb_checkpoints_leads(const pb_checkpoints *c) { return pb_world_rank(c->o.world) == 0; }
/* True for the name of a state file. */
bool pb_checkpoint_is_state(const char *name);
/* Formats a line and passes it to the callback pb_checkpoint_options.note. */
void pb_checkpoints_note(const pb_checkpoints *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#endif
