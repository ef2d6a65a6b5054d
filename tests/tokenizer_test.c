/* tokenizer_test.c - tokenizers against what Hugging Face's library gave (tests/fixtures/tokenizers, written by
 * scripts/fixtures/tokenizer_fixtures.py), and what no comparison can show: bytes that are not UTF-8, refusals, time.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sha256.h"
#include "tests/test.h"
#include "trainer/data.h"
#include "trainer/tokenizer/pattern.h"
#include "trainer/tokenizer/tokenizer.h"

#define FOLDER PB_FIXTURES "/tokenizers/"

static json_t *expected; /* expected.json, for the whole run */

static pb_tokenizer *open_fixture(const char *file)
{
    char path[256];
    pb_tokenizer *t = NULL;
    snprintf(path, sizeof path, FOLDER "%s", file);
    CHECK_OK(pb_tokenizer_open(path, &t));
    return t;
}

static const json_t *get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!v) fail_msg("expected.json has no \"%s\"", key);
    return v;
}

static pb_ids encode(pb_tokenizer *t, const char *s, size_t n, unsigned flags)
{
    pb_ids ids = {0};
    CHECK_OK(pb_tokenizer_encode(t, s, n, flags, &ids));
    return ids;
}

/* The text must give these ids. */
static void check_ids(pb_tokenizer *t, const json_t *text, unsigned flags, const json_t *want, const char *what)
{
    pb_ids ids = encode(t, json_string_value(text), json_string_length(text), flags);
    if (ids.n != json_array_size(want))
        fail_msg("%s: %zu ids, want %zu: %s", what, ids.n, json_array_size(want), json_string_value(text));
    for (size_t k = 0; k < ids.n; k++) {
        const int got = ids.id[k], one = (int)json_integer_value(json_array_get(want, k));
        if (got != one) fail_msg("%s: id %zu is %d, want %d: %s", what, k, got, one, json_string_value(text));
    }
    pb_ids_free(&ids);
}

static void check_decoded(pb_tokenizer *t, const json_t *text, unsigned flags, const json_t *want, const char *what)
{
    pb_ids ids = encode(t, json_string_value(text), json_string_length(text), 0);
    pb_bytes got = {0};
    CHECK_OK(pb_tokenizer_decode(t, ids.id, ids.n, flags, &got));
    if (got.n != json_string_length(want) || (got.n && memcmp(got.p, json_string_value(want), got.n) != 0))
        fail_msg("%s: decoded '%.*s', want '%s'", what, (int)got.n, got.n ? got.p : "", json_string_value(want));
    pb_ids_free(&ids);
    pb_bytes_free(&got);
}

/* Entry i of a table that holds only what differs from the usual. */
static const json_t *unless(const json_t *table, size_t i, const json_t *usual)
{
    char key[24];
    snprintf(key, sizeof key, "%zu", i);
    const json_t *v = json_object_get(table, key);
    return v ? v : usual;
}

static void ids_and_texts_are_those_of_the_library(void **state)
{
    const json_t *texts = get(expected, "texts"), *c, *text;
    size_t i, k;
    (void)state;
    assert_true(json_array_size(texts) > 80 && json_array_size(get(expected, "cases")) > 10);
    json_array_foreach(get(expected, "cases"), k, c)
    {
        const char *file = json_string_value(get(c, "file"));
        pb_tokenizer *t = open_fixture(file);
        assert_int_equal(pb_tokenizer_vocab(t), json_integer_value(get(c, "vocab")));
        for (int pass = 0; pass < 2; pass++) /* the second comes out of the cache */
            json_array_foreach(texts, i, text)
            {
                const json_t *ids = json_array_get(get(c, "ids"), i);
                check_ids(t, text, 0, ids, file);
                check_ids(t, text, PB_TOK_PLAIN, unless(get(c, "plain"), i, ids), file);
                check_ids(t, text, PB_TOK_TEMPLATE, unless(get(c, "template"), i, ids), file);
                const json_t *all = unless(get(c, "decoded"), i, text);
                check_decoded(t, text, 0, all, file);
                check_decoded(t, text, PB_TOK_SKIP_SPECIAL, unless(get(c, "skipped"), i, all), file);
            }
        pb_tokenizer_close(t);
    }
}

