/* hf_folder.h - the tensors of a Hugging Face folder as one set: model.safetensors, or the files that
 * model.safetensors.index.json lists. */
#ifndef PB_HF_FOLDER_H
#define PB_HF_FOLDER_H
#include "trainer/io/safetensors.h"

typedef struct pb_hf_folder {
    char *dir;
    pb_safetensors **file; /* [n] */
    bool **taken;          /* [n][pb_st_count(file)] whether pb_hf_folder_take found it */
    size_t n;
} pb_hf_folder;

/* Opens every file. EPATH, EIO: one cannot be read, or there is none; EINVAL: one is malformed, the index names a
 * tensor that is not in its file, or two files hold one name. */
pb_status pb_hf_folder_open(const char *dir, pb_hf_folder *out);
void pb_hf_folder_close(pb_hf_folder *f);

/* The tensor of that name, which then counts as taken; NULL: there is none. *file: the one it is in. */
const pb_st_tensor *pb_hf_folder_take(pb_hf_folder *f, const char *name, const pb_safetensors **file);

/* The files that an index lists, each once and plain names of the same folder. Ends with pb_hf_index_free. */
typedef struct pb_hf_index {
    void *root;        /* json_t of the whole text, owner of the names */
    const char **file; /* [n] */
    size_t n;
} pb_hf_index;
pb_status pb_hf_index_parse(const char *where, const void *text, size_t n, pb_hf_index *out);
void pb_hf_index_free(pb_hf_index *x);
#endif
