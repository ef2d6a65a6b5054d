/* hf_stop.h - the tokens that end a text of a model, as its Hugging Face folder or GGUF file names them. */
#ifndef PB_HF_STOP_H
#define PB_HF_STOP_H
#include <stdint.h>

#include "os/status.h"

enum { PB_STOP_IDS = 64 };
typedef struct pb_stop_ids {
    int32_t id[PB_STOP_IDS];
    int n;
} pb_stop_ids;

/* Reads "eos_token_id" as transformers does: that of generation_config.json or, if the folder has no such file, that of
 * config.json; a number, a list of numbers, or none. For a GGUF file it is the generation_config.json
 * that hf_gguf.h makes. EINVAL: another
 * kind of value, an id outside 0 to V-1, more than PB_STOP_IDS ids, or a file that is malformed. EPATH, EIO: a file
 * cannot be read. */
pb_status pb_hf_stop_ids(const char *model, int V, pb_stop_ids *out);
#endif