static pb_bytes repeat(const char *unit, size_t unit_n, size_t times, const char *end)
{
    pb_bytes b = {malloc(unit_n * times + strlen(end) + 1), 0, 0};
    assert_non_null(b.p);
    for (size_t i = 0; i < times; i++, b.n += unit_n) memcpy(b.p + b.n, unit, unit_n);
    memcpy(b.p + b.n, end, strlen(end) + 1);
    b.n += strlen(end);
    return b;
}

/* What looks like source code: pieces in the order of a linear congruential sequence. */
static pb_bytes source_text(void)
{
    const json_t *pieces = get(expected, "pieces");
    const size_t size = (size_t)json_integer_value(get(expected, "size"));
    uint64_t x = (uint64_t)json_integer_value(get(expected, "seed"));
    pb_bytes b = {malloc(size + 256), 0, 0};
    assert_non_null(b.p);
    while (b.n < size) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const json_t *p = json_array_get(pieces, (size_t)(x >> 33) % json_array_size(pieces));
        memcpy(b.p + b.n, json_string_value(p), json_string_length(p));
        b.n += json_string_length(p);
    }
    return b;
}

/* want: [count, sha256 of the ids as little-endian int32]. Takes the text. */
static void check_digest(pb_tokenizer *t, pb_bytes text, const json_t *want, const char *what)
{
    char hex[65];
    pb_ids ids = encode(t, text.p, text.n, 0);
    if (ids.n != (size_t)json_integer_value(json_array_get(want, 0)))
        fail_msg("%s: %zu ids of %.20s..., want %d", what, ids.n, text.p,
                 (int)json_integer_value(json_array_get(want, 0)));
    sha256_hex(ids.id, ids.n * sizeof *ids.id, hex);
    if (strcmp(hex, json_string_value(json_array_get(want, 1))) != 0)
        fail_msg("%s: other ids of %.20s...", what, text.p);
    pb_ids_free(&ids);
    pb_bytes_free(&text);
}

static void long_texts_have_the_same_ids(void **state)
{
    const json_t *c, *r;
    size_t i, k;
    (void)state;
    json_array_foreach(get(expected, "cases"), k, c)
    {
        const char *file = json_string_value(get(c, "file"));
        pb_tokenizer *t = open_fixture(file);
        check_digest(t, source_text(), get(c, "source"), file);
        json_array_foreach(get(expected, "repeated"), i, r)
        {
            const json_t *unit = json_array_get(r, 0);
            pb_bytes text =
                repeat(json_string_value(unit), json_string_length(unit),
                       (size_t)json_integer_value(json_array_get(r, 1)), json_string_value(json_array_get(r, 2)));
            check_digest(t, text, json_array_get(get(c, "repeated"), i), file);
        }
        pb_tokenizer_close(t);
    }
}

static double seconds_to_encode(pb_tokenizer *t, const char *unit, size_t times)
{
    pb_bytes text = repeat(unit, strlen(unit), times, "");
    double best = INFINITY;
    for (int i = 0; i < 3; i++) {
        const clock_t from = clock();
        pb_ids ids = encode(t, text.p, text.n, 0);
        const double took = (double)(clock() - from) / CLOCKS_PER_SEC;
        if (took < best) best = took;
        pb_ids_free(&ids);
    }
    pb_bytes_free(&text);
    return best;
}

/* Sixteen times the text: about 20 times the time when n log n, 256 times when quadratic. */
static void time_is_not_quadratic(void **state)
{
    static const char *const units[] = {"a", "ab", " ", "\n ", "\xcc\xa3\xcc\x81", "<|", " <mask>", " <right>", "\xff"};
    pb_tokenizer *t = open_fixture("flags.json");
    (void)state;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const double small = seconds_to_encode(t, units[i], 12500), large = seconds_to_encode(t, units[i], 200000);
        if (!(large < 80 * (small + 1e-4))) fail_msg("'%s': %g s, 16 times as many %g s", units[i], small, large);
    }
    pb_tokenizer_close(t);
}

