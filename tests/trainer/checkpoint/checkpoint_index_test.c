/* checkpoint_index_test.c - checkpoint.json: reading returns what was written, and every malformed file is refused. */
#include "tests/test.h"
#include "trainer/checkpoint/index.h"

#define H "0123456789abcdef0123456789abcdef"
#define NUMBERS                                                                                                        \
    "\"data\": {\"epoch\": 0, \"row\": 8}, \"counters\": {\"tokens\": 5, \"samples\": 3, \"skipped\": 0, "             \
    "\"skipped_in_row\": 0}"
#define HEAD        "{\"format\": \"plumb checkpoint\", \"version\": 1, \"iteration\": 4, " NUMBERS ", \"base\": \"" H "\", "
#define FILES(name) HEAD "\"settings\": {}, \"files\": {\"" name "\": {\"bytes\": 2, \"xxh3_128\": \"" H "\"}}"

/* Parses `body` with its digest appended, as the writer does. */
static pb_status parse(const char *body, pb_index *out)
{
    char text[8192];
    const int n = snprintf(text, sizeof text, "%s, \"digest\": \"%s\"}\n", body, pb_digest_of(body, strlen(body)).hex);
    assert_true(n > 0 && (size_t)n < sizeof text);
    return pb_index_parse("c.json", text, (size_t)n, out);
}

static pb_index made(void)
{
    pb_index x = {.progress = {4, {1, 2}, 3, 5, 6, INT64_MAX}, .base = {H}, .settings = json_object()};
    json_object_set_new(x.settings,
                        "gr\xc3\xb6\xc3\x9f"
                        "e",
                        json_string("a \"b\" \\"));
    CHECK_OK(pb_index_add_file(&x, "state.safetensors", &(pb_file_digest){INT64_MAX, {H}}));
    CHECK_OK(pb_index_add_file(&x, "a/..b/c", &(pb_file_digest){0, {H}}));
    return x;
}

static void written_files_are_read_back(void **state)
{
    (void)state;
    pb_index x = made(), y = {0};
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(pb_index_format(&x, &text, &n));
    CHECK_OK(pb_index_parse("c.json", text, n, &y));
    assert_memory_equal(&x.progress, &y.progress, sizeof x.progress);
    assert_true(json_equal(x.settings, y.settings));
    assert_int_equal(y.files, 2);
    assert_true(pb_index_find(&y, "state.safetensors")->bytes == INT64_MAX);
    assert_string_equal(pb_index_find(&y, "a/..b/c")->digest.hex, H);
    assert_null(pb_index_find(&y, "a"));
    pb_index_free(&y);
    for (size_t i = 0; i < n; i++) { /* every truncation and every changed bit is refused */
        CHECK_FAILS(pb_index_parse("c.json", text, i, &y), PB_EINVAL, "c.json is damaged");
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ 1 << bit);
            CHECK_FAILS(pb_index_parse("c.json", text, n, &y), PB_EINVAL, "c.json is damaged");
            text[i] = (char)(text[i] ^ 1 << bit);
        }
    }
    free(text);
    pb_index_free(&x);
}

