/* fuzz_tokenizer.c - fuzzes the reader of tokenizer.json, encoding and decoding with libFuzzer. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_tokenizer -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_tokenizer
 * An input is a tokenizer.json, the byte 0xff (which no JSON contains), and a text. If the first part is empty, a
 * small built-in byte-level tokenizer encodes the text, and decoding must give it back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/tokenizer.h"

#define SPLIT                                                                                                          \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+"   \
    "[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* A tokenizer of all bytes, a few merges of 'a', 'b' and the space, and two added tokens. */
static pb_tokenizer *fixed(void)
{
    char json[16384] =
        "{\"added_tokens\":[{\"id\":300,\"content\":\"<|x|>\",\"special\":true},{\"id\":301,\"content\":"
        "\"<|x\",\"special\":false,\"single_word\":true}],\"pre_tokenizer\":{\"type\":\"Sequence\","
        "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" SPLIT "\"},\"behavior\":"
        "\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
        "false}]},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{";
    size_t at = strlen(json);
    for (int b = 0, next = 256; b < 256; b++) {
        const int printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        at += (size_t)snprintf(json + at, sizeof json - at, "\"\\u%04x\":%d,", printable ? b : next, b);
        if (!printable) next++;
    }
    snprintf(
        json + at, sizeof json - at,
        "\"ab\":256,\"aa\":257,\"aab\":258,\"\\u0120a\":259,\"aaaa\":260},\"merges\":[\"a b\",[\"a\",\"a\"],\"a ab\","
        "\"\\u0120 a\",\"aa aa\",\"aa b\"]}}");
    pb_tokenizer *t = NULL;
    if (pb_tokenizer_parse("fixed", json, strlen(json), &t) != PB_OK) abort();
    return t;
}

/* Checks that the byte ranges are in order and inside the text, one per token. */
static void use_ranges(pb_tokenizer *t, const char *text, size_t n, unsigned flags, const pb_ids *want)
{
    pb_ids ids = {0};
    pb_ranges where = {0};
    if (pb_tokenizer_encode_ranges(t, text, n, flags, &ids, &where) == PB_OK) {
        if (ids.n != want->n || where.n != ids.n) abort();
        if (ids.n && memcmp(ids.id, want->id, ids.n * sizeof *ids.id) != 0) abort();
        for (size_t i = 0; i < where.n; i++)
            if (where.at[i].a > where.at[i].b || where.at[i].b > n || (i && where.at[i].a < where.at[i - 1].a)) abort();
    } else if (ids.n || where.n) {
        abort();
    }
    pb_ids_free(&ids);
    pb_ranges_free(&where);
}

/* Encodes twice (the second time from the cache) and decodes. `exact`: decoding must give the text back. */
static void use(pb_tokenizer *t, const char *text, size_t n, unsigned flags, int exact)
{
    pb_ids a = {0}, b = {0};
    pb_bytes back = {0};
    if (pb_tokenizer_encode(t, text, n, flags, &a) == PB_OK) {
        if (pb_tokenizer_encode(t, text, n, flags, &b) != PB_OK || a.n != b.n) abort();
        if (a.n && memcmp(a.id, b.id, a.n * sizeof *a.id) != 0) abort();
        use_ranges(t, text, n, flags, &a);
        if (pb_tokenizer_decode(t, a.id, a.n, 0, &back) != PB_OK) abort();
        if (exact && (back.n != n || (n && memcmp(back.p, text, n) != 0))) abort();
    } else if (exact || a.n || strchr(pb_error(), '\n')) {
        abort();
    }
    pb_ids_free(&a);
    pb_ids_free(&b);
    pb_bytes_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static pb_tokenizer *known;
    const uint8_t *mark = n ? memchr(bytes, 0xff, n) : NULL;
    const size_t json = mark ? (size_t)(mark - bytes) : n;
    const char *text = mark ? (const char *)mark + 1 : "ab <|x|> 12";
    const size_t text_n = mark ? n - json - 1 : strlen(text);
    pb_tokenizer *t = NULL;
    if (!known) known = fixed();
    if (!json) {
        use(known, text, text_n, 0, 1);
        use(known, text, text_n, PB_TOK_PLAIN, 1);
    } else if (pb_tokenizer_parse("fuzz", (const char *)bytes, json, &t) == PB_OK) {
        use(t, text, text_n, PB_TOK_TEMPLATE, 0);
        use(t, text, text_n, PB_TOK_PLAIN, 0);
    } else if (!*pb_error() || strpbrk(pb_error(), "\n\r")) {
        abort();
    }
    pb_tokenizer_close(t);
    return 0;
}
