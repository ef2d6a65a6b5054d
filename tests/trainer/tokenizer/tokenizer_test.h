/* tokenizer_test.h - functions that encode a text, build a text by repeating a piece, and check that decoding gives a
 * text back; shared by the tests of tokenizers. */
#ifndef PB_TOKENIZER_TEST_H
#define PB_TOKENIZER_TEST_H
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "trainer/tokenizer/tokenizer.h"

static inline pb_ids encode(pb_tokenizer *t, const char *s, size_t n, unsigned flags)
{
    pb_ids ids = {0};
    CHECK_OK(pb_tokenizer_encode(t, s, n, flags, &ids));
    return ids;
}

static inline pb_bytes repeat(const char *unit, size_t unit_n, size_t times, const char *end)
{
    pb_bytes b = {malloc(unit_n * times + strlen(end) + 1), 0, 0};
    assert_non_null(b.p);
    for (size_t i = 0; i < times; i++, b.n += unit_n) memcpy(b.p + b.n, unit, unit_n);
    memcpy(b.p + b.n, end, strlen(end) + 1);
    b.n += strlen(end);
    return b;
}

static inline void check_round_trip(pb_tokenizer *t, const char *s, size_t n)
{
    pb_ids ids = encode(t, s, n, 0);
    pb_bytes back = {0};
    CHECK_OK(pb_tokenizer_decode(t, ids.id, ids.n, 0, &back));
    assert_int_equal(back.n, n);
    if (n) assert_memory_equal(back.p, s, n);
    pb_ids_free(&ids);
    pb_bytes_free(&back);
}

#endif
