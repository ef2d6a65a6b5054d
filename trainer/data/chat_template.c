/* chat_template.c - finds a model's chat template, and recognises it by the conversations it renders. */
#include "trainer/data/chat_template.h"

#include <stdio.h>
#include <unistd.h>

#include "os/disk.h"
#include "os/file.h"
#include "trainer/data/chat_impl.h"
#include "trainer/data/jinja.h"

/* ---- recognising a template by its output ------------------------------------------------------------- */

#define USER(text)      "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SYSTEM(text)    "{\"role\":\"system\",\"content\":\"" text "\"},"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define REASONED(a, b)  "{\"role\":\"assistant\",\"content\":\"" a "\",\"reasoning_content\":\"" b "\"}"
#define CALL(text)                                                                                                     \
    "{\"role\":\"assistant\",\"content\":\"" text "\",\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":"  \
    "\"f\",\"arguments\":{\"x\":1}}},{\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{}}}]}"
#define RESULTS "{\"role\":\"tool\",\"content\":\"r1\"},{\"role\":\"tool\",\"content\":\"r2\"}"
#define TOOLS                                                                                                          \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":"   \
    "\"object\",\"properties\":{}}}}]"

enum { PLAIN = 1, WITH_TOOLS = 2, WITH_REASONING = 4 };
static const struct {
    int needs;
    const char *line;
} probes[] = {
    {PLAIN, "{\"messages\":[" USER("u1") "," ASSISTANT("a1") "]}"},
    {PLAIN, "{\"messages\":[" SYSTEM("s") USER("u1") "," ASSISTANT("a1") "," USER("u2") "," ASSISTANT("a2") "]}"},
    {PLAIN, "{\"messages\":[" SYSTEM(" s\\n ")
                USER("\\n u1 ") "," ASSISTANT("a1\\n") "," USER("u2\\n\\n") "," ASSISTANT("  a2\\n\\n b") "]}"},
    {PLAIN, "{\"messages\":[" USER("u1") "," ASSISTANT("") "," USER("u2") "," ASSISTANT("a2") "]}"},
    {WITH_TOOLS, "{\"messages\":[" SYSTEM("s") USER("u1") "," CALL("") "," RESULTS "," ASSISTANT("a1") "]," TOOLS "}"},
    {WITH_TOOLS, "{\"messages\":[" USER("u1") "," CALL("c") "," RESULTS "," ASSISTANT("a1") "," USER(
                     "u2") "," ASSISTANT("a2") "]," TOOLS "}"},
    {WITH_REASONING,
     "{\"messages\":[" USER("u1") "," REASONED("a1", "w1") "," USER("u2") "," REASONED("\\na2", "\\nw2\\n") "]}"},
    {WITH_REASONING, "{\"messages\":[" USER("u1") "," ASSISTANT("<think>\\nw1\\n</think>\\n\\na1") "]}"},
};
enum { PROBES = sizeof probes / sizeof *probes };

/* The families in the order in which they are tried. Qwen3 and Qwen2.5 come first, because ChatML would match the plain
 * probes of their templates too. */
static const struct {
    pb_template family;
    int defines;
} candidates[] = {{PB_TEMPLATE_QWEN3, PLAIN | WITH_TOOLS | WITH_REASONING},
                  {PB_TEMPLATE_QWEN2_5, PLAIN | WITH_TOOLS},
                  {PB_TEMPLATE_LLAMA3, PLAIN},
                  {PB_TEMPLATE_CHATML, PLAIN}};

typedef struct trial {
    pb_chat_options o;
    pb_rendered r;
} trial;

static pb_status render(void *self, const pb_chat *chat)
{
    trial *t = self;
    return pb_chat_render(chat, &t->o, &t->r);
}

/* Renders the probe `line`, a JSON conversation, with the model's own Jinja template, text[n]. */
static pb_status render_jinja(const char *text, size_t n, json_t *variables, const char *line, pb_bytes *out)
{
    json_error_t e;
    json_t *context = json_loads(line, 0, &e);
    json_t *tools = json_object_get(context, "tools");
    if (!context || json_object_update(context, variables) != 0 ||
        json_object_set(context, "tools", tools ? tools : json_null()) != 0 ||
        json_object_set_new(context, "documents", json_null()) != 0 ||
        json_object_set_new(context, "add_generation_prompt", json_false()) != 0) {
        json_decref(context);
        return pb_fail(PB_ENOMEM, "no memory for a chat template");
    }
    out->n = 0;
    const pb_status s = pb_jinja_render(text, n, context, out);
    json_decref(context);
    return s;
}