static void check_round_trip(pb_tokenizer *t, const char *s, size_t n)
{
    pb_ids ids = encode(t, s, n, 0);
    pb_bytes back = {0};
    CHECK_OK(pb_tokenizer_decode(t, ids.id, ids.n, 0, &back));
    assert_int_equal(back.n, n);
    if (n) assert_memory_equal(back.p, s, n);
    pb_ids_free(&ids);
    pb_bytes_free(&back);
}

static void bytes_that_are_not_utf8_survive(void **state)
{
    static const char *const bad[] = {
        "\xff",     "\xc3",     "\xe2\x82",         "\xf0\x9f\x91", "\xed\xa0\x80", "\xf4\x90\x80\x80",
        "\xc0\x80", "\x80\x80", "\xe0\x80\xaf\xfe", "\xc3\xc3"};
    pb_tokenizer *bytes = NULL;
    pb_tokenizer *t[] = {open_fixture("gpt2.json"), open_fixture("llama3.json"), open_fixture("qwen2.json"), NULL};
    char text[64];
    (void)state;
    CHECK_OK(pb_tokenizer_open(NULL, &bytes));
    t[3] = bytes;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int k = 0; k < 4; k++) {
            /* before, after and between valid text; and the valid parts have the ids they have alone */
            const int n = snprintf(text, sizeof text, "%sHello 42%s world's %s", bad[i], bad[i], bad[i]);
            check_round_trip(t[k], text, (size_t)n);
            pb_ids all = encode(t[k], text, (size_t)n, 0), alone = encode(t[k], bad[i], strlen(bad[i]), 0);
            pb_ids parts = {0};
            CHECK_OK(pb_tokenizer_encode(t[k], bad[i], strlen(bad[i]), 0, &parts));
            CHECK_OK(pb_tokenizer_encode(t[k], "Hello 42", 8, 0, &parts));
            CHECK_OK(pb_tokenizer_encode(t[k], bad[i], strlen(bad[i]), 0, &parts));
            CHECK_OK(pb_tokenizer_encode(t[k], " world's ", 9, 0, &parts));
            CHECK_OK(pb_tokenizer_encode(t[k], bad[i], strlen(bad[i]), 0, &parts));
            assert_int_equal(all.n, parts.n);
            assert_memory_equal(all.id, parts.id, all.n * sizeof *all.id);
            assert_true(alone.n > 0);
            pb_ids_free(&all);
            pb_ids_free(&alone);
            pb_ids_free(&parts);
        }
    for (int k = 0; k < 4; k++) pb_tokenizer_close(t[k]);
}

static void without_bytes_such_text_is_refused(void **state)
{
    pb_tokenizer *t = open_fixture("llama2.json");
    pb_ids ids = {0};
    (void)state;
    CHECK_OK(pb_tokenizer_encode(t, "ab", 2, 0, &ids));
    const size_t n = ids.n;
    CHECK_FAILS(pb_tokenizer_encode(t, "abc\xff", 4, PB_TOK_TEMPLATE, &ids), PB_EINVAL, "byte 3 is not UTF-8");
    assert_int_equal(ids.n, n);
    pb_ids_free(&ids);
    pb_tokenizer_close(t);
}

static void every_byte_round_trips(void **state)
{
    char all[512];
    pb_tokenizer *t = open_fixture("gpt2.json");
    (void)state;
    for (int i = 0; i < 512; i++) all[i] = (char)(i < 256 ? i : i * 167 + 13);
    for (size_t n = 0; n <= sizeof all; n += 31) check_round_trip(t, all, n);
    check_round_trip(t, all, sizeof all);
    pb_tokenizer_close(t);
}

