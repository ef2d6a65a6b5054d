/* checkpoint_impl.h - the inside of pb_checkpoints, shared by the files that save, resume and keep the folder. */
#ifndef PB_CHECKPOINT_IMPL_H
#define PB_CHECKPOINT_IMPL_H
#include <limits.h>

#include "trainer/checkpoint/state.h"

#define PB_CHECKPOINT_TRACKER "latest_checkpointed_iteration.txt"
#define PB_CHECKPOINT_INDEX   "checkpoint.json"
#define PB_CHECKPOINT_STATE   "state.safetensors"

struct pb_checkpoints {
    char *dir;
    pb_checkpoint_options o; /* disk is never NULL */
    int lock;
    bool tried;          /* a save of this process was verified */
    uint64_t latest;     /* what `latest` would begin with; 0: none */
    uint64_t mine;       /* what this process resumed or saved last; 0: neither */
    pb_trainer *trainer; /* that base is of, or NULL */
    pb_digest_text base;
};

typedef struct pb_path {
    char text[PATH_MAX];
} pb_path;

/* "FOLDER/name"; EINVAL: too long. */
pb_status pb_checkpoint_path(pb_path *out, const char *folder, const char *name);
/* The folder of an iteration: `suffix` NULL its own name, else a temporary one. */
pb_status pb_folder_path(const pb_checkpoints *c, uint64_t iteration, const char *suffix, pb_path *out);
bool pb_folder_exists(const char *path);

/* folder.c: the folder of checkpoints as a whole. */
pb_status pb_folder_tidy(const pb_checkpoints *c); /* what a killed writer or a failed save left */
typedef struct pb_iterations {
    uint64_t *at; /* [n] ascending */
    size_t n;
} pb_iterations;
pb_status pb_folder_list(const pb_checkpoints *c, pb_iterations *out); /* free out->at */
/* EINVAL: there is one, and it is not a number in a line. 0: there is none. */
pb_status pb_folder_tracker(const pb_checkpoints *c, uint64_t *out);
/* Gives the folder `filled` its name, makes that durable, then the tracker. */
pb_status pb_folder_publish(const pb_checkpoints *c, uint64_t iteration, const char *filled);
/* Takes folders away so that none is ever there in part: all are renamed, that is made durable, all are removed. */
pb_status pb_folder_drop(const pb_checkpoints *c, const pb_path *path, const uint64_t *iteration, size_t n);

/* verify.c: a checkpoint that is whole. */
typedef struct pb_candidate {
    pb_index index;
    pb_safetensors *state;
} pb_candidate;
/* Without `files`, their sizes and digests are not looked at. EINVAL, EIO: damaged; EFORMAT: another version. */
pb_status pb_candidate_open(const pb_checkpoints *c, const char *folder, uint64_t iteration, bool files,
                            pb_candidate *out);
void pb_candidate_close(pb_candidate *x); /* {0} is fine */
/* EINVAL: of another model or of other fixed settings. With `note`, a line for each that differs and is not fixed. */
pb_status pb_candidate_fits(pb_checkpoints *c, pb_trainer *t, const char *folder, const pb_candidate *x, bool note);

/* The digest of the frozen weights, reckoned once. */
pb_status pb_checkpoints_base(pb_checkpoints *c, pb_trainer *t);
void pb_checkpoints_note(const pb_checkpoints *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#endif
