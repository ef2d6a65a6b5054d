/* hf_stop_test.c - tests of reading end-of-sequence ids: which file has them, the kinds of value, and what is
 * refused. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/test.h"
#include "trainer/hf/hf_stop.h"

static char folder[] = "/tmp/pb_stop_XXXXXX";

/* Writes a file of the folder; text NULL: removes it. */
static void put(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!text) {
        unlink(path);
        return;
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void the_generation_config_comes_first(void **state)
{
    (void)state;
    pb_stop_ids s;
    CHECK_OK(pb_hf_stop_ids(folder, 100, &s));
    assert_int_equal(s.n, 0);
    put("config.json", "{\"eos_token_id\": 7}");
    CHECK_OK(pb_hf_stop_ids(folder, 100, &s));
    assert_int_equal(s.n, 1);
    assert_int_equal(s.id[0], 7);
    put("generation_config.json", "{\"eos_token_id\": [99, 0]}");
    CHECK_OK(pb_hf_stop_ids(folder, 100, &s));
    assert_int_equal(s.n, 2);
    assert_int_equal(s.id[0], 99);
    assert_int_equal(s.id[1], 0);
    put("generation_config.json", "{\"eos_token_id\": null}");
    CHECK_OK(pb_hf_stop_ids(folder, 100, &s));
    assert_int_equal(s.n, 0);
    put("generation_config.json", "{}");
    CHECK_OK(pb_hf_stop_ids(folder, 100, &s));
    assert_int_equal(s.n, 0);
}

static void other_values_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"eos_token_id\": 100}", "{\"eos_token_id\": -1}", "{\"eos_token_id\": \"x\"}",
                                      "{\"eos_token_id\": [3, 2.5]}", "{\"eos_token_id\": {}}"};
    pb_stop_ids s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("generation_config.json", bad[i]);
        CHECK_FAILS(pb_hf_stop_ids(folder, 100, &s), PB_EINVAL,
                    "generation_config.json: \"eos_token_id\" needs ids of the vocabulary, 0 to 99");
    }
    put("generation_config.json", "[");
    CHECK_FAILS(pb_hf_stop_ids(folder, 100, &s), PB_EINVAL, "generation_config.json is not valid JSON");
    FILE *f = NULL;
    char path[128];
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"eos_token_id\": [0");
    for (int i = 0; i < PB_STOP_IDS; i++) fprintf(f, ", %d", i);
    fprintf(f, "]}");
    assert_int_equal(fclose(f), 0);
    CHECK_FAILS(pb_hf_stop_ids(folder, 100, &s), PB_EINVAL, "more than 64 ids");
    put("generation_config.json", NULL);
    put("config.json", NULL);
}

static void a_gguf_file_names_its_own(void **state)
{
    (void)state;
    pb_stop_ids s;
    CHECK_OK(pb_hf_stop_ids(PB_FIXTURES "/gguf/llama.gguf", 320, &s));
    assert_int_equal(s.n, 1);
    assert_int_equal(s.id[0], 261);
    CHECK_FAILS(pb_hf_stop_ids(PB_FIXTURES "/gguf/llama.gguf", 261, &s), PB_EINVAL,
                "llama.gguf: \"eos_token_id\" needs ids of the vocabulary, 0 to 260");
    CHECK_OK(pb_hf_stop_ids(PB_FIXTURES "/gguf/blocks.gguf", 4, &s));
    assert_int_equal(s.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_generation_config_comes_first),
        cmocka_unit_test(other_values_are_refused),
        cmocka_unit_test(a_gguf_file_names_its_own),
    };
    assert_non_null(mkdtemp(folder));
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
