/* ranges_test.c - tests of the byte ranges that tokens cover in a text, with and without Unicode normalisation. */
#include "tests/trainer/tokenizer/tokenizer_test.h"

#define FILE_OF(name) PB_FIXTURES "/tokenizers/" name ".json"

static pb_ranges ranges_of(pb_tokenizer *t, const char *s, unsigned flags, pb_ids *ids)
{
    pb_ranges where = {0};
    pb_ids same = encode(t, s, strlen(s), flags);
    *ids = (pb_ids){0};
    CHECK_OK(pb_tokenizer_encode_ranges(t, s, strlen(s), flags, ids, &where));
    assert_int_equal(ids->n, same.n);
    assert_int_equal(where.n, same.n);
    assert_memory_equal(ids->id, same.id, same.n * sizeof *same.id);
    pb_ids_free(&same);
    return where;
}

/* Ranges must follow each other without gaps, and each token's bytes must equal those of its range. */
static void check_exact(pb_tokenizer *t, const char *s)
{
    pb_ids ids;
    pb_ranges where = ranges_of(t, s, 0, &ids);
    size_t at = 0;
    for (size_t i = 0; i < ids.n; i++) {
        pb_bytes token = {0};
        CHECK_OK(pb_tokenizer_decode(t, &ids.id[i], 1, 0, &token));
        assert_int_equal(where.at[i].a, at);
        at = where.at[i].b;
        assert_int_equal(token.n, where.at[i].b - where.at[i].a);
        assert_memory_equal(token.p, s + where.at[i].a, token.n);
        pb_bytes_free(&token);
    }
    assert_int_equal(at, strlen(s));
    pb_ids_free(&ids);
    pb_ranges_free(&where);
}

static void ranges_cover_the_text_without_gaps(void **state)
{
    (void)state;
    static const char *const files[] = {NULL, FILE_OF("qwen2"), FILE_OF("llama3"), FILE_OF("gpt2"), FILE_OF("o200k")};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        pb_tokenizer *t = NULL;
        CHECK_OK(pb_tokenizer_open(files[f], &t));
        check_exact(t, "x");
        check_exact(t, "int main(void)\n{\n    return printf(\"%d\\n\", 42) != 3;\n}\n  \n");
        check_exact(t, "na\u00efve \u65e5\u672c\u8a9e \U0001f44d\U0001f3fd the end");
        check_exact(t, "<|im_start|>user\nhi there<|im_end|>\n<|endoftext|><|eot_id|> <im_start>x<im_end>");
        check_exact(t, "bad \xff\xfe bytes \xc3 here");
        pb_tokenizer_close(t);
    }
}

/* NFC joins e and U+0301 into one character; ranges of the text before and after it must be right. */
static void ranges_are_right_around_composed_characters(void **state)
{
    (void)state;
    static const char s[] = "ab e\u0301\u00df cd<|im_end|> \u212b ef";
    pb_tokenizer *t = NULL;
    pb_ids ids;
    bool end = false;
    CHECK_OK(pb_tokenizer_open(FILE_OF("qwen2"), &t));
    pb_ranges where = ranges_of(t, s, 0, &ids);
    assert_int_equal(where.at[0].a, 0);
    assert_int_equal(where.at[ids.n - 1].b, strlen(s));
    for (size_t i = 0; i < ids.n; i++) {
        const pb_range r = where.at[i];
        assert_true(r.a < r.b && r.b <= strlen(s) && (!i || r.a >= where.at[i - 1].a));
        if (pb_tokenizer_is_special(t, ids.id[i])) end = r.a == 11 && r.b == 21;
        /* no range begins or ends inside e, U+0301, sharp s */
        if (r.a > 2 && r.a < 7) assert_true(r.b <= 8 && r.a <= 3);
    }
    assert_true(end);
    assert_true(where.at[0].b <= 2 && where.at[ids.n - 1].a >= strlen(s) - 3);
    pb_ids_free(&ids);
    pb_ranges_free(&where);
    pb_tokenizer_close(t);
}

static void ranges_are_refused_without_byte_positions(void **state)
{
    (void)state;
    pb_tokenizer *t = NULL;
    pb_ids ids = {0};
    pb_ranges where = {0};
    CHECK_OK(pb_tokenizer_open(FILE_OF("llama2"), &t));
    CHECK_FAILS(pb_tokenizer_encode_ranges(t, "a", 1, 0, &ids, &where), PB_EFORMAT, "normalizer other than NFC");
    pb_tokenizer_close(t);
    CHECK_OK(pb_tokenizer_open(FILE_OF("gpt2_prefix"), &t));
    CHECK_FAILS(pb_tokenizer_encode_ranges(t, "a", 1, 0, &ids, &where), PB_EFORMAT, "spaces added before words");
    assert_int_equal(ids.n + where.n, 0);
    pb_tokenizer_close(t);
}

static void template_tokens_have_empty_ranges(void **state)
{
    (void)state;
    pb_tokenizer *t = NULL;
    pb_ids ids;
    CHECK_OK(pb_tokenizer_open(FILE_OF("llama3"), &t));
    pb_ranges where = ranges_of(t, "a", PB_TOK_TEMPLATE, &ids);
    assert_int_equal(ids.n, 2);
    assert_int_equal(where.at[0].b, 0);
    assert_int_equal(where.at[1].b, 1);
    assert_true(pb_tokenizer_is_special(t, ids.id[0]));
    assert_false(pb_tokenizer_is_special(t, ids.id[1]));
    assert_false(pb_tokenizer_is_special(t, -1));
    assert_false(pb_tokenizer_is_special(t, 1 << 30));
    pb_ids_free(&ids);
    pb_ranges_free(&where);
    pb_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_cover_the_text_without_gaps),
        cmocka_unit_test(ranges_are_right_around_composed_characters),
        cmocka_unit_test(ranges_are_refused_without_byte_positions),
        cmocka_unit_test(template_tokens_have_empty_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
