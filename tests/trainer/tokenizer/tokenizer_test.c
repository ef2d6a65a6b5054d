/* tokenizer_test.c - compares tokenizers with the results of Hugging Face's library (tests/fixtures/tokenizers, written
 * by scripts/fixtures/tokenizer_fixtures.py). Also tests properties that such a comparison cannot show: bytes that are
 * not UTF-8, refused input, and run time. */
#include <jansson.h>
#include <time.h>

#include "tests/sha256.h"
#include "tests/trainer/tokenizer/tokenizer_test.h"
#include "trainer/step/trainer.h"
#include "trainer/tokenizer/unicode.h"
#include "trainer/tokenizer/pattern.h"
#include "trainer/tokenizer/vocab.h"

#define FOLDER PB_FIXTURES "/tokenizers/"

static json_t *expected; /* expected.json, opened once */

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

/* Encodes the text and compares the ids with `want`. */
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

/* Returns entry i of `table`; `usual` if the table lacks it, because it stores only entries that differ from
 * `usual`. */
static const json_t *unless(const json_t *table, size_t i, const json_t *usual)
{
    char key[24];
    snprintf(key, sizeof key, "%zu", i);
    const json_t *v = json_object_get(table, key);
    return v ? v : usual;
}

static void ids_and_texts_equal_the_library(void **state)
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
        for (int pass = 0; pass < 2; pass++) /* the second pass reads the cache */
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

/* Makes text that looks like source code: pieces in the order of a linear congruential sequence. */
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

/* Checks the ids of `text` against `want`: [count, SHA-256 of the ids as little-endian int32]. Frees the text. */
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

/* Checks the lengths of the pieces that a pattern splits a text into: matches and the text between matches. */
static void check_cuts(const char *name, const pb_tok_pattern *p, const json_t *text, const json_t *want)
{
    const char *s = json_string_value(text);
    const size_t n = json_string_length(text);
    size_t done = 0, k = 0, a, b;
    for (size_t i = 0; i < n; i = b) {
        CHECK_OK(pb_tok_pattern_find(p, s, n, i, &a, &b));
        if (!b) a = b = n;
        const size_t ends[] = {a, b};
        for (int e = 0; e < 2; e++) {
            if (ends[e] == done) continue;
            const json_int_t one = json_integer_value(json_array_get(want, k++));
            if (ends[e] - done != (size_t)one)
                fail_msg("%s: piece %zu has %zu bytes, want %d: %s", name, k, ends[e] - done, (int)one, s);
            done = ends[e];
        }
    }
    if (k != json_array_size(want)) fail_msg("%s: %zu pieces, want %zu: %s", name, k, json_array_size(want), s);
}

/* Characters that are newer than PCRE2's tables, or than the library's NFC tables, give the library's ids. */
static void new_characters_are_treated_as_in_the_library(void **state)
{
    json_error_t e;
    json_t *root = json_load_file(PB_FIXTURES "/unicode.json", 0, &e), *one, *text;
    const json_t *texts = json_object_get(root, "texts"), *nfc = json_object_get(root, "nfc");
    pb_tok_points points = {0};
    const char *name;
    size_t i;
    (void)state;
    assert_true(json_array_size(texts) > 30);
    json_object_foreach(json_object_get(root, "cuts"), name, one)
    {
        const json_t *pattern = json_array_get(one, 0);
        pb_tok_pattern p;
        CHECK_OK(pb_tok_pattern_open(json_string_value(pattern), json_string_length(pattern), false, &p));
        json_array_foreach(texts, i, text) check_cuts(name, &p, text, json_array_get(json_array_get(one, 1), i));
        pb_tok_pattern_close(&p);
    }
    json_array_foreach(texts, i, text)
    {
        const json_t *want = json_array_get(nfc, i);
        pb_bytes form = {0};
        CHECK_OK(pb_tok_nfc(&points, json_string_value(text), json_string_length(text), &form));
        if (form.n != json_string_length(want) || memcmp(form.p, json_string_value(want), form.n) != 0)
            fail_msg("NFC of text %zu is %.*s, want %s", i, (int)form.n, form.p, json_string_value(want));
        pb_bytes_free(&form);
    }
    free(points.p);
    json_decref(root);
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

/* Compares the time for 16 times the text: about 20 times for n log n, 256 times for quadratic growth. */
static void check_growth(pb_tokenizer *t, const char *unit)
{
    const double small = seconds_to_encode(t, unit, 12500), large = seconds_to_encode(t, unit, 200000);
    if (!(large < 80 * (small + 1e-4))) fail_msg("'%s': %g s, 16 times as many %g s", unit, small, large);
}

static void time_is_not_quadratic(void **state)
{
    static const char *const units[] = {"a", "ab", " ", "\n ", "\xcc\xa3\xcc\x81", "<|", " <mask>", " <right>", "\xff"};
    static const char blanks[] =
        "{\"added_tokens\":[{\"id\":1,\"content\":\" \",\"rstrip\":true},{\"id\":2,\"content\":\"\\t\","
        "\"lstrip\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
    pb_tokenizer *t = open_fixture("flags.json");
    (void)state;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) check_growth(t, units[i]);
    pb_tokenizer_close(t);
    CHECK_OK(pb_tokenizer_parse("blanks", blanks, sizeof blanks - 1, &t));
    check_growth(t, " ");
    check_growth(t, "\t");
    pb_tokenizer_close(t);
}

