/* hf_gguf_tokenizer.c - makes a tokenizer.json and a tokenizer_config.json from the metadata of a GGUF file. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "os/text.h"
#include "trainer/hf/hf_gguf.h"

/* The types of tokens (tokenizer.ggml.token_type) that are not ordinary ones. */
enum { CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

static const struct {
    const char *name;
    bool nfc, digits;
    const char *pattern;
    bool ignore_merges, bos;
} pres[] = {
#define PRE(name, nfc, digits, pattern, ignore_merges, bos) {name, nfc, digits, pattern, ignore_merges, bos},
#include "trainer/hf/gguf_pre.def"
};
enum { NPRES = sizeof pres / sizeof *pres };

static bool is(pb_gguf_text t, const char *text) { return t.n == strlen(text) && memcmp(t.p, text, t.n) == 0; }

static pb_status no_memory(const pb_gguf *f)
{
    return pb_fail(PB_ENOMEM, "%s: no memory for its tokenizer", pb_gguf_path(f));
}

/* Refuses a text of the file, quoting it. */
static pb_status refuse(const pb_gguf *f, const char *key, pb_gguf_text text, const char *why)
{
    char quoted[41];
    const size_t n = text.n < 40 ? text.n : 40;
    if (n) memcpy(quoted, text.p, n);
    quoted[n] = 0;
    pb_make_printable(quoted, '?');
    return pb_fail(PB_EFORMAT, "%s: %s \"%s\" %s", pb_gguf_path(f), key, quoted, why);
}

/* Finds the line of gguf_pre.def. */
static pb_status find_pre(const pb_gguf *f, int *out)
{
    pb_gguf_text model = {"", 0}, pre = {"", 0};
    PB_TRY(pb_gguf_get_text(f, "tokenizer.ggml.model", &model));
    PB_TRY(pb_gguf_get_text(f, "tokenizer.ggml.pre", &pre));
    if (!is(model, "gpt2"))
        return refuse(f, "tokenizer.ggml.model", model,
                      "is not gpt2 (byte-level BPE): choose a tokenizer with --tokenizer");
    for (*out = 0; *out < NPRES; ++*out)
        if (is(pre, pres[*out].name)) return PB_OK;
    return refuse(f, "tokenizer.ggml.pre", pre,
                  "is not one of gpt-2, smollm, qwen2, llama-bpe: choose a tokenizer with --tokenizer");
}

/* ---- the parts of a tokenizer.json --------------------------------------------------------------------- */

static pb_status add_token(const pb_gguf *f, pb_gguf_text text, uint64_t type, size_t id, json_t *vocab, json_t *added)
{
    const bool apart = type == CONTROL || type == USER_DEFINED;
    if (type == UNUSED) return PB_OK;
    if (json_object_getn(vocab, text.p, text.n))
        return pb_fail(PB_EINVAL, "%s: tokenizer.ggml.tokens: the text of token %zu is that of an earlier one",
                       pb_gguf_path(f), id);
    json_t *content = json_stringn(text.p, text.n);
    if (!content || json_object_setn_new(vocab, text.p, text.n, json_integer((json_int_t)id)) != 0) {
        json_decref(content);
        return pb_fail(PB_EINVAL, "%s: tokenizer.ggml.tokens: the text of token %zu is not UTF-8", pb_gguf_path(f), id);
    }
    if (!apart) {
        json_decref(content);
        return PB_OK;
    }
    json_t *o = json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id, "content", content,
                          "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", type == CONTROL);
    return json_array_append_new(added, o) == 0 ? PB_OK : no_memory(f);
}

static pb_status add_tokens(const pb_gguf *f, json_t *vocab, json_t *added)
{
    pb_gguf_list tokens = {0}, types = {0};
    PB_TRY(pb_gguf_get_texts(f, "tokenizer.ggml.tokens", &tokens));
    PB_TRY(pb_gguf_get_wholes(f, "tokenizer.ggml.token_type", &types));
    if (!tokens.n || types.n != tokens.n)
        return pb_fail(PB_EINVAL, "%s: tokenizer.ggml.tokens has %zu elements, tokenizer.ggml.token_type %zu",
                       pb_gguf_path(f), tokens.n, types.n);
    for (size_t id = 0; tokens.n; id++) {
        const pb_gguf_text text = pb_gguf_next_text(&tokens);
        PB_TRY(add_token(f, text, pb_gguf_next_whole(&types), id, vocab, added));
    }
    return PB_OK;
}

static pb_status add_merges(const pb_gguf *f, json_t *merges)
{
    pb_gguf_list list = {0};
    PB_TRY(pb_gguf_get_texts(f, "tokenizer.ggml.merges", &list));
    for (size_t i = 0; list.n; i++) {
        const pb_gguf_text t = pb_gguf_next_text(&list);
        if (json_array_append_new(merges, json_stringn(t.p, t.n)) != 0)
            return pb_fail(PB_EINVAL, "%s: tokenizer.ggml.merges: merge %zu is not UTF-8", pb_gguf_path(f), i);
    }
    return PB_OK;
}

static json_t *byte_level(bool regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     regex);
}

static json_t *pre_tokenizer(int pre)
{
    json_t *list = json_array();
    if (pres[pre].digits)
        json_array_append_new(list, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    if (pres[pre].pattern)
        json_array_append_new(list, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                                              pres[pre].pattern, "behavior", "Isolated", "invert", 0));
    json_array_append_new(list, byte_level(!pres[pre].pattern));
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", list);
}

