/* text_stream_test.c - tests of text that arrives token by token: whole characters only, replacements as Python makes
 * them, and ids without a token. */
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "trainer/tokenizer/text_stream.h"

#define R "\xef\xbf\xbd" /* U+FFFD */

/* Bytes, and bytes.decode(errors="replace") of Python 3.11. */
static const struct {
    const char *bytes, *text;
} cases[] = {
    {"abc", "abc"},
    {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
    {"\xe6\x97\xa5\xf0\x9f\x98\x80!", "\xe6\x97\xa5\xf0\x9f\x98\x80!"},
    {"\xff", R},
    {"\x80\x80", R R},
    {"\xe2\x82", R},
    {"\xe2\x82x", R "x"},
    {"\xe2\x82\xe2\x82\xac", R "\xe2\x82\xac"},
    {"\xf0\x9f\x98", R},
    {"\xf0\x80\x80", R R R},
    {"\xc0\xaf", R R},
    {"\xed\xa0\x80", R R R},
    {"\xe0\x80", R R},
    {"\xf4\x90\x80", R R R},
    {"\xf4\x8f\xbf", R},
    {"\xf5", R},
    {"a\xc3", "a" R},
};
enum { CASES = sizeof cases / sizeof *cases };

static pb_tokenizer *open_bytes(void)
{
    pb_tokenizer *t = NULL;
    CHECK_OK(pb_tokenizer_open(NULL, &t));
    return t;
}

static void bytes_become_characters(void **state)
{
    (void)state;
    pb_tokenizer *t = open_bytes();
    for (size_t i = 0; i < CASES; i++) {
        pb_text_stream s = {.t = t};
        pb_bytes out = {0};
        for (const char *p = cases[i].bytes; *p; p++) CHECK_OK(pb_text_stream_add(&s, (unsigned char)*p, &out));
        CHECK_OK(pb_text_stream_end(&s, &out));
        if (out.n != strlen(cases[i].text) || memcmp(out.p, cases[i].text, out.n) != 0)
            fail_msg("case %zu: %.*s, want %s", i, (int)out.n, out.p, cases[i].text);
        pb_bytes_free(&out);
        pb_text_stream_free(&s);
    }
    pb_tokenizer_close(t);
}

/* A character appears with its last byte, and a byte that contradicts its beginning is not waited for. */
static void a_character_is_never_cut(void **state)
{
    (void)state;
    static const char text[] = "\xf0\x9f\x98\x80"
                               "a\xe2\x82z";
    static const size_t length[] = {0, 0, 0, 4, 5, 5, 5, 9}; /* of the text after each byte */
    pb_tokenizer *t = open_bytes();
    pb_text_stream s = {.t = t};
    pb_bytes out = {0};
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        CHECK_OK(pb_text_stream_add(&s, (unsigned char)text[i], &out));
        assert_int_equal(out.n, length[i]);
    }
    pb_bytes_free(&out);
    pb_text_stream_free(&s);
    pb_tokenizer_close(t);
}

static void special_tokens_and_ids_without_a_token(void **state)
{
    (void)state;
    static const int32_t ids[] = {'a', PB_TOKEN_START, 0xc3, 300, 'b', 0xc3, 0xa9, PB_TOKEN_END, 'c'};
    static const char want[] = "a" R R "b\xc3\xa9"
                               "c";
    pb_tokenizer *t = open_bytes();
    pb_text_stream s = {.t = t};
    pb_bytes out = {0};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) CHECK_OK(pb_text_stream_add(&s, ids[i], &out));
    CHECK_OK(pb_text_stream_end(&s, &out));
    assert_int_equal(out.n, strlen(want));
    assert_memory_equal(out.p, want, out.n);
    pb_bytes_free(&out);
    pb_text_stream_free(&s);
    pb_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_become_characters),
        cmocka_unit_test(a_character_is_never_cut),
        cmocka_unit_test(special_tokens_and_ids_without_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
