/* tokenizer_file_test.c - tests of reading tokenizer.json: an unsupported feature is refused with one line that names
 * it, and patterns are translated for PCRE2 and have a match limit. */
#include "tests/trainer/tokenizer/tokenizer_test.h"
#include "trainer/tokenizer/pattern.h"
#include "trainer/tokenizer/unicode.h"

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
    {"", PB_EINVAL, "line 1: "},
    {"[1", PB_EINVAL, "line 1: "},
    {"[]", PB_EINVAL, "tokenizer is not an object"},
    {"{}", PB_EINVAL, "\"model\" is missing"},
    {"{\"a\":1,\"a\":2}", PB_EINVAL, "duplicate object key"},
    {"{\"model\":\n\n\"\xff\"}", PB_EINVAL, "line 3: "},
    {"{\"version\":\"2.0\"}", PB_EFORMAT, "version"},
    {"{\"extra\":1}", PB_EFORMAT, "tokenizer: \"extra\""},
    {"{\"truncation\":{\"max_length\":8}}", PB_EFORMAT, "\"truncation\""},
    {"{\"padding\":{}}", PB_EFORMAT, "\"padding\""},
    {MODEL("{\"type\":\"Unigram\",\"vocab\":[]}"), PB_EFORMAT, "model: type \"Unigram\""},
    {MODEL("{\"type\":\"WordPiece\",\"vocab\":{}}"), PB_EFORMAT, "model: type \"WordPiece\""},
    {MODEL("{\"vocab\":{}}"), PB_EFORMAT, "model: type \"\""},
    {MODEL("7"), PB_EINVAL, "model is not an object"},
    {MODEL("{\"type\":\"BPE\",\"merges\":[]}"), PB_EINVAL, "\"vocab\" is not an object"},
    {MODEL("{\"type\":\"BPE\",\"vocab\":{}}"), PB_EINVAL, "\"merges\" is not a list"},
    {MODEL(BPE(",\"dropout\":0.1")), PB_EFORMAT, "dropout"},
    {MODEL(BPE(",\"end_of_word_suffix\":\"</w>\"")), PB_EFORMAT, "end_of_word_suffix"},
    {MODEL(BPE(",\"continuing_subword_prefix\":\"##\"")), PB_EFORMAT, "continuing_subword_prefix"},
    {MODEL(BPE(",\"byte_fallback\":1")), PB_EINVAL, "\"byte_fallback\" is not true or false"},
    {MODEL(BPE(",\"unk_token\":\"<unk>\"")), PB_EINVAL, "unk_token \"<unk>\" is not in the vocabulary"},
    {MODEL(BPE(",\"novel\":0")), PB_EFORMAT, "model: \"novel\""},
    {VOCAB("\"a\":0,\"a\":1", ""), PB_EINVAL, "duplicate object key"},
    {VOCAB("\"a\":0,\"b\":0", ""), PB_EINVAL, "token \"b\": id 0 belongs to two tokens"},
    {VOCAB("\"a\":-1", ""), PB_EINVAL, "token \"a\": id -1: need 0 to 2097151"},
    {VOCAB("\"a\":2097152", ""), PB_EINVAL, "id 2097152: need"},
    {VOCAB("\"a\":4294967296", ""), PB_EINVAL, "id 4294967296: need"},
    {VOCAB("\"a\":99999999999999999999", ""), PB_EINVAL, "too big integer"},
    {VOCAB("\"a\":1.5", ""), PB_EINVAL, "token \"a\": its id is not an integer"},
    {VOCAB("\"x\\ny\":\"0\"", ""), PB_EINVAL, "token \"x?y\": its id is not an integer"},
    {VOCAB("\"a\":0", "\"a b\""), PB_EINVAL, "merge 0: \"b\" is not in the vocabulary"},
    {VOCAB("\"a\":0,\"b\":1", "\"a b\""), PB_EINVAL, "merge 0: \"ab\" is not in the vocabulary"},
    {VOCAB("\"a\":0,\"aa\":1", "\"a a\",\"aa  a\""), PB_EINVAL, "merge 1 is not two tokens"},
    {VOCAB("\"a\":0", "\"a\""), PB_EINVAL, "merge 0 is not two tokens"},
    {VOCAB("\"a\":0", "\" a\""), PB_EINVAL, "merge 0 has an empty side"},
    {VOCAB("\"a\":0,\"\":1", "[\"\",\"a\"]"), PB_EINVAL, "merge 0 has an empty side"},
    {VOCAB("\"a\":0", "[\"a\"]"), PB_EINVAL, "merge 0 is not a pair"},
    {VOCAB("\"a\":0", "[\"a\",1]"), PB_EINVAL, "a merge is not a string"},
    {VOCAB("\"a\":0", "{}"), PB_EINVAL, "a merge is not a string"},
    {NORM("{\"type\":\"NFKC\"}"), PB_EFORMAT, "normalizer: type \"NFKC\""},
    {NORM("{\"type\":\"Lowercase\"}"), PB_EFORMAT, "normalizer: type \"Lowercase\""},
    {NORM("{\"type\":\"NFC\",\"x\":1}"), PB_EFORMAT, "normalizer: \"x\""},
    {NORM("3"), PB_EINVAL, "normalizer is not an object"},
    {NORM("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},null]}"), PB_EINVAL, "a Sequence contains null"},
    {NORM("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"\"}"), PB_EFORMAT, "empty text"},
    {PRE("{\"type\":\"Metaspace\"}"), PB_EFORMAT, "pre_tokenizer: type \"Metaspace\""},
    {PRE("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}"), PB_EFORMAT,
     "a step after ByteLevel"},
    {PRE("{\"type\":\"Sequence\"}"), PB_EINVAL, "\"pretokenizers\" is not a list"},
    {PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":\"Odd\"}"), PB_EFORMAT, "behavior \"Odd\""},
    {PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Isolated\"}"), PB_EINVAL, "0 bytes"},
    {PRE("{\"type\":\"Split\",\"behavior\":\"Isolated\"}"), PB_EINVAL, "Split is not an object"},
    {REGEX("a("), PB_EINVAL, "pattern: missing closing parenthesis"},
    {REGEX("a?"), PB_EFORMAT, "matches the empty text"},
    {REGEX("\\\\h"), PB_EFORMAT, "this escape at character 1"},
    {REGEX("x\\\\bword"), PB_EFORMAT, "this escape at character 2"},
    {REGEX("(a)\\\\1"), PB_EFORMAT, "this escape at character 4"},
    {REGEX("[a-z&&[^e]]"), PB_EFORMAT, "&& inside a class"},
    {REGEX("[a[b]]"), PB_EFORMAT, "a [ inside a class"},
    {REGEX("[]a]"), PB_EFORMAT, "an empty class"},
    {REGEX("(?m:a.b)"), PB_EFORMAT, "this kind of group"},
    {REGEX("(*ACCEPT)a"), PB_EFORMAT, "(*"},
    {REGEX("a{1,3}+"), PB_EFORMAT, "}+"},
    {REGEX("a{,3}b"), PB_EFORMAT, "{,n}"},
    {REGEX("[^\\\\W_]"), PB_EFORMAT, "this escape at character 3"},
    {REGEX("\\\\p{Nonsense}"), PB_EINVAL, "pattern: "},
    {REGEX("[\\\\P{L}]"), PB_EFORMAT, "a negated property inside a class at character 2"},
    {REGEX("[a\\\\D]"), PB_EFORMAT, "a negated property inside a class at character 3"},
    {REGEX("\\\\p{Cn}"), PB_EFORMAT, "\\p{C} or \\p{Cn} (unassigned characters) at character 1"},
    {REGEX("\\\\pL"), PB_EFORMAT, "\\p without {Name}"},
    {REGEX("\\\\"), PB_EFORMAT, "this escape"},
    {POST("{\"type\":\"BertProcessing\"}"), PB_EFORMAT, "post_processor: type \"BertProcessing\""},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[],\"special_tokens\":{}}"), PB_EINVAL,
     "\"single\" has no sequence A"},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}}],\"special_tokens\":{}}"),
     PB_EINVAL, "SpecialToken \"s\" has no ids"},
    {POST("{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}}],\"special_tokens\":{\"s\":{"
          "\"ids\":[9]}}}"),
     PB_EINVAL, "no token has id 9"},
    {DECODER("{\"type\":\"WordPiece\"}"), PB_EFORMAT, "decoder: type \"WordPiece\""},
    {DECODER("{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"), PB_EFORMAT, "after Fuse"},
    {DECODER("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}"), PB_EFORMAT,
     "\"ByteFallback\" after Fuse"},
    {ADDED("{\"content\":\"x\"}"), PB_EINVAL, "added token \"x\": its id is not an integer"},
    {ADDED("{\"id\":3}"), PB_EINVAL, "\"content\" is not a string"},
    {ADDED(TOKEN("1", "x")), PB_EINVAL, "added token \"x\": id 1 belongs to two tokens"},
    {ADDED(TOKEN("1", "a")), PB_EINVAL, "the id is 1 here, but 0 in the vocabulary"},
    {ADDED(TOKEN("3", "x") "," TOKEN("4", "x")), PB_EINVAL, "two added tokens have the same text"},
    {ADDED(TOKEN("9999999999", "x")), PB_EINVAL, "id 9999999999: need"},
    {ADDED("{\"id\":3,\"content\":\"x\",\"sparkle\":true}"), PB_EFORMAT, "\"sparkle\""},
};