static const struct {
    const char *body;
    pb_status status;
    const char *says;
} faults[] = {
    {"", PB_EINVAL, "c.json is not valid JSON"},
    {"{\"format\": \"pt\"", PB_EINVAL, "\"format\" is not \"plumb checkpoint\""},
    {"{\"format\": \"plumb checkpoint\", \"version\": 2", PB_EFORMAT,
     "version 2 of the checkpoint format, but this program reads version 1 only"},
    {"{\"format\": \"plumb checkpoint\", \"version\": 1, \"iteration\": 0", PB_EINVAL, "\"iteration\" is 0"},
    {"{\"format\": \"plumb checkpoint\", \"version\": 1, \"iteration\": -1", PB_EINVAL, "\"iteration\" is not a whole"},
    {"{\"format\": \"plumb checkpoint\", \"version\": 1, \"iteration\": 1.0", PB_EINVAL,
     "\"iteration\" is not a whole"},
    {"{\"format\": \"plumb checkpoint\", \"version\": 1, \"iteration\": 9223372036854775808", PB_EINVAL,
     "too big integer"},
    {"{\"format\": \"plumb checkpoint\", \"version\": 1, \"iteration\": 1, \"iteration\": 2", PB_EINVAL, "duplicate"},
    {"{\"format\": \"plumb checkpoint\", \"version\": 1, \"iteration\": 1, \"data\": []", PB_EINVAL,
     "\"data\" is not an object"},
    {HEAD "\"settings\": {\"k\": 3}", PB_EINVAL, "a setting is not one line of text"},
    {HEAD "\"settings\": {\"k\": \"a\\nb\"}", PB_EINVAL, "a setting is not one line of text"},
    {HEAD "\"settings\": {}", PB_EINVAL, "\"files\" is not an object"},
    {HEAD "\"settings\": {}, \"files\": {\"a\": 3}", PB_EINVAL, "\"a\" is not an object"},
    {HEAD "\"settings\": {}, \"files\": {\"a\": {\"bytes\": 1}}", PB_EINVAL, "\"xxh3_128\" is not a digest"},
    {HEAD "\"settings\": {}, \"files\": {\"a\": {\"bytes\": 1, \"xxh3_128\": \"0\"}}", PB_EINVAL,
     "\"xxh3_128\" is not a digest"},
    {FILES("../x"), PB_EINVAL, "\"../x\" is not a valid name"},
    {FILES("a/../../x"), PB_EINVAL, "is not a valid name"},
    {FILES("a/.."), PB_EINVAL, "is not a valid name"},
    {FILES("./x"), PB_EINVAL, "is not a valid name"},
    {FILES("/etc/passwd"), PB_EINVAL, "is not a valid name"},
    {FILES("a//b"), PB_EINVAL, "is not a valid name"},
    {FILES("a/"), PB_EINVAL, "is not a valid name"},
    {FILES(""), PB_EINVAL, "is not a valid name"},
    {FILES("a\\nb"), PB_EINVAL, "\"?\" is not a valid name"},
    {FILES("checkpoint.json"), PB_EINVAL, "is not a valid name"},
};

static void every_malformed_file_is_refused(void **state)
{
    (void)state;
    pb_index x = {0};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        CHECK_FAILS(parse(faults[i].body, &x), faults[i].status, faults[i].says);
        if (strncmp(pb_error(), "c.json", 6) != 0 || strpbrk(pb_error(), "\n\r")) fail_msg("'%s'", pb_error());
        assert_null(x.settings);
    }
    CHECK_OK(parse(FILES("..a/b.."), &x));
    pb_index_free(&x);
}

static void invalid_indexes_are_not_written(void **state)
{
    (void)state;
    pb_index x = made();
    char name[PB_INDEX_NAME + 2], *text = NULL;
    size_t n = 0;
    const pb_file_digest d = {1, {H}};
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    CHECK_FAILS(pb_index_add_file(&x, name, &d), PB_EINVAL, "is not a valid name");
    CHECK_FAILS(pb_index_add_file(&x, "a/../b", &d), PB_EINVAL, "is not a valid name");
    while (x.files < PB_INDEX_FILES) CHECK_OK(pb_index_add_file(&x, name + 1, &d));
    CHECK_FAILS(pb_index_add_file(&x, name + 1, &d), PB_EINVAL, "more than 4096 files");
    x.files = 1;
    x.progress.samples = 1ull << 63;
    CHECK_FAILS(pb_index_format(&x, &text, &n), PB_EINVAL, "the counter samples is 2^63 or more");
    x.progress.samples = 0;
    CHECK_OK(pb_index_add_file(&x, "\xff", &d));
    CHECK_FAILS(pb_index_format(&x, &text, &n), PB_EINVAL, "not UTF-8");
    pb_index_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_files_are_read_back),
        cmocka_unit_test(every_malformed_file_is_refused),
        cmocka_unit_test(invalid_indexes_are_not_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
