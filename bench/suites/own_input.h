/* own_input.h - the user's model and data in a run of a training suite: `bench --model DIR --data FILE`.
 *
 * They are found and read by the loader of `train` (trainer/input/input.h), with the defaults of `train`: conversations
 * through the model's chat template and the tokenizer of its folder, the mask "assistant", rows packed (axis pack=on),
 * and a step as long as its longest row, rounded up to 64 positions.
 *
 * Keys name a folder's model by a digest of its geometry, and data by a digest of everything that determines the
 * tokens. A stored baseline therefore holds for the same model and data under any path:
 *
 *     model=hf-<12 digits>     the values of config.json that a pb_geometry holds, not the weights
 *     data=<12 digits>         the bytes of the data and of tokenizer.json, the template, the default system message, the
 *                              mask
 *
 * The digits are the first of an XXH3-128 digest. */
#ifndef PB_OWN_INPUT_H
#define PB_OWN_INPUT_H
#include "bench/rows/rows.h"
#include "trainer/input/input.h"

/* Words of the command line; NULL: not given. Strings are borrowed. */
typedef struct pb_input_request {
    const char *data, *tokenizer, *template, *mask;
} pb_input_request;

enum { PB_OWN_BUCKET = 64 }; /* the default of train's --bucket */

/* Belongs to a plan; its cases point to it. */
typedef struct pb_own_input {
    pb_input in;
    pb_mask_type mask;
    char model[PB_AXIS_TEXT], data[PB_AXIS_TEXT]; /* values of the keys */
    /* The rows that were read last, and for which rows: the cases of a process read the text once if their rows have
     * one length. */
    pb_dataset *rows;
    pb_dataset_config of;
} pb_own_input;

/* Finds the model and the text, and reads the files for their digests. EINVAL: no single model is named; else errors as
 * pb_input_find_model and pb_input_find_text; EPATH, EIO: a file cannot be read. The caller closes *out. */
pb_status pb_own_input_open(const char *model, const pb_input_request *r, pb_own_input **out);
void pb_own_input_close(pb_own_input *own); /* NULL is allowed */
/* Opens the model and data that the axes `l` of a run and the request name, if any; else *out is unchanged. In the
 * axes, the model then has the name of the keys, and rows are packed as `train` does by default. `refuses`: the suite
 * that cannot read them (EINVAL); NULL: this suite can. */
pb_status pb_own_input_apply(const char *refuses, const pb_input_request *r, pb_axis_list *l, pb_own_input **out);
/* The rows of the user's data; `cfg` says which, but for chat and mask, which are those of the request. *out is
 * borrowed until the next call. Errors as pb_input_open_tokenizer and pb_dataset_open. */
pb_status pb_own_input_rows(pb_own_input *own, const pb_dataset_config *cfg, pb_dataset **out);
#endif