/* Finds the text of the token whose id the key has. *out stays unchanged if the key is absent. */
static pb_status token_of(const pb_gguf *f, const char *key, uint64_t *id, pb_gguf_text *out)
{
    pb_gguf_list tokens = {0};
    if (!pb_gguf_has(f, key)) return PB_OK;
    PB_TRY(pb_gguf_get_whole(f, key, id));
    PB_TRY(pb_gguf_get_texts(f, "tokenizer.ggml.tokens", &tokens));
    if (*id >= tokens.n)
        return pb_fail(PB_EINVAL, "%s: %s is %llu, but there are %zu tokens", pb_gguf_path(f), key,
                       (unsigned long long)*id, tokens.n);
    for (uint64_t i = 0; i <= *id; i++) *out = pb_gguf_next_text(&tokens);
    return PB_OK;
}

/* The template that puts the bos token before a text; JSON null: texts have none. */
static pb_status post_processor(const pb_gguf *f, int pre, json_t **out)
{
    bool bos = pres[pre].bos;
    uint64_t id = 0;
    pb_gguf_text text = {NULL, 0};
    *out = json_null();
    PB_TRY(pb_gguf_get_flag(f, "tokenizer.ggml.add_bos_token", &bos));
    PB_TRY(token_of(f, "tokenizer.ggml.bos_token_id", &id, &text));
    if (!bos || !text.p) return PB_OK;
    json_t *name = json_stringn(text.p, text.n);
    if (!name) return pb_fail(PB_EINVAL, "%s: the text of the bos token is not UTF-8", pb_gguf_path(f));
    json_t *single = json_pack("[{s:{s:O, s:i}}, {s:{s:s, s:i}}]", "SpecialToken", "id", name, "type_id", 0, "Sequence",
                               "id", "A", "type_id", 0);
    json_t *special = json_object();
    json_object_setn_new(special, text.p, text.n,
                         json_pack("{s:O, s:[I], s:[O]}", "id", name, "ids", (json_int_t)id, "tokens", name));
    json_decref(name);
    *out = json_pack("{s:s, s:o, s:[], s:o}", "type", "TemplateProcessing", "single", single, "pair", "special_tokens",
                     special);
    return *out ? PB_OK : no_memory(f);
}

static pb_status dump(const pb_gguf *f, json_t *root, size_t flags, char **out)
{
    *out = root ? json_dumps(root, flags) : NULL;
    return *out ? PB_OK : no_memory(f);
}

pb_status pb_hf_gguf_tokenizer(const pb_gguf *f, char **out)
{
    int pre = 0;
    PB_TRY(find_pre(f, &pre));
    json_t *vocab = json_object(), *added = json_array(), *merges = json_array(), *post = NULL;
    pb_status s = vocab && added && merges ? add_tokens(f, vocab, added) : no_memory(f);
    if (s == PB_OK) s = add_merges(f, merges);
    if (s == PB_OK) s = post_processor(f, pre, &post);
    if (s == PB_OK) {
        json_t *normalizer = pres[pre].nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
        json_t *model =
            json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O, s:O}", "type", "BPE", "dropout", "unk_token",
                      "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                      "ignore_merges", pres[pre].ignore_merges, "vocab", vocab, "merges", merges);
        json_t *root =
            json_pack("{s:s, s:n, s:n, s:O, s:o, s:o, s:O, s:o, s:o}", "version", "1.0", "truncation", "padding",
                      "added_tokens", added, "normalizer", normalizer, "pre_tokenizer", pre_tokenizer(pre),
                      "post_processor", post, "decoder", byte_level(true), "model", model);
        s = dump(f, root, JSON_COMPACT, out);
        json_decref(root);
    }
    json_decref(vocab);
    json_decref(added);
    json_decref(merges);
    json_decref(post);
    return s;
}

/* ---- tokenizer_config.json ---------------------------------------------------------------------------- */

static pb_status set_text(const pb_gguf *f, json_t *o, const char *name, const char *key, pb_gguf_text text)
{
    if (!text.p) return PB_OK;
    if (json_object_set_new(o, name, json_stringn(text.p, text.n)) == 0) return PB_OK;
    return pb_fail(PB_EINVAL, "%s: %s is not UTF-8", pb_gguf_path(f), key);
}

pb_status pb_hf_gguf_tokenizer_config(const pb_gguf *f, char **out)
{
    static const char *const names[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                           {"eos_token", "tokenizer.ggml.eos_token_id"},
                                           {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                           {"pad_token", "tokenizer.ggml.padding_token_id"}};
    static const char chat[] = "tokenizer.chat_template";
    pb_gguf_text template = {NULL, 0};
    json_t *o =
        json_pack("{s:s, s:b}", "tokenizer_class", "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0);
    pb_status s = o ? PB_OK : no_memory(f);
    for (size_t i = 0; s == PB_OK && i < sizeof names / sizeof *names; i++) {
        pb_gguf_text text = {NULL, 0};
        uint64_t id = 0;
        s = token_of(f, names[i][1], &id, &text);
        if (s == PB_OK) s = set_text(f, o, names[i][0], names[i][1], text);
    }
    if (s == PB_OK) s = pb_gguf_get_text(f, chat, &template);
    if (s == PB_OK) s = set_text(f, o, "chat_template", chat, template);
    if (s == PB_OK) s = dump(f, o, JSON_INDENT(2), out);
    json_decref(o);
    return s;
}

pb_status pb_hf_tokenizer_open(const char *path, pb_tokenizer **out)
{
    char *text = NULL;
    if (!path || !pb_gguf_is(path)) return pb_tokenizer_open(path, out);
    PB_TRY(pb_hf_gguf_text(path, pb_hf_gguf_tokenizer, &text));
    const pb_status s = pb_tokenizer_parse(path, text, strlen(text), out);
    free(text);
    return s;
}