static void unsupported_files_are_refused(void **state)
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
    CHECK_FAILS(pb_tokenizer_parse("x", deep.p, deep.n, &t), PB_EINVAL, "maximum parsing depth");
    pb_bytes_free(&deep);
    static const struct {
        const char *part, *list, *innermost;
    } parts[] = {{"normalizer", "normalizers", "{\"type\":\"NFC\"}"},
                 {"pre_tokenizer", "pretokenizers", "{\"type\":\"ByteLevel\"}"},
                 {"decoder", "decoders", "{\"type\":\"Fuse\"}"}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (size_t depth = 4; depth <= 5; depth++) {
            char json[1024], sequence[64];
            snprintf(sequence, sizeof sequence, "{\"type\":\"Sequence\",\"%s\":[", parts[i].list);
            pb_bytes open = repeat(sequence, strlen(sequence), depth, parts[i].innermost);
            pb_bytes close = repeat("]}", 2, depth, "");
            snprintf(json, sizeof json, "{\"%s\":%.*s%.*s,\"model\":%s}", parts[i].part, (int)open.n, open.p,
                     (int)close.n, close.p, BPE(""));
            if (depth == 4) CHECK_OK(pb_tokenizer_parse("x", json, strlen(json), &t));
            else CHECK_FAILS(pb_tokenizer_parse("x", json, strlen(json), &t), PB_EFORMAT, "nested more than 4 deep");
            if (depth == 4) pb_tokenizer_close(t);
            pb_bytes_free(&open);
            pb_bytes_free(&close);
        }
}

