/* state.h - a trainer's state as state.safetensors, and what a checkpoint must share with a trainer to fit it. */
#ifndef PB_STATE_H
#define PB_STATE_H
#include "trainer/checkpoint/index.h"
#include "trainer/io/safetensors.h"

/* Writes the file, durable. *data: length and digest of its tensors' bytes as they came from the device, which end the
 * file. */
pb_status pb_state_write(pb_trainer *t, const pb_disk *disk, const char *path, pb_file_digest *data);
/* EINVAL: a tensor is missing, has another shape, or is one too many; the line begins with `where`. */
pb_status pb_state_check(const char *where, const pb_safetensors *f, pb_trainer *t);
/* After pb_state_check. */
pb_status pb_state_load(const pb_safetensors *f, pb_trainer *t);

/* The digest of all weights that are not trained, as they lie in device memory. */
pb_status pb_state_base(pb_trainer *t, pb_digest_text *out);

/* The settings that follow from the trainer: what it computes ("model.", fixed) and how it is run ("train."). */
enum { PB_STATE_SETTINGS = 7 };
typedef struct pb_state_settings {
    pb_setting s[PB_STATE_SETTINGS];
    char text[PB_STATE_SETTINGS][400];
} pb_state_settings;
void pb_state_describe(pb_trainer *t, pb_state_settings *out);
#endif