static void bytes_that_are_not_utf8_are_kept(void **state)
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
            /* The invalid bytes are before, inside and after valid text; the valid parts keep their ids. */
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

static void invalid_utf8_is_refused_without_byte_tokens(void **state)
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
    pb_bytes many = repeat("x\n", 2, 100001, "<im_end>"); /* more than one chunk */
    ids = encode(t, many.p, many.n, 0);
    assert_int_equal(ids.n, 200003);
    check_round_trip(t, many.p, many.n);
    pb_ids_free(&ids);
    pb_bytes_free(&many);
    pb_tokenizer_close(t);
}

/* Encodes so many words that the cache is emptied meanwhile, and words just below and above the longest cached
 * length. */
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

static int by_hash(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Searches for two words of equal length and equal hash, and checks that the cache tells them apart. */
static void the_cache_distinguishes_words_of_equal_hash(void **state)
{
    enum { N = 400000 };
    uint64_t *all = malloc(N * sizeof *all); /* hash << 32 | number of the word */
    char word[2][16];
    int found = 0;
    pb_tokenizer *t = open_fixture("gpt2.json");
    (void)state;
    assert_non_null(all);
    for (uint64_t i = 0; i < N; i++) {
        snprintf(word[0], sizeof word[0], "%06x", (unsigned)i);
        all[i] = pb_tok_hash(word[0], 6) << 32 | i;
    }
    qsort(all, N, sizeof *all, by_hash);
    for (size_t i = 1; i < N; i++) {
        if (all[i] >> 32 != all[i - 1] >> 32) continue;
        found++;
        for (size_t k = 0; k < 2; k++) {
            snprintf(word[k], sizeof word[k], "%06x", (unsigned)(uint32_t)all[i - k]);
            check_round_trip(t, word[k], 6);
        }
    }
    assert_true(found > 0);
    free(all);
    pb_tokenizer_close(t);
}

static void unknown_tokens_and_ids_are_refused(void **state)
{
    pb_tokenizer *t = NULL;
    int32_t id = -7;
    pb_bytes out = {0};
    (void)state;
    CHECK_FAILS(pb_tokenizer_open(FOLDER, &t), PB_EPATH, "tokenizers//tokenizer.json: ");
    CHECK_FAILS(pb_tokenizer_open("no/such/file", &t), PB_EPATH, "no/such/file: ");
    assert_null(t);
    t = open_fixture("qwen2.json");
    CHECK_OK(pb_tokenizer_special(t, "<|im_end|>", &id));
    assert_int_equal(id, 2);
    CHECK_FAILS(pb_tokenizer_special(t, "<|im_end|", &id), PB_EINVAL, "not an added token");
    assert_int_equal(id, 2);
    CHECK_OK(pb_tokenizer_decode(t, &id, 1, 0, &out));
    const int32_t wrong[] = {-1, (int32_t)pb_tokenizer_vocab(t), INT32_MAX};
    for (int i = 0; i < 3; i++) {
        const int32_t ids[2] = {id, wrong[i]};
        CHECK_FAILS(pb_tokenizer_decode(t, ids, 2, 0, &out), PB_EINVAL, "no token has id");
        assert_int_equal(out.n, 10);
    }
    pb_bytes_free(&out);
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
        cmocka_unit_test(ids_and_texts_equal_the_library),
        cmocka_unit_test(new_characters_are_treated_as_in_the_library),
        cmocka_unit_test(long_texts_have_the_same_ids),
        cmocka_unit_test(time_is_not_quadratic),
        cmocka_unit_test(bytes_that_are_not_utf8_are_kept),
        cmocka_unit_test(invalid_utf8_is_refused_without_byte_tokens),
        cmocka_unit_test(every_byte_round_trips),
        cmocka_unit_test(the_byte_tokenizer_needs_no_file),
        cmocka_unit_test(ids_do_not_depend_on_the_cache),
        cmocka_unit_test(the_cache_distinguishes_words_of_equal_hash),
        cmocka_unit_test(unknown_tokens_and_ids_are_refused),
    };
    return cmocka_run_group_tests(tests, open_expected, close_expected);
}