static void the_byte_tokenizer_needs_no_file(void **state)
{
    pb_tokenizer *t = NULL;
    int32_t id = -1;
    const char text[] = "<im_start>user\n\xff<im_end>";
    (void)state;
    CHECK_OK(pb_tokenizer_open(NULL, &t));
    assert_int_equal(pb_tokenizer_vocab(t), PB_BYTE_VOCAB);
    CHECK_OK(pb_tokenizer_special(t, "<im_end>", &id));
    assert_int_equal(id, PB_TOKEN_END);
    pb_ids ids = encode(t, text, sizeof text - 1, 0);
    const int32_t want[] = {PB_TOKEN_START, 'u', 's', 'e', 'r', '\n', 255, PB_TOKEN_END};
    assert_int_equal(ids.n, 8);
    assert_memory_equal(ids.id, want, sizeof want);
    pb_bytes back = {0};
    CHECK_OK(pb_tokenizer_decode(t, ids.id, ids.n, PB_TOK_SKIP_SPECIAL, &back));
    assert_int_equal(back.n, 6);
    assert_memory_equal(back.p, "user\n\xff", 6);
    pb_bytes_free(&back);
    pb_ids_free(&ids);
    ids = encode(t, text, sizeof text - 1, PB_TOK_PLAIN);
    assert_int_equal(ids.n, sizeof text - 1);
    for (size_t i = 0; i < ids.n; i++) assert_int_equal(ids.id[i], (unsigned char)text[i]);
    pb_ids_free(&ids);
    pb_bytes many = repeat("x\n", 2, 100001, "<im_end>"); /* beyond one chunk */
    ids = encode(t, many.p, many.n, 0);
    assert_int_equal(ids.n, 200003);
    check_round_trip(t, many.p, many.n);
    pb_ids_free(&ids);
    pb_bytes_free(&many);
    pb_tokenizer_close(t);
}

/* So many words that the cache is emptied on the way, and words on both sides of the longest it keeps. */
static void ids_do_not_depend_on_the_cache(void **state)
{
    pb_tokenizer *used = open_fixture("gpt2.json"), *fresh = open_fixture("gpt2.json");
    char word[128];
    (void)state;
    for (int i = 0; i < 60000; i++) {
        const int n = snprintf(word, sizeof word, " %x", i * 2654435761u), more = i % 97;
        if (more > n) memset(word + n, 'a' + i % 26, (size_t)(more - n));
        pb_ids ids = encode(used, word, (size_t)(more > n ? more : n), 0);
        pb_ids_free(&ids);
    }
    const json_t *text, *texts = get(expected, "texts");
    size_t i;
    json_array_foreach(texts, i, text)
    {
        pb_ids a = encode(used, json_string_value(text), json_string_length(text), 0);
        pb_ids b = encode(fresh, json_string_value(text), json_string_length(text), 0);
        assert_int_equal(a.n, b.n);
        if (a.n) assert_memory_equal(a.id, b.id, a.n * sizeof *a.id);
        pb_ids_free(&a);
        pb_ids_free(&b);
    }
    pb_tokenizer_close(used);
    pb_tokenizer_close(fresh);
}

static void tokens_have_names_and_ids_have_bounds(void **state)
{
    pb_tokenizer *t = NULL;
    int32_t id = -7;
    pb_bytes out = {0};
    (void)state;
    CHECK_FAILS(pb_tokenizer_open(FOLDER, &t), PB_EIO, "tokenizers//tokenizer.json: ");
    CHECK_FAILS(pb_tokenizer_open("no/such/file", &t), PB_EIO, "no/such/file: ");
    assert_null(t);
    t = open_fixture("qwen2.json");
    CHECK_OK(pb_tokenizer_special(t, "<|im_end|>", &id));
    assert_int_equal(id, 2);
    CHECK_FAILS(pb_tokenizer_special(t, "<|im_end|", &id), PB_EINVAL, "no added token");
    assert_int_equal(id, 2);
    CHECK_OK(pb_tokenizer_decode(t, &id, 1, 0, &out));
    const int32_t wrong[] = {-1, (int32_t)pb_tokenizer_vocab(t), INT32_MAX};
    for (int i = 0; i < 3; i++) {
        const int32_t ids[2] = {id, wrong[i]};
        CHECK_FAILS(pb_tokenizer_decode(t, ids, 2, 0, &out), PB_EINVAL, "is no token");
        assert_int_equal(out.n, 10);
    }
    pb_bytes_free(&out);
    pb_tokenizer_close(t);
}

