/* state.h - writes and loads the state files of a checkpoint, and checks that they fit a trainer. One rank writes
 * state.safetensors. Each of N ranks writes state-R-of-N.safetensors with the tensors, or parts of tensors, of its
 * slices (trainer/parallel/slices.h): a part of the tensor NAME that begins at its element FIRST is called NAME:FIRST.
 * Files of any number of ranks can be loaded by any number. */
#ifndef PB_STATE_H
#define PB_STATE_H
#include "trainer/checkpoint/index.h"
#include "trainer/io/safetensors.h"

/* A copy in host memory of what this rank writes of a checkpoint: the tensors and counters of its state file, and on
 * rank 0 the weights that pb_peft_save reads. */
typedef struct pb_state_copy pb_state_copy;
/* Returns the size of its memory in bytes: 12 per trained element, and on rank 0 those of adapters and of the gains of
 * the layers again; with NorMuon less. The trainer may be one of the plan backend. */
size_t pb_state_copy_bytes(const pb_trainer *t);
/* ENOMEM: the message says how much memory was requested. */
pb_status pb_state_copy_open(pb_trainer *t, pb_state_copy **out);
void pb_state_copy_close(pb_state_copy *c); /* NULL is allowed */
/* Copies the tensors that this rank writes to its state file and, on rank 0, the scalars of the optimizer
 * (pb_adamw_state). Causes host syncs. */
pb_status pb_state_copy_take(pb_state_copy *c, const pb_trainer *t);
/* Copies what pb_peft_save reads; gathers it first if it is sharded. All ranks call it together. Causes host syncs. */
pb_status pb_state_copy_take_model(pb_state_copy *c, pb_trainer *t);
/* The model with the copied adapters and gains, valid until pb_state_copy_close. Other weights cannot be read; nothing
 * can on other ranks than 0, and of a model without adapters. */
pb_model *pb_state_copy_model(pb_state_copy *c);

/* Writes this rank's state file and makes it durable. *data receives size and digest of the tensor data (the last part
 * of the file), computed from the bytes that were downloaded from the device. With `copy`, which was taken of this
 * trainer, its contents are written, and the device is not used; NULL: those of the trainer, with host syncs. */
pb_status pb_state_write(const pb_trainer *t, const pb_state_copy *copy, const pb_disk *disk, const char *path,
                         pb_file_digest *data);

/* The open state files of a checkpoint; initialise with {0}. */
typedef struct pb_state_part pb_state_part;
typedef struct pb_state_files {
    pb_safetensors **file; /* [n] */
    int n;
    pb_state_part *part; /* [parts] the tensors and parts of tensors in all files, by name and first element */
    size_t parts;
} pb_state_files;
/* Opens one more file. EPATH, EIO, EINVAL as pb_st_open; ENOMEM. */
pb_status pb_state_open(pb_state_files *f, const char *path);
void pb_state_close(pb_state_files *f);
/* Checks the tensors of all state files together. EINVAL: a tensor, or elements of it, are missing, unexpected, in two
 * files, or of another shape or type; the message begins with `where`. */
pb_status pb_state_check(const char *where, const pb_state_files *f, pb_trainer *t);
/* Loads files that pb_state_check has accepted. Host syncs. */
pb_status pb_state_load(const pb_state_files *f, pb_trainer *t);

/* Computes the digest of all weights that are not trained, from their contents in device memory. If the weights are
 * sharded, it is called inside pb_trainer_read. Host syncs. */
pb_status pb_state_base(pb_trainer *t, pb_digest_text *out);

/* Settings that are derived from the trainer's configuration: "model.*" (what is computed; fixed) and "train.*" (how it
 * is trained; resuming reports differences and continues). */
enum { PB_STATE_SETTINGS = 10 };
typedef struct pb_state_settings {
    pb_setting s[PB_STATE_SETTINGS];
    char text[PB_STATE_SETTINGS][400];
} pb_state_settings;
void pb_state_describe(pb_trainer *t, pb_state_settings *out);

enum { PB_STATE_TARGETS = 40 };
/* Writes the names of the targets of adapters, such as "q+v", of their bits (1 << PB_TARGET_Q ...). */
void pb_state_targets(unsigned bits, char out[PB_STATE_TARGETS]);
#endif
