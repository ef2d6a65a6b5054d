/* gguf_load_test.c - tests that a model in a GGUF file is the model of the Hugging Face folder from which it was made:
 * geometry, weights, tokenizer and chat template; and that a file which asks for something else is refused. */
#include <jansson.h>

#include "os/disk.h"
#include "tests/folder_test.h"
#include "tests/test.h"
#include "trainer/hf/hf_config.h"
#include "trainer/hf/hf_gguf.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/hf_save.h"
#include "trainer/hf/hf_source.h"
#include "trainer/input/input.h"
#include "trainer/step/trainer.h"

#define GGUF PB_FIXTURES "/gguf/"
static const char *const families[] = {"qwen2", "qwen3", "llama"};

static pb_model load(pb_ctx *ctx, const char *path, pb_hf_config *c, pb_tuning tuning, pb_dtype dtype)
{
    pb_model m;
    CHECK_OK(pb_hf_config_open(path, c));
    pb_model_config cfg = pb_train_defaults(&c->g).model;
    cfg.tuning = tuning;
    cfg.dtype = dtype;
    cfg.blank = true;
    CHECK_OK(pb_model_open(ctx, &cfg, &m));
    CHECK_OK(pb_model_load_hf(&m, path, NULL));
    return m;
}

static void assert_same_weights(const pb_model *a, const pb_model *b)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        const pb_param *x = &a->params[i], *y = &b->params[i];
        const size_t n = pb_param_n(x);
        assert_string_equal(x->name, y->name);
        assert_int_equal(n, pb_param_n(y));
        if (x->w) assert_memory_equal(x->w, y->w, n * pb_dtype_size(x->dtype));
        if (x->q) assert_memory_equal(x->q, y->q, (n + 1) / 2);
    }
}

/* In every tuning and dtype; QLoRA reads chunks that do not begin at a row. */
static void weights_are_those_of_the_folder(void **state)
{
    for (int f = 0; f < 3; f++)
        for (int tuning = 0; tuning < PB_NTUNINGS; tuning++)
            for (int dtype = 0; dtype < PB_NFLOAT; dtype++) {
                char gguf[512], dir[512];
                pb_hf_config a, b;
                snprintf(gguf, sizeof gguf, GGUF "%s.gguf", families[f]);
                snprintf(dir, sizeof dir, PB_FIXTURES "/hf/%s", families[f]);
                pb_model x = load(*state, gguf, &a, (pb_tuning)tuning, (pb_dtype)dtype);
                pb_model y = load(*state, dir, &b, (pb_tuning)tuning, (pb_dtype)dtype);
                assert_same_weights(&x, &y);
                pb_model_close(&x), pb_model_close(&y);
            }
}

/* Large tensors are loaded in chunks, which may begin and end inside a row. */
static void any_range_of_permuted_rows_can_be_loaded(void **state)
{
    enum { ROWS = 64, COLUMNS = 64 };
    static const size_t ranges[][2] = {{5, 200}, {64, 64}, {100, 1}, {1000, 2000}};
    static float all[ROWS * COLUMNS], part[ROWS * COLUMNS];
    pb_hf_config c;
    pb_hf_list list;
    pb_hf_piece q;
    pb_hf_source *s = NULL;
    size_t i = 0;
    pb_model m = load(*state, GGUF "llama.gguf", &c, PB_FULL, PB_F32);
    CHECK_OK(pb_hf_tensors(&m, &list));
    while (strcmp(list.at[i].gguf, "blk.1.attn_q.weight") != 0) i++;
    CHECK_OK(pb_hf_source_open(GGUF "llama.gguf", &s));
    CHECK_OK(pb_hf_source_take(s, &m, &list.at[i], &q));
    assert_int_equal(q.n, ROWS * COLUMNS);
    CHECK_OK(pb_hf_piece_load(&q, 0, q.n, PB_F32, all));
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        CHECK_OK(pb_hf_piece_load(&q, ranges[k][0], ranges[k][1], PB_F32, part));
        assert_memory_equal(part, all + ranges[k][0], ranges[k][1] * sizeof *part);
    }
    pb_hf_source_close(s);
    free(list.at);
    pb_model_close(&m);
}