#define FILE_WITH(added, norm, pre, post, dec, model)                                                                  \
    "{\"version\":\"1.0\",\"added_tokens\":[" added "],\"normalizer\":" norm ",\"pre_tokenizer\":" pre                 \
    ",\"post_processor\":" post ",\"decoder\":" dec ",\"model\":" model "}"
#define BPE(rest) "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]" rest "}"
#define NORM(n)   FILE_WITH("", n, "null", "null", "null", BPE(""))
#define PRE(p)    FILE_WITH("", "null", p, "null", "null", BPE(""))
#define REGEX(r)                                                                                                       \
    PRE("{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" r "\"},\"behavior\":\"Isolated\",\"invert\":false}")
#define POST(p)         FILE_WITH("", "null", "null", p, "null", BPE(""))
#define DECODER(d)      FILE_WITH("", "null", "null", "null", d, BPE(""))
#define MODEL(m)        FILE_WITH("", "null", "null", "null", "null", m)
#define VOCAB(v, m)     MODEL("{\"type\":\"BPE\",\"vocab\":{" v "},\"merges\":[" m "]}")
#define ADDED(a)        FILE_WITH(a, "null", "null", "null", "null", BPE(""))
#define TOKEN(id, text) "{\"id\":" id ",\"content\":\"" text "\",\"special\":true}"