/* Sets *yes to true if the family renders every probe of the features that it supports exactly as the model's own
 * template does. texts[i]: probe i rendered by the model's own template; its p is NULL if that template rejected it. */
static pb_status agrees(trial *t, int defines, const pb_bytes *texts, bool *yes)
{
    *yes = false;
    for (size_t i = 0; i < PROBES; i++) {
        pb_jsonl_counts c;
        if (!(probes[i].needs & defines)) continue;
        if (!texts[i].p) return PB_OK;
        const char *line = probes[i].line;
        PB_TRY(pb_jsonl_parse("probe", line, strlen(line), PB_BAD_LINES_FAIL, render, t, &c));
        if (t->r.text.n != texts[i].n || memcmp(t->r.text.p, texts[i].p, texts[i].n) != 0) return PB_OK;
    }
    *yes = true;
    return PB_OK;
}

/* Copies the default system message from the rendering of the first probe, which has no system message: the text
 * between the headers of the system turn and of the first user turn. "": there is no system turn. */
static pb_status take_system(const pb_bytes *text, char *out)
{
    static const char head[] = "<|im_start|>system\n", tail[] = "<|im_end|>\n<|im_start|>user\nu1<|im_end|>";
    const pb_json_text whole = {text->p, text->n};
    *out = 0;
    if (text->n < sizeof head - 1 || memcmp(text->p, head, sizeof head - 1) != 0) return PB_OK;
    const char *a = text->p + sizeof head - 1, *b = pb_find(whole, tail, false);
    if (!b || b < a || b - a >= PB_LONGEST_SYSTEM) return pb_fail(PB_EFORMAT, "its default system message is too long");
    memcpy(out, a, (size_t)(b - a));
    out[b - a] = 0;
    return PB_OK;
}

static pb_status choose(const pb_bytes *texts, pb_chat_template *out)
{
    trial t = {0};
    bool yes = false;
    PB_TRY(take_system(&texts[0], out->system));
    t.o.system = out->system;
    pb_status s = PB_OK;
    for (size_t i = 0; s == PB_OK && !yes && i < sizeof candidates / sizeof *candidates; i++) {
        t.o.family = out->family = candidates[i].family;
        s = agrees(&t, candidates[i].defines, texts, &yes);
    }
    pb_rendered_free(&t.r);
    if (s != PB_OK || yes) return s;
    return pb_fail(PB_EFORMAT, "it renders conversations differently from every supported template");
}

static pb_status recognise(const char *text, size_t n, json_t *variables, pb_chat_template *out)
{
    pb_bytes texts[PROBES] = {0};
    pb_status s = PB_OK;
    for (size_t i = 0; s == PB_OK && i < PROBES; i++) {
        s = render_jinja(text, n, variables, probes[i].line, &texts[i]);
        if (s == PB_OK) s = pb_tok_append(&texts[i], "", 1), texts[i].n -= s == PB_OK;
        if (s != PB_EFORMAT || i == 0) continue;
        pb_bytes_free(&texts[i]); /* a template may reject tools or reasoning if it does not support them */
        s = PB_OK;
    }
    if (s == PB_OK) s = choose(texts, out);
    for (size_t i = 0; i < PROBES; i++) pb_bytes_free(&texts[i]);
    return s;
}

/* ---- finding the template in a tokenizer's folder ----------------------------------------------------- */

static const char jinja_file[] = "chat_template.jinja", config_file[] = "tokenizer_config.json";

/* Returns the template of a tokenizer_config.json: a string, or the entry "default" of a list; NULL: the file has no
 * template. */
static json_t *of_config(json_t *config)
{
    json_t *v = json_object_get(config, "chat_template"), *one;
    size_t i;
    if (!json_is_array(v)) return json_is_null(v) ? NULL : v;
    json_array_foreach(v, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && !strcmp(name, "default")) return json_object_get(one, "template");
    }
    return v;
}

/* Collects the variables that transformers takes from tokenizer_config.json and passes to a template: bos_token,
 * eos_token and every other key that ends in "_token". */
static pb_status tokens_of(json_t *config, json_t **out)
{
    const char *key;
    json_t *v;
    *out = json_object();
    json_object_foreach(config, key, v)
    {
        const size_t n = strlen(key);
        if (n < 6 || strcmp(key + n - 6, "_token") != 0) continue;
        json_t *text = json_is_object(v) ? json_object_get(v, "content") : v;
        if (json_is_string(text)) json_object_set(*out, key, text);
    }
    return *out ? PB_OK : pb_fail(PB_ENOMEM, "no memory for a chat template");
}

