/* hf_text.c - copies the tokenizer files of a model to the folder of its exported weights. */
#include "trainer/hf/hf_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/draft.h"
#include "os/file.h"
#include "trainer/hf/hf_gguf.h"

enum { LARGEST = 1 << 28 };

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static pb_status copy(const char *from, const char *to)
{
    char *text = NULL;
    size_t n = 0;
    PB_TRY(pb_disk_read_file(&pb_disk_posix, from, LARGEST, &text, &n));
    const pb_status s = pb_file_replace(to, text, n);
    free(text);
    return s;
}

/* Copies the file `source` to to/name. If `source` is NULL or does not exist, removes to/name, unless `keep` is
 * true. */
static pb_status copy_or_remove(const char *source, const char *to, const char *name, bool keep)
{
    char *path = NULL;
    if (!source || access(source, F_OK) != 0) return keep ? PB_OK : pb_folder_remove(to, name);
    PB_TRY(pb_path_join(to, name, &path));
    const pb_status s = same_file(source, path) ? PB_OK : copy(source, path);
    free(path);
    return s;
}

static pb_status take_from(const char *folder, const char *to, const char *name, bool keep)
{
    char *source = NULL;
    if (folder) PB_TRY(pb_path_join(folder, name, &source));
    const pb_status s = copy_or_remove(source, to, name, keep);
    free(source);
    return s;
}

/* Writes a file that is made from the metadata of the GGUF file `from`. */
static pb_status make(const char *from, pb_status (*text)(const pb_gguf *f, char **out), const char *to,
                      const char *name)
{
    char *path = NULL, *made = NULL;
    PB_TRY(pb_hf_gguf_text(from, text, &made));
    pb_status s = pb_path_join(to, name, &path);
    if (s == PB_OK) s = pb_file_replace(path, made, strlen(made));
    free(path);
    free(made);
    return s;
}

pb_status pb_hf_text_copy(const pb_hf_text *from, const char *to)
{
    static const char *const names[] = {"tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
                                        "added_tokens.json",     "chat_template.jinja"};
    const bool keep = same_file(from->model, to) || same_file(from->tokenizer_folder, to);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        PB_TRY(take_from(from->tokenizer_folder, to, names[i], keep));
    if (from->model && pb_gguf_is(from->model))
        PB_TRY(make(from->model, pb_hf_gguf_generation, to, "generation_config.json"));
    else PB_TRY(take_from(from->model, to, "generation_config.json", keep));
    if (!from->tokenizer || !pb_gguf_is(from->tokenizer))
        return copy_or_remove(from->tokenizer, to, "tokenizer.json", keep);
    PB_TRY(make(from->tokenizer, pb_hf_gguf_tokenizer_config, to, "tokenizer_config.json"));
    return make(from->tokenizer, pb_hf_gguf_tokenizer, to, "tokenizer.json");
}