static const struct refusal {
    const char *json;
    pb_status status;
    const char *text;
} refusals[] = {
    {"", PB_EIO, "line 1: "},
    {"[1", PB_EIO, "line 1: "},
    {"[]", PB_EINVAL, "tokenizer: not an object"},
    {"{}", PB_EINVAL, "no \"model\""},
    {"{\"a\":1,\"a\":2}", PB_EIO, "duplicate object key"},
    {"{\"model\":\n\n\"\xff\"}", PB_EIO, "line 3: "},
    {"{\"version\":\"2.0\"}", PB_EUNSUPPORTED, "version"},
    {"{\"extra\":1}", PB_EUNSUPPORTED, "tokenizer: \"extra\""},
    {"{\"truncation\":{\"max_length\":8}}", PB_EUNSUPPORTED, "\"truncation\""},
    {"{\"padding\":{}}", PB_EUNSUPPORTED, "\"padding\""},
    {MODEL("{\"type\":\"Unigram\",\"vocab\":[]}"), PB_EUNSUPPORTED, "model: type \"Unigram\""},
    {MODEL("{\"type\":\"WordPiece\",\"vocab\":{}}"), PB_EUNSUPPORTED, "model: type \"WordPiece\""},
    {MODEL("{\"vocab\":{}}"), PB_EUNSUPPORTED, "model: type \"\""},
    {MODEL("7"), PB_EINVAL, "model: not an object"},
    {MODEL("{\"type\":\"BPE\",\"merges\":[]}"), PB_EINVAL, "\"vocab\" is not an object"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{}}"), PB_EINVAL, "\"merges\" is not a list"},
    {MODEL(BPE(",\"dropout\":0.1")), PB_EUNSUPPORTED, "dropout"},
    {MODEL(BPE(",\"end_of_word_suffix\":\"</w>\"")), PB_EUNSUPPORTED, "end_of_word_suffix"},
    {MODEL(BPE(",\"continuing_subword_prefix\":\"##\"")), PB_EUNSUPPORTED, "continuing_subword_prefix"},
    {MODEL(BPE(",\"byte_fallback\":1")), PB_EINVAL, "\"byte_fallback\" is not true or false"},
    {MODEL(BPE(",\"unk_token\":\"<unk>\"")), PB_EINVAL, "unk_token \"<unk>\" is not in the vocabulary"},
    {MODEL(BPE(",\"novel\":0")), PB_EUNSUPPORTED, "model: \"novel\""},
    {VOCAB("\"a\":0,\"a\":1", ""), PB_EIO, "duplicate object key"},
    {VOCAB("\"a\":0,\"b\":0", ""), PB_EINVAL, "token \"b\": id 0 belongs to two tokens"},
    {VOCAB("\"a\":-1", ""), PB_EINVAL, "token \"a\": id -1, need 0 to 2097151"},
    {VOCAB("\"a\":2097152", ""), PB_EINVAL, "id 2097152, need"},
    {VOCAB("\"a\":4294967296", ""), PB_EINVAL, "id 4294967296, need"},
    {VOCAB("\"a\":99999999999999999999", ""), PB_EIO, "too big integer"},
    {VOCAB("\"a\":1.5", ""), PB_EINVAL, "token \"a\": its id is not an integer"},
    {VOCAB("\"x\\ny\":\"0\"", ""), PB_EINVAL, "token \"x?y\": its id is not an integer"},
    {VOCAB("\"a\":0", "\"a b\""), PB_EINVAL, "merge 0: \"b\" is not in the vocabulary"},
    {VOCAB("\"a\":0,\"b\":1", "\"a b\""), PB_EINVAL, "merge 0: \"ab\" is not in the vocabulary"},
    {VOCAB("\"a\":0,\"aa\":1", "\"a a\",\"aa  a\""), PB_EINVAL, "merge 1 is not two tokens"},
    {VOCAB("\"a\":0", "\"a\""), PB_EINVAL, "merge 0 is not two tokens"},
    {VOCAB("\"a\":0", "\" a\""), PB_EINVAL, "merge 0 has an empty side"},
    {VOCAB("\"a\":0,\"\":1", "[\"\",\"a\"]"), PB_EINVAL, "merge 0 has an empty side"},
    {VOCAB("\"a\":0", "[\"a\"]"), PB_EINVAL, "merge 0 is not a pair"},
    {VOCAB("\"a\":0", "[\"a\",1]"), PB_EINVAL, "a merge: not a string"},
    {VOCAB("\"a\":0", "{}"), PB_EINVAL, "a merge: not a string"},
    {NORM("{\"type\":\"NFKC\"}"), PB_EUNSUPPORTED, "normalizer: type \"NFKC\""},
    {NORM("{\"type\":\"Lowercase\"}"), PB_EUNSUPPORTED, "normalizer: type \"Lowercase\""},
    {NORM("{\"type\":\"NFC\",\"x\":1}"), PB_EUNSUPPORTED, "normalizer: \"x\""},
    {NORM("3"), PB_EINVAL, "normalizer: not an object"},
    {NORM("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},null]}"), PB_EINVAL, "null in a Sequence"},
    {NORM("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"\"}"), PB_EUNSUPPORTED, "empty text"},
    {PRE("{\"type\":\"Metaspace\"}"), PB_EUNSUPPORTED, "pre_tokenizer: type \"Metaspace\""},
    {PRE("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}"), PB_EUNSUPPORTED,
     "a step after ByteLevel"},
    {PRE("{\"type\":\"Sequence\"}"), PB_EINVAL, "\"pretokenizers\" is not a list"},
    {PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Odd\"}"), PB_EUNSUPPORTED,
     "behavior \"Odd\""},
    {PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"}"), PB_EINVAL, "0 bytes"},
    {PRE("{\"type\":\"Split\",\"behavior\":\"Isolated\"}"), PB_EINVAL, "Split: not an object"},
    {REGEX("a("), PB_EINVAL, "pattern: missing closing parenthesis"},
    {REGEX("a?"), PB_EUNSUPPORTED, "matches the empty text"},
    {REGEX("\\\\h"), PB_EUNSUPPORTED, "this escape at character 1"},
    {REGEX("x\\\\bword"), PB_EUNSUPPORTED, "this escape at character 2"},
    {REGEX("(a)\\\\1"), PB_EUNSUPPORTED, "this escape at character 4"},
    {REGEX("[a-z&&[^e]]"), PB_EUNSUPPORTED, "&& inside a class"},
    {REGEX("[a[b]]"), PB_EUNSUPPORTED, "a [ inside a class"},
    {REGEX("[]a]"), PB_EUNSUPPORTED, "an empty class"},
    {REGEX("(?m:a.b)"), PB_EUNSUPPORTED, "this kind of group"},
    {REGEX("(*ACCEPT)a"), PB_EUNSUPPORTED, "(*"},
    {REGEX("a{1,3}+"), PB_EUNSUPPORTED, "}+"},
    {REGEX("a{,3}b"), PB_EUNSUPPORTED, "{,n}"},
    {REGEX("[^\\\\W_]"), PB_EUNSUPPORTED, "this escape at character 3"},
    {REGEX("\\\\p{Nonsense}"), PB_EINVAL, "pattern: "},
    {REGEX("\\\\pL"), PB_EUNSUPPORTED, "\\p without {Name}"},
    {REGEX("\\\\"), PB_EUNSUPPORTED, "this escape"},
    {POST("{\"type\":\"BertProcessing\"}"), PB_EUNSUPPORTED, "post_processor: type \"BertProcessing\""},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[],\"special_tokens\":{}}"), PB_EINVAL, "\"single\" has no A"},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}}],\"special_tokens\":{}}"),
     PB_EINVAL, "SpecialToken \"s\" has no ids"},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}}],\"special_tokens\":{\"s\":{"
          "\"ids\":[9]}}}"),
     PB_EINVAL, "id 9 is no token"},
    {DECODER("{\"type\":\"WordPiece\"}"), PB_EUNSUPPORTED, "decoder: type \"WordPiece\""},
    {DECODER("{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"), PB_EUNSUPPORTED, "after Fuse"},
    {DECODER("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}"), PB_EUNSUPPORTED,
     "\"ByteFallback\" after Fuse"},
    {ADDED("{\"content\":\"x\"}"), PB_EINVAL, "added token \"x\": its id is not an integer"},
    {ADDED("{\"id\":3}"), PB_EINVAL, "\"content\" is not a string"},
    {ADDED(TOKEN("1", "x")), PB_EINVAL, "added token \"x\": id 1 belongs to two tokens"},
    {ADDED(TOKEN("1", "a")), PB_EINVAL, "id 1 here, id 0 in the vocabulary"},
    {ADDED(TOKEN("3", "x") "," TOKEN("4", "x")), PB_EINVAL, "two added tokens are looked for as one text"},
    {ADDED(TOKEN("9999999999", "x")), PB_EINVAL, "id 9999999999, need"},
    {ADDED("{\"id\":3,\"content\":\"x\",\"sparkle\":true}"), PB_EUNSUPPORTED, "\"sparkle\""},
};

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refusal *r = &refusals[i];
        pb_tokenizer *t = NULL;
        const pb_status s = pb_tokenizer_parse("here.json", r->json, strlen(r->json), &t);
        if (s != r->status || !strstr(pb_error(), r->text) || strncmp(pb_error(), "here.json: ", 11) != 0 || t)
            fail_msg("%s: %s: '%s', want %s with '%s'", r->json, pb_status_name(s), s ? pb_error() : "",
                     pb_status_name(r->status), r->text);
        if (strpbrk(pb_error(), "\n\r\t")) fail_msg("more than a line: %s", pb_error());
    }
}