static pb_status judge(const char *folder, const char *jinja, size_t jinja_n, json_t *config, pb_chat_template *out)
{
    json_t *text = of_config(config), *tokens = NULL;
    char why[256];
    out->file = jinja ? jinja_file : text ? config_file : NULL;
    if (!out->file) return PB_OK;
    if (!jinja && !json_is_string(text))
        return pb_fail(PB_EINVAL,
                       "%s/%s: \"chat_template\" is neither a text nor a list with a template named \"default\"",
                       folder, config_file);
    PB_TRY(tokens_of(config, &tokens));
    const pb_status s =
        recognise(jinja ? jinja : json_string_value(text), jinja ? jinja_n : json_string_length(text), tokens, out);
    json_decref(tokens);
    if (s != PB_EFORMAT) return s;
    snprintf(why, sizeof why, "%s", pb_error());
    return pb_fail(s, "%s/%s: the chat template is not supported: %s; choose one with --template NAME", folder,
                   out->file, why);
}

pb_status pb_chat_template_parse(const char *folder, const char *jinja, size_t jinja_n, const char *config,
                                 size_t config_n, pb_chat_template *out)
{
    json_error_t e;
    json_t *root = config ? json_loadb(config, config_n, 0, &e) : NULL;
    *out = (pb_chat_template){0};
    pb_status s = PB_OK;
    if (config && !root) s = pb_fail(PB_EINVAL, "%s/%s: line %d: %s", folder, config_file, e.line, e.text);
    else if (root && !json_is_object(root)) s = pb_fail(PB_EINVAL, "%s/%s is not a JSON object", folder, config_file);
    if (s == PB_OK) s = judge(folder, jinja, jinja_n, root, out);
    json_decref(root);
    return s;
}

/* Reads a file if it exists; *text stays NULL otherwise. */
static pb_status read_if_there(const char *folder, const char *name, char **text, size_t *n)
{
    enum { LARGEST = 1 << 24 };
    char *path = NULL;
    PB_TRY(pb_path_join(folder, name, &path));
    const pb_status s = access(path, F_OK) == 0 ? pb_disk_read_file(&pb_disk_posix, path, LARGEST, text, n) : PB_OK;
    free(path);
    return s;
}

pb_status pb_chat_template_find(const char *folder, pb_chat_template *out)
{
    char *jinja = NULL, *config = NULL;
    size_t jinja_n = 0, config_n = 0;
    pb_status s = read_if_there(folder, jinja_file, &jinja, &jinja_n);
    if (s == PB_OK) s = read_if_there(folder, config_file, &config, &config_n);
    if (s == PB_OK) s = pb_chat_template_parse(folder, jinja, jinja_n, config, config_n, out);
    free(jinja);
    free(config);
    return s;
}

/* ---- checking the template's special tokens ----------------------------------------------------------- */

const char *const *pb_chat_template_marks(pb_template family)
{
    static const char *const bytes[] = {"<im_start>", "<im_end>", NULL};
    static const char *const chatml[] = {"<|im_start|>", "<|im_end|>", NULL};
    static const char *const llama3[] = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                                         NULL};
    static const char *const deepseek_v4[] = {PB_DSV4_BOS, PB_DSV4_EOS, PB_DSV4_USER, PB_DSV4_ASSISTANT, NULL};
    switch (family) {
    case PB_TEMPLATE_BYTES: return bytes;
    case PB_TEMPLATE_LLAMA3: return llama3;
    case PB_TEMPLATE_DEEPSEEK_V4: return deepseek_v4;
    default: return chatml;
    }
}

pb_status pb_chat_template_check(pb_template family, pb_tokenizer *t)
{
    pb_ids ids = {0};
    for (const char *const *mark = pb_chat_template_marks(family); *mark; mark++) {
        ids.n = 0;
        const pb_status s = pb_tokenizer_encode(t, *mark, strlen(*mark), 0, &ids);
        const size_t n = ids.n;
        if (s == PB_OK && n == 1) continue;
        pb_ids_free(&ids);
        if (s != PB_OK && s != PB_EINVAL) return s;
        return pb_fail(PB_EINVAL,
                       "the template's special token \"%s\" is %zu tokens of this tokenizer, but must be one: choose "
                       "another template "
                       "with --template",
                       *mark, n);
    }
    pb_ids_free(&ids);
    return PB_OK;
}