/* All fields but the name, and llama's scaling of RoPE, which GGUF files can only give as Llama 3.1's. */
static void the_geometry_is_that_of_the_folder(void **state)
{
    (void)state;
    for (int f = 0; f < 3; f++) {
        char gguf[512], dir[512];
        pb_hf_config a, b;
        snprintf(gguf, sizeof gguf, GGUF "%s.gguf", families[f]);
        snprintf(dir, sizeof dir, PB_FIXTURES "/hf/%s", families[f]);
        CHECK_OK(pb_hf_config_open(gguf, &a));
        CHECK_OK(pb_hf_config_open(dir, &b));
        const pb_geometry *x = &a.g, *y = &b.g;
        assert_int_equal(x->family, y->family);
        const int got[] = {x->V, x->D,       x->L,    x->H,    x->K,       x->d,
                           x->I, x->max_pos, x->tied, x->bias, x->qk_norm, x->o_bias};
        const int want[] = {y->V, y->D,       y->L,    y->H,    y->K,       y->d,
                            y->I, y->max_pos, y->tied, y->bias, y->qk_norm, y->o_bias};
        assert_memory_equal(got, want, sizeof got);
        assert_true(x->eps == y->eps && x->theta == y->theta);
        if (f < 2) assert_int_equal(x->rope.kind, y->rope.kind);
        if (f == 1) assert_int_equal(x->rope.kind, PB_ROPE_YARN);
        if (f < 2) assert_true(x->rope.factor == y->rope.factor && x->rope.original_len == y->rope.original_len);
        if (f < 2) assert_true(x->rope.attention == y->rope.attention && x->rope.truncate == y->rope.truncate);
        if (f == 2) assert_int_equal(x->rope.kind, PB_ROPE_LLAMA3);
        if (f == 2) assert_true(x->rope.factor == 8 && x->rope.low_freq == 1 && x->rope.high_freq == 4);
        if (f == 2) assert_true(x->rope.original_len == 8192);
    }
}

/* ---- tokenizers ------------------------------------------------------------------------------------------ */

/* Ids of all texts of tests/fixtures/tokenizers equal those of the tokenizer.json from which the file was made. */
static void tokenizers_give_the_same_ids(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "smollm", "qwen2", "llama3"};
    json_error_t e;
    json_t *root = json_load_file(PB_FIXTURES "/tokenizers/expected.json", JSON_ALLOW_NUL, &e), *text;
    json_t *texts = json_object_get(root, "texts");
    assert_true(json_array_size(texts) > 50);
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char path[512];
        pb_tokenizer *a = NULL, *b = NULL;
        size_t i;
        snprintf(path, sizeof path, GGUF "tokenizer-%s.gguf", names[k]);
        CHECK_OK(pb_hf_tokenizer_open(path, &a));
        snprintf(path, sizeof path, PB_FIXTURES "/tokenizers/%s.json", names[k]);
        CHECK_OK(pb_hf_tokenizer_open(path, &b));
        assert_int_equal(pb_tokenizer_vocab(a), pb_tokenizer_vocab(b));
        json_array_foreach(texts, i, text)
        {
            for (unsigned flags = 0; flags <= PB_TOK_PLAIN + PB_TOK_TEMPLATE; flags++) {
                pb_ids x = {0}, y = {0};
                const char *s = json_string_value(text);
                CHECK_OK(pb_tokenizer_encode(a, s, json_string_length(text), flags, &x));
                CHECK_OK(pb_tokenizer_encode(b, s, json_string_length(text), flags, &y));
                if (x.n != y.n || (x.n && memcmp(x.id, y.id, x.n * sizeof *x.id) != 0))
                    fail_msg("%s: text %zu has other ids", names[k], i);
                pb_ids_free(&x), pb_ids_free(&y);
            }
        }
        pb_tokenizer_close(a), pb_tokenizer_close(b);
    }
    json_decref(root);
}