static void deep_nesting_is_refused(void **state)
{
    pb_tokenizer *t = NULL;
    (void)state;
    pb_bytes deep = repeat("[", 1, 1000000, "");
    CHECK_FAILS(pb_tokenizer_parse("x", deep.p, deep.n, &t), PB_EIO, "maximum parsing depth");
    pb_bytes_free(&deep);
    static const char open[] = "{\"type\":\"Sequence\",\"pretokenizers\":[";
    pb_bytes sequences = repeat(open, sizeof open - 1, 8, "");
    char json[1024];
    snprintf(json, sizeof json, "{\"pre_tokenizer\":%s%s}", sequences.p, "]}]}]}]}]}]}]}]}");
    CHECK_FAILS(pb_tokenizer_parse("x", json, strlen(json), &t), PB_EUNSUPPORTED, "Sequence in Sequence");
    pb_bytes_free(&sequences);
}

/* A pattern that backtracks exponentially ends with an error, not with a hanging program. */
static void patterns_have_a_limit(void **state)
{
    static const char json[] = REGEX("(?:a|a|aa)+c");
    pb_tokenizer *t = NULL;
    pb_ids ids = {0};
    (void)state;
    CHECK_OK(pb_tokenizer_parse("x", json, sizeof json - 1, &t));
    pb_bytes text = repeat("a", 1, 100, "bc");
    CHECK_FAILS(pb_tokenizer_encode(t, text.p, text.n, 0, &ids), PB_EINVAL, "limit");
    assert_int_equal(ids.n, 0);
    pb_bytes_free(&text);
    pb_ids_free(&ids);
    pb_tokenizer_close(t);
}