/* A pattern that backtracks exponentially gives an error instead of hanging. */
static void patterns_have_a_match_limit(void **state)
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

static void patterns_are_translated_for_pcre2(void **state)
{
    static const char *const pairs[][2] = {
        {"\\s+(?!\\S)", "\\p{White_Space}+(?!\\P{White_Space})"},
        {"[^\\r\\n\\p{Lt}\\s]", "[^\\r\\n\\p{Lt}\\p{White_Space}]"},
        {"\\p{Zs}\\p{Greek}\\P{^Thai}\\P{Thai}\\u00e9\\x{1F600}",
         "\\p{Zs}\\p{sc:Greek}\\p{sc:Thai}\\P{sc:Thai}\\x{00e9}\\x{1F600}"},
        {"\\[\\v(?i:a)++", "\\[\\x{0b}(?i:a)++"},
        /* U+10D6E is a dash since Unicode 16 */
        {"\\p{Pd}[\\p{Pd}]\\P{Pd}",
         "[\\p{Pd}\\x{10d6e}-\\x{10d6e}][\\p{Pd}\\x{10d6e}-\\x{10d6e}][^\\p{Pd}\\x{10d6e}-\\x{10d6e}]"},
        {"\\p{ol onal}", "[\\x{1e5d0}-\\x{1e5fa}\\x{1e5ff}-\\x{1e5ff}]"}, /* all characters of this script are new */
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

/* The text of an added token is decoded unchanged, not through the byte-level alphabet. */
static void added_tokens_are_decoded_unchanged(void **state)
{
    static const char json[] = FILE_WITH(TOKEN("3", "\xc3\xa9\xc4\xa0"), "null", "{\"type\":\"ByteLevel\"}", "null",
                                         "{\"type\":\"ByteLevel\"}", BPE(""));
    pb_tokenizer *t = NULL;
    (void)state;
    CHECK_OK(pb_tokenizer_parse("x", json, sizeof json - 1, &t));
    check_round_trip(t, "\xc3\xa9\xc4\xa0\xc3\xa9\xc4\xa0", 8);
    pb_tokenizer_close(t);
}

/* Reads unusual files as Hugging Face's library does: the merges may contain the version line of a merges.txt; for a
 * pair that occurs twice the later rank counts; an added token with empty text is ignored. */
static void unusual_files_are_read_as_the_library_reads_them(void **state)
{
    static const char json[] = FILE_WITH(
        TOKEN("9", ""), "null", "null", "null", "null",
        "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4},\"merges\":[\"#version: 0.2\","
        "\"a b\",[\"b\",\"c\"],\"a b\"]}");
    static const int32_t want[] = {0, 4};
    pb_tokenizer *t = NULL;
    (void)state;
    CHECK_OK(pb_tokenizer_parse("x", json, sizeof json - 1, &t));
    assert_int_equal(pb_tokenizer_vocab(t), 5);
    pb_ids ids = encode(t, "abc", 3, 0);
    assert_int_equal(ids.n, 2);
    assert_memory_equal(ids.id, want, sizeof want);
    pb_ids_free(&ids);
    pb_tokenizer_close(t);
}

/* Each of six Replace steps multiplies the length by ten, so they would make a million bytes from one. */
static void a_normalizer_cannot_grow_a_text_without_bound(void **state)
{
#define TEN_TIMES "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaa\"}"
    static const char many[] = NORM("{\"type\":\"Sequence\",\"normalizers\":[" TEN_TIMES "," TEN_TIMES "," TEN_TIMES
                                    "," TEN_TIMES "," TEN_TIMES "," TEN_TIMES "]}");
    static const char once[] = NORM(TEN_TIMES), prepended[] = NORM("{\"type\":\"Prepend\",\"prepend\":\"%s\"}");
    char json[1024], blanks[101];
    pb_tokenizer *t = NULL;
    pb_ids ids = {0};
    (void)state;
    CHECK_OK(pb_tokenizer_parse("x", many, sizeof many - 1, &t));
    CHECK_FAILS(pb_tokenizer_encode(t, "a", 1, 0, &ids), PB_EINVAL, "makes more than 80 bytes of a text");
    assert_int_equal(ids.n, 0);
    pb_tokenizer_close(t);
    CHECK_OK(pb_tokenizer_parse("x", once, sizeof once - 1, &t));
    pb_bytes text = repeat("a", 1, 1000, "");
    CHECK_OK(pb_tokenizer_encode(t, text.p, text.n, 0, &ids));
    assert_int_equal(ids.n, 10000);
    pb_tokenizer_close(t);
    memset(blanks, 'b', 100);
    blanks[100] = 0;
    /* the limit for one byte is 16 + 64 = 80 bytes: 80 are accepted, 81 are refused */
    for (int extra = 0; extra < 2; extra++) {
        snprintf(json, sizeof json, prepended, blanks + 21 - extra);
        CHECK_OK(pb_tokenizer_parse("x", json, strlen(json), &t));
        if (!extra) CHECK_OK(pb_tokenizer_encode(t, "a", 1, 0, &ids));
        else CHECK_FAILS(pb_tokenizer_encode(t, "a", 1, 0, &ids), PB_EINVAL, "makes more than 80 bytes");
        pb_tokenizer_close(t);
    }
    pb_ids_free(&ids);
    pb_bytes_free(&text);
}

/* Text that no token covers is refused, byte-level or not; it is never dropped silently. */
static void characters_outside_the_vocabulary_are_refused(void **state)
{
#define LEVEL(more)                                                                                                    \
    FILE_WITH("", "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "null", "{\"type\":\"ByteLevel\"}",   \
              BPE(more))
    static const struct {
        const char *json, *text, *why;
    } all[] = {
        {MODEL(BPE("")), "ab\xc3\xa9", "character U+00E9 is not in the vocabulary, and the tokenizer has no unk_token"},
        {MODEL(BPE("")), "ab\xff", "byte 2 is not UTF-8"},
        {LEVEL(""), "abc", "byte 0x63 is not in the vocabulary, and the tokenizer has no unk_token"},
        {LEVEL(""), "ab\xff\xfe", "byte 2 is not UTF-8, and 0xFF is not in the vocabulary"},
        {LEVEL(",\"unk_token\":\"a\""), "ab\xff\xfe", "byte 2 is not UTF-8, and 0xFF is not in the vocabulary"},
    };
    static const char byte_and_unknown[] =
        FILE_WITH("", "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", "null", "{\"type\":\"ByteLevel\"}",
                  "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\xc3\xbf\":1},\"merges\":[],\"unk_token\":\"a\"}");
    pb_tokenizer *t = NULL;
    pb_ids ids = {0};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int twice = 0; twice < 2; twice++) {
            CHECK_OK(pb_tokenizer_parse("x", all[i].json, strlen(all[i].json), &t));
            CHECK_OK(pb_tokenizer_encode(t, "ab", 2, 0, &ids));
            assert_int_equal(ids.n, 1);
            CHECK_FAILS(pb_tokenizer_encode(t, all[i].text, strlen(all[i].text), 0, &ids), PB_EINVAL, all[i].why);
            assert_int_equal(ids.n, 1);
            ids.n = 0;
            pb_tokenizer_close(t);
        }
    /* An unk_token replaces a character of the text, as in the library. */
    CHECK_OK(pb_tokenizer_parse("x", all[4].json, strlen(all[4].json), &t));
    CHECK_OK(pb_tokenizer_encode(t, "abc", 3, 0, &ids));
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[1], 0);
    pb_tokenizer_close(t);
    /* A known byte that is not UTF-8 is encoded, whatever follows it. */
    ids.n = 0;
    CHECK_OK(pb_tokenizer_parse("x", byte_and_unknown, sizeof byte_and_unknown - 1, &t));
    CHECK_OK(pb_tokenizer_encode(t,
                                 "\xff"
                                 "c",
                                 2, 0, &ids));
    assert_int_equal(ids.n, 2);
    assert_true(ids.id[0] == 1 && ids.id[1] == 0);
    pb_tokenizer_close(t);
    pb_ids_free(&ids);
}

static void only_utf8_is_valid(void **state)
{
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xc3",
                                      "\xc3(",
                                      "\xe0\x9f\xbf",
                                      "\xe2\x82",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xf0\x9f\x91",
                                      "\xff"};
    static const char *const good[] = {"\x7f",         "\xc2\x80",         "\xdf\xbf",
                                       "\xe0\xa0\x80", "\xed\x9f\xbf",     "\xee\x80\x80",
                                       "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) assert_int_equal(pb_tok_valid(bad[i], strlen(bad[i])), 0);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_int_equal(pb_tok_valid(good[i], strlen(good[i])), strlen(good[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unsupported_files_are_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(patterns_have_a_match_limit),
        cmocka_unit_test(patterns_are_translated_for_pcre2),
        cmocka_unit_test(added_tokens_are_decoded_unchanged),
        cmocka_unit_test(unusual_files_are_read_as_the_library_reads_them),
        cmocka_unit_test(a_normalizer_cannot_grow_a_text_without_bound),
        cmocka_unit_test(characters_outside_the_vocabulary_are_refused),
        cmocka_unit_test(only_utf8_is_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