static void the_input_takes_tokenizer_and_template_from_the_file(void **state)
{
    (void)state;
    static const char text[] = "ab<|im_start|>a<extra>";
    static const int32_t want[] = {256, 260, 'a', 258};
    pb_input in = {0};
    pb_tokenizer *t = NULL;
    pb_ids ids = {0};
    assert_true(pb_input_is_path(GGUF "qwen2.gguf"));
    CHECK_OK(pb_input_find_model(&in, GGUF "qwen2.gguf"));
    CHECK_OK(pb_input_find_text(&in, NULL, NULL, -1));
    assert_string_equal(in.path, GGUF "qwen2.gguf");
    assert_string_equal(in.geometry->name, "qwen2.gguf");
    assert_int_equal(in.chat.family, PB_TEMPLATE_CHATML);
    CHECK_OK(pb_input_open_tokenizer(&in, &in.chat, &t));
    assert_int_equal(pb_tokenizer_vocab(t), 262); /* the largest id plus one */
    CHECK_OK(pb_tokenizer_encode(t, text, sizeof text - 1, 0, &ids));
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.id, want, sizeof want);
    assert_true(pb_tokenizer_is_special(t, 260) && !pb_tokenizer_is_special(t, 258));
    CHECK_FAILS(pb_tokenizer_decode(t, &(int32_t){259}, 1, 0, &(pb_bytes){0}), PB_EINVAL, "259"); /* it is unused */
    pb_ids_free(&ids);
    pb_tokenizer_close(t);
}

/* ---- export ------------------------------------------------------------------------------------------------ */

/* A folder that is exported from a GGUF file has its geometry, weights and tokenizer. */
static void an_export_is_the_same_model(void **state)
{
    pb_hf_config a, b;
    pb_tokenizer *t = NULL;
    pb_chat_template found;
    pb_model x = load(*state, GGUF "llama.gguf", &a, PB_FULL, PB_F32);
    const pb_hf_text text = {GGUF "llama.gguf", GGUF "llama.gguf", NULL};
    CHECK_OK(pb_model_save_hf(&x, in_folder("out"), &(pb_hf_save_config){.text = &text}));
    pb_model y = load(*state, in_folder("out"), &b, PB_FULL, PB_F32);
    assert_same_weights(&x, &y);
    assert_int_equal(b.g.rope.kind, PB_ROPE_LLAMA3);
    assert_true(b.g.rope.factor == 8 && b.g.eps == a.g.eps && b.g.theta == a.g.theta);
    CHECK_OK(pb_tokenizer_open(in_folder("out"), &t));
    assert_int_equal(pb_tokenizer_vocab(t), 262);
    CHECK_OK(pb_chat_template_find(in_folder("out"), &found));
    assert_int_equal(found.family, PB_TEMPLATE_CHATML);
    pb_tokenizer_close(t);
    pb_model_close(&x), pb_model_close(&y);
}

/* ---- files that ask for something else -------------------------------------------------------------------- */

typedef struct bytes {
    char *p;
    size_t n;
} bytes;

static bytes read_fixture(const char *name)
{
    char path[512];
    bytes b;
    snprintf(path, sizeof path, GGUF "%s", name);
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, path, 1 << 20, &b.p, &b.n));
    return b;
}

/* Replaces `from` by `to`, of the same length, everywhere. */
static void change(bytes b, const char *from, const char *to)
{
    size_t found = 0;
    assert_int_equal(strlen(from), strlen(to));
    for (size_t i = 0; i + strlen(from) <= b.n; i++)
        if (memcmp(b.p + i, from, strlen(from)) == 0) memcpy(b.p + i, to, strlen(to)), found++;
    assert_true(found > 0);
}

/* Writes the bytes to a file, frees them, and reads the model from the file. */
static pb_status open_bytes(pb_ctx *ctx, bytes b)
{
    pb_hf_config c;
    pb_model m;
    (void)unlink(in_folder("x.gguf"));
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, in_folder("x.gguf"), b.p, b.n));
    free(b.p);
    PB_TRY(pb_hf_config_open(in_folder("x.gguf"), &c));
    pb_model_config cfg = pb_train_defaults(&c.g).model;
    cfg.tuning = PB_FULL;
    CHECK_OK(pb_model_open(ctx, &cfg, &m));
    const pb_status s = pb_model_load_hf(&m, in_folder("x.gguf"), NULL);
    pb_model_close(&m);
    return s;
}

static pb_status open_changed(pb_ctx *ctx, const char *name, const char *from, const char *to)
{
    const bytes b = read_fixture(name);
    change(b, from, to);
    return open_bytes(ctx, b);
}