static void patterns_are_respelled(void **state)
{
    static const char *const pairs[][2] = {
        {"\\s+(?!\\S)", "\\p{White_Space}+(?!\\P{White_Space})"},
        {"[^\\r\\n\\p{L}\\d]", "[^\\r\\n\\p{L}\\p{Nd}]"},
        {"\\p{Han}\\P{^Lu}\\u00e9\\x{1F600}", "\\p{sc:Han}\\P{^Lu}\\x{00e9}\\x{1F600}"},
        {"\\W\\[\\v(?i:a)++", "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]\\[\\x{0b}(?i:a)++"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        pb_bytes out = {0};
        CHECK_OK(pb_tok_pattern_translate(pairs[i][0], strlen(pairs[i][0]), &out));
        CHECK_OK(out.n == strlen(pairs[i][1]) ? PB_OK : pb_fail(PB_EWRONG, "%.*s", (int)out.n, out.p));
        assert_memory_equal(out.p, pairs[i][1], out.n);
        pb_bytes_free(&out);
    }
}

/* The decoder's alphabet does not reach into the text of an added token. */
static void added_tokens_decode_as_they_stand(void **state)
{
    static const char json[] = FILE_WITH(TOKEN("3", "\xc3\xa9\xc4\xa0"), "null", "{\"type\":\"ByteLevel\"}", "null",
                                         "{\"type\":\"ByteLevel\"}", BPE(""));
    pb_tokenizer *t = NULL;
    (void)state;
    CHECK_OK(pb_tokenizer_parse("x", json, sizeof json - 1, &t));
    check_round_trip(t, "\xc3\xa9\xc4\xa0\xc3\xa9\xc4\xa0", 8);
    pb_tokenizer_close(t);
}

static int open_expected(void **state)
{
    json_error_t e;
    (void)state;
    expected = json_load_file(FOLDER "expected.json", JSON_ALLOW_NUL, &e);
    if (!expected) print_error(FOLDER "expected.json:%d: %s\n", e.line, e.text);
    return expected ? 0 : -1;
}

static int close_expected(void **state)
{
    (void)state;
    json_decref(expected);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_texts_are_those_of_the_library),
        cmocka_unit_test(long_texts_have_the_same_ids),
        cmocka_unit_test(time_is_not_quadratic),
        cmocka_unit_test(bytes_that_are_not_utf8_survive),
        cmocka_unit_test(without_bytes_such_text_is_refused),
        cmocka_unit_test(every_byte_round_trips),
        cmocka_unit_test(the_byte_tokenizer_needs_no_file),
        cmocka_unit_test(ids_do_not_depend_on_the_cache),
        cmocka_unit_test(tokens_have_names_and_ids_have_bounds),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(patterns_have_a_limit),
        cmocka_unit_test(patterns_are_respelled),
        cmocka_unit_test(added_tokens_decode_as_they_stand),
    };
    return cmocka_run_group_tests(tests, open_expected, close_expected);
}
