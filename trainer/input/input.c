/* input.c - finds the model, the data, the tokenizer and the chat template that a user names. */
#include "trainer/input/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trainer/data/shipped.h"
#include "trainer/hf/hf_gguf.h"

static bool exists_as_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool pb_input_is_path(const char *model)
{
    for (const pb_geometry *g = pb_geometries; g->name; g++)
        if (strcmp(g->name, model) == 0) return false;
    return strchr(model, '/') || exists_as_folder(model) || pb_gguf_is(model);
}

pb_status pb_input_find_model(pb_input *in, const char *model)
{
    const pb_status s = pb_geometry_find(model, &in->geometry);
    if (s == PB_OK) return s;
    if (!pb_input_is_path(model)) {
        char names[400];
        snprintf(names, sizeof names, "%s", pb_error());
        if (access(model, F_OK) != 0) return pb_fail(s, "%s, and no folder or GGUF file of this name exists", names);
        if (access(model, R_OK) != 0) return pb_fail_errno(errno, "%s", model);
        return pb_fail(PB_EINVAL, "%s is neither a folder nor a GGUF file", model);
    }
    PB_TRY(pb_hf_config_open(model, &in->hf));
    in->geometry = &in->hf.g;
    in->path = model;
    return PB_OK;
}

/* Sets the path of the tokenizer.json. If the file has that name, also sets the folder in which the tokenizer's other
 * files (tokenizer_config.json, chat_template.jinja) are looked for. */
static pb_status set_tokenizer(pb_input *in, const char *path)
{
    static const char usual[] = "tokenizer.json";
    char *file = in->paths[1], *folder = in->paths[2];
    const bool is_folder = exists_as_folder(path);
    if (strlen(path) + sizeof "/" + sizeof usual > PB_INPUT_PATH)
        return pb_fail(PB_EINVAL, "--tokenizer %.60s...: the path has %zu bytes and is too long", path, strlen(path));
    snprintf(file, PB_INPUT_PATH, "%s%s%s", path, is_folder ? "/" : "", is_folder ? usual : "");
    const char *slash = strrchr(file, '/');
    in->tokenizer_path = file;
    if (strcmp(slash ? slash + 1 : file, usual) != 0) return PB_OK;
    snprintf(folder, PB_INPUT_PATH, "%.*s", !slash || slash == file ? 1 : (int)(slash - file), slash ? file : ".");
    in->tokenizer_folder = folder;
    return PB_OK;
}

pb_status pb_input_find_tokenizer(pb_input *in, const char *tokenizer)
{
    if (tokenizer) return strcmp(tokenizer, "bytes") == 0 ? PB_OK : set_tokenizer(in, tokenizer);
    if (!in->path) return PB_OK;
    PB_TRY(set_tokenizer(in, in->path));
    if (access(in->tokenizer_path, F_OK) == 0) return PB_OK;
    return pb_fail(PB_EINVAL, "%s has no tokenizer.json: give one with --tokenizer DIR|FILE, or use --tokenizer bytes",
                   in->path);
}

static pb_template family_template(pb_family family)
{
    return family == PB_FAMILY_QWEN2   ? PB_TEMPLATE_QWEN2_5
           : family == PB_FAMILY_QWEN3 ? PB_TEMPLATE_QWEN3
           : family == PB_FAMILY_V4    ? PB_TEMPLATE_DEEPSEEK_V4
                                       : PB_TEMPLATE_LLAMA3;
}

/* Reads the chat template of a GGUF file, as if it were in a folder's tokenizer_config.json. */
static pb_status find_template_in_gguf(pb_input *in)
{
    char *config = NULL;
    PB_TRY(pb_hf_gguf_text(in->tokenizer_path, pb_hf_gguf_tokenizer_config, &config));
    const pb_status s = pb_chat_template_parse(in->tokenizer_path, NULL, 0, config, strlen(config), &in->found);
    free(config);
    return s;
}

/* Selects the chat template that the tokenizer's files contain, else the template of the model's family. */
static pb_status find_template(pb_input *in)
{
    if (pb_gguf_is(in->tokenizer_path)) PB_TRY(find_template_in_gguf(in));
    if (in->tokenizer_folder) PB_TRY(pb_chat_template_find(in->tokenizer_folder, &in->found));
    in->template_from = in->found.file ? in->found.file : "the model's family";
    in->chat.family = in->found.file ? in->found.family : family_template(in->geometry->family);
    in->chat.system = in->found.file ? in->found.system : NULL;
    return PB_OK;
}

static pb_status set_template(pb_input *in, int template)
{
    static const char *const words[] = {
#define X(id, word) word,
        PB_TEMPLATE_MAP(X)
#undef X
    };
    if (template >= 0) {
        in->chat.family = (pb_template) template;
        in->template_from = "--template";
    } else if (!in->tokenizer_path) {
        in->chat.family = PB_TEMPLATE_BYTES;
        in->template_from = "the byte tokenizer";
    } else {
        PB_TRY(find_template(in));
    }
    if ((in->chat.family == PB_TEMPLATE_BYTES) == !in->tokenizer_path) return PB_OK;
    return pb_fail(PB_EINVAL, "--template %s cannot be used with %s", words[in->chat.family],
                   in->tokenizer_path ? in->tokenizer_path : "the byte tokenizer");
}

pb_status pb_input_find_text(pb_input *in, const char *data, const char *tokenizer, int template)
{
    PB_TRY(pb_input_find_tokenizer(in, tokenizer));
    PB_TRY(set_template(in, template));
    in->data_path = data ? data : pb_shipped_path(in->paths[0], sizeof in->paths[0]);
    return PB_OK;
}

static pb_status check_tokenizer(const pb_input *in, const pb_chat_options *chat, pb_tokenizer *t)
{
    if (pb_tokenizer_vocab(t) > (size_t)in->geometry->V)
        return pb_fail(PB_EINVAL, "the tokenizer has %zu token ids, but the vocabulary of %s has only %d",
                       pb_tokenizer_vocab(t), in->path ? in->path : in->geometry->name, in->geometry->V);
    return pb_chat_template_check(chat->family, t);
}

pb_status pb_input_open_tokenizer(const pb_input *in, const pb_chat_options *chat, pb_tokenizer **out)
{
    pb_tokenizer *t;
    PB_TRY(pb_hf_tokenizer_open(in->tokenizer_path, &t));
    const pb_status s = check_tokenizer(in, chat, t);
    if (s == PB_OK) *out = t;
    else pb_tokenizer_close(t);
    return s;
}