static void other_models_are_refused(void **state)
{
    static const struct {
        const char *file, *from, *to;
        pb_status status;
        const char *says;
    } wrong[] = {
        {"small.gguf", "ffn_up", "ffn_xx", PB_EINVAL, "x.gguf has no tensor blk.0.ffn_up.weight"},
        {"small.gguf", "token_embd", "token_emb0", PB_EINVAL, "x.gguf has no matrix token_embd.weight"},
        {"small.gguf", "llama.block_count", "llama.block_c0unt", PB_EINVAL, "llama.block_count is missing or 0"},
        {"small.gguf", "llama", "gemma", PB_EFORMAT, "\"gemma\" is not one of llama, qwen2, qwen3"},
        {"small.gguf", "llama", "ll\033ma", PB_EINVAL, "contains control characters"},
        /* Qwen2 has biases on q, k and v, which this file lacks. */
        {"small.gguf", "llama", "qwen2", PB_EINVAL, "has no tensor blk.0.attn_q.bias"},
        /* Without a bias on o this Llama should have none on q, k and v. */
        {"llama.gguf", "attn_output.bias", "attn_outpu0.bias", PB_EFORMAT,
         "x.gguf: tensor blk.0.attn_k.bias is no part of the model"},
        {"llama.gguf", "rope_freqs.", "rope_freq0.", PB_EFORMAT, "tensor rope_freq0.weight is no part of the model"},
        {"qwen3.gguf", "blk.1.", "blk.9.", PB_EINVAL, "has no tensor blk.1.attn_norm.weight"},
        {"qwen3.gguf", "yarn", "su.r", PB_EFORMAT, "qwen3.rope.scaling.type: only none, linear and yarn"},
    };
    CHECK_OK(open_changed(*state, "small.gguf", "llama", "llama"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const pb_status s = open_changed(*state, wrong[i].file, wrong[i].from, wrong[i].to);
        CHECK_FAILS(s, wrong[i].status, wrong[i].says);
    }
}

static size_t put(char *to, const void *from, size_t n)
{
    memcpy(to, from, n);
    return n;
}

/* Inserts two entries into the metadata: `key`, whose value of type `kind` is value[n]; and a text that makes the
 * inserted bytes a multiple of the alignment, so that the tensors stay aligned. */
static bytes with_entry(bytes b, const char *key, uint32_t kind, const void *value, size_t n)
{
    enum { ENTRIES = 16, FIRST = 24, TEXT = 8 };
    char more[512] = "";
    const uint32_t text = TEXT;
    const uint64_t key_n = strlen(key), one = 1;
    uint64_t entries;
    size_t at = put(more, &key_n, 8);
    at += put(more + at, key, key_n);
    at += put(more + at, &kind, 4);
    at += put(more + at, value, n);
    at += put(more + at, &one, 8);
    at += put(more + at, "~", 1);
    at += put(more + at, &text, 4);
    const uint64_t pad = (32 - (at + 8) % 32) % 32;
    at += put(more + at, &pad, 8);
    memset(more + at, 'x', pad);
    at += pad;
    bytes out = {malloc(b.n + at), b.n + at};
    assert_non_null(out.p);
    memcpy(out.p, b.p, FIRST);
    memcpy(out.p + FIRST, more, at);
    memcpy(out.p + FIRST + at, b.p + FIRST, b.n - FIRST);
    memcpy(&entries, out.p + ENTRIES, 8);
    entries += 2;
    memcpy(out.p + ENTRIES, &entries, 8);
    free(b.p);
    return out;
}

/* Metadata that ask for what no model here computes are refused by their key. */
static void other_features_are_refused(void **state)
{
    enum { U32 = 4, F32 = 6, FLAG = 7, TEXT = 8 };
    static const uint32_t three = 3, sixteen = 16;
    static const float half = 0.5f;
    static const struct {
        const char *key;
        uint32_t kind;
        const void *value;
        size_t n;
        pb_status status;
        const char *says;
    } wrong[] = {
        {"llama.expert_count", U32, &three, 4, PB_EFORMAT, "llama.expert_count: this feature is not supported"},
        {"llama.attention.sliding_window", U32, &three, 4, PB_EFORMAT, "llama.attention.sliding_window: this feature"},
        {"llama.attention.causal", FLAG, "", 1, PB_EFORMAT, "only causal attention"},
        {"llama.attention.value_length", U32, &three, 4, PB_EFORMAT, "heads of keys and values differ"},
        {"llama.rope.dimension_count", U32, &three, 4, PB_EFORMAT, "only whole heads can be rotated"},
        {"llama.rope.dimension_count", F32, &half, 4, PB_EINVAL, "llama.rope.dimension_count is not a whole number"},
        {"llama.rope.scaling.attn_factor", F32, &half, 4, PB_EFORMAT, "attn_factor: this scaling is not supported"},
        {"llama.rope.scaling.type", TEXT, "\x04\0\0\0\0\0\0\0long", 12, PB_EFORMAT, "only none, linear and yarn"},
        {"llama.rope.scaling.type", TEXT, "\x06\0\0\0\0\0\0\0linear", 14, PB_EINVAL,
         "llama.rope.scaling.factor is missing"},
        {"split.count", U32, &three, 4, PB_EFORMAT, "x.gguf is one of 3 parts"},
        {"general.type", TEXT, "\x05\0\0\0\0\0\0\0model", 13, PB_OK, ""},
        {"general.type", TEXT, "\x05\0\0\0\0\0\0\0mmpro", 13, PB_EFORMAT, "the file holds no whole model"},
        {"general.architecture", U32, &three, 4, PB_EINVAL, "general.architecture is given twice"},
        {"llama.attention.value_length", U32, &sixteen, 4, PB_OK, ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const bytes b = with_entry(read_fixture("small.gguf"), wrong[i].key, wrong[i].kind, wrong[i].value, wrong[i].n);
        const pb_status s = open_bytes(*state, b);
        if (wrong[i].status == PB_OK) CHECK_OK(s);
        else CHECK_FAILS(s, wrong[i].status, wrong[i].says);
    }
}

/* Factors of RoPE's frequencies that are not Llama 3.1's are refused. */
static void other_rope_factors_are_refused(void **state)
{
    (void)state;
    const bytes b = read_fixture("llama.gguf");
    pb_gguf *f = NULL;
    char *text = NULL;
    CHECK_OK(pb_gguf_parse("x.gguf", b.p, b.n, &f));
    const pb_gguf_tensor *t = pb_gguf_find(f, "rope_freqs.weight");
    assert_non_null(t);
    CHECK_OK(pb_hf_gguf_config(f, &text));
    free(text);
    for (size_t i = 0; i < t->n; i++) {
        char *at = b.p + ((const char *)t->data - b.p) + 4 * i;
        float v, changed;
        memcpy(&v, at, 4);
        changed = v * 1.01f;
        memcpy(at, &changed, 4);
        CHECK_FAILS(pb_hf_gguf_config(f, &text), PB_EFORMAT, "these factors are not those of Llama 3.1's RoPE");
        memcpy(at, &v, 4);
    }
    pb_gguf_close(f);
    free(b.p);
}

static pb_status tokenizer_changed(const char *from, const char *to)
{
    const bytes b = read_fixture("small.gguf");
    pb_tokenizer *t = NULL;
    change(b, from, to);
    (void)unlink(in_folder("x.gguf"));
    CHECK_OK(pb_disk_write_file(&pb_disk_posix, in_folder("x.gguf"), b.p, b.n));
    free(b.p);
    const pb_status s = pb_hf_tokenizer_open(in_folder("x.gguf"), &t);
    pb_tokenizer_close(t);
    return s;
}

static void other_tokenizers_are_refused(void **state)
{
    (void)state;
    CHECK_FAILS(tokenizer_changed("gpt2", "bert"), PB_EFORMAT, "tokenizer.ggml.model \"bert\" is not gpt2");
    CHECK_FAILS(tokenizer_changed("smollm", "smallm"), PB_EFORMAT,
                "tokenizer.ggml.pre \"smallm\" is not one of gpt-2, smollm, qwen2, llama-bpe");
    CHECK_FAILS(tokenizer_changed("<s>", "<\xff>"), PB_EINVAL, "the text of token 3 is not UTF-8");
    CHECK_FAILS(tokenizer_changed("a b", "a c"), PB_EINVAL, "x.gguf: model: merge 0: \"c\" is not in the vocabulary");
    CHECK_FAILS(tokenizer_changed("ggml.token_type", "ggml.token_typo"), PB_EINVAL,
                "tokenizer.ggml.tokens has 4 elements, tokenizer.ggml.token_type 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_the_folder),
        cmocka_unit_test(any_range_of_permuted_rows_can_be_loaded),
        cmocka_unit_test(the_geometry_is_that_of_the_folder),
        cmocka_unit_test(tokenizers_give_the_same_ids),
        cmocka_unit_test(the_input_takes_tokenizer_and_template_from_the_file),
        cmocka_unit_test(an_export_is_the_same_model),
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(other_features_are_refused),
        cmocka_unit_test(other_rope_factors_are_refused),
        cmocka_unit_test(other_tokenizers_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
