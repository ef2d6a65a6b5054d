/* state.h - writes and loads the state file of a checkpoint (state.safetensors), and checks that it fits a trainer. */
#ifndef PB_STATE_H
#define PB_STATE_H
#include "trainer/checkpoint/index.h"
#include "trainer/io/safetensors.h"

/* Writes the file and makes it durable. *data: size and digest of the tensor data, the last part of the file, computed
 * from the bytes that were downloaded from the device. Host syncs. */
pb_status pb_state_write(pb_trainer *t, const pb_disk *disk, const char *path, pb_file_digest *data);
/* Checks the tensors of a state file. EINVAL: a tensor is missing, unexpected, or of another shape or type; the message
 * begins with `where`. */
pb_status pb_state_check(const char *where, const pb_safetensors *f, pb_trainer *t);
/* Loads a file that pb_state_check has accepted. Host syncs. */
pb_status pb_state_load(const pb_safetensors *f, pb_trainer *t);

/* The digest of all weights that are not trained, computed from their contents in device memory. Host syncs. */
pb_status pb_state_base(pb_trainer *t, pb_digest_text *out);

/* Settings that are derived from the trainer's configuration: "model.*" (what is computed; fixed) and "train.*" (how it
 * is trained; resuming reports differences and continues). */
enum { PB_STATE_SETTINGS = 7 };
typedef struct pb_state_settings {
    pb_setting s[PB_STATE_SETTINGS];
    char text[PB_STATE_SETTINGS][400];
} pb_state_settings;
void pb_state_describe(pb_trainer *t, pb_state_settings *out);
#endif
