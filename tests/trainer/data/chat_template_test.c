/* chat_template_test.c - tests of chat templates in Jinja: the supported family whose output a template equals is
 * recognised, and templates outside the supported subset are rejected. */
#include "tests/trainer/data/chat_test.h"
#include "trainer/data/chat_template.h"
#include "trainer/data/jinja.h"

static json_t *templates_file(void)
{
    json_error_t e;
    json_t *root = json_load_file(PB_FIXTURES "/chat/templates.json", 0, &e);
    assert_non_null(root);
    return root;
}

static void check_cases(const char *name, json_t *cases, const pb_chat_template *t)
{
    json_t *one;
    size_t i;
    assert_true(json_array_size(cases) > 10);
    json_array_foreach(cases, i, one)
    {
        rendering x = {.o = {.family = t->family, .system = t->system}};
        json_t *line = json_array_get(one, 0), *want = json_array_get(one, 1);
        pb_jsonl_counts c;
        CHECK_OK(
            pb_jsonl_parse(name, json_string_value(line), json_string_length(line), PB_BAD_LINES_FAIL, render, &x, &c));
        if (x.r.text.n != json_string_length(want) || memcmp(x.r.text.p, json_string_value(want), x.r.text.n) != 0)
            fail_msg("%s: %s:\n%.*s\nwant\n%s", name, json_string_value(line), (int)x.r.text.n, x.r.text.p,
                     json_string_value(want));
        pb_rendered_free(&x.r);
    }
}

/* A template is recognised from chat_template.jinja, and from tokenizer_config.json as one text or as one of
 * several. */
static void templates_are_recognised_by_their_output(void **state)
{
    (void)state;
    json_t *root = templates_file(), *one;
    size_t i;
    json_array_foreach(json_object_get(root, "templates"), i, one)
    {
        const char *name = json_string_value(json_object_get(one, "name"));
        json_t *jinja = json_object_get(one, "jinja");
        const char *ours = json_string_value(json_object_get(one, "template"));
        json_t *configs[] = {
            json_pack("{s:s}", "bos_token", "<|begin_of_text|>"),
            json_pack("{s:{s:s}, s:O}", "bos_token", "content", "<|begin_of_text|>", "chat_template", jinja),
            json_pack("{s:s, s:[{s:s,s:s},{s:s,s:O}]}", "bos_token", "<|begin_of_text|>", "chat_template", "name",
                      "tool_use", "template", "x", "name", "default", "template", jinja)};
        for (int k = 0; k < 3; k++) {
            char *config = json_dumps(configs[k], 0);
            pb_chat_template t;
            const pb_status s = pb_chat_template_parse("D", k ? NULL : json_string_value(jinja),
                                                       k ? 0 : json_string_length(jinja), config, strlen(config), &t);
            if (!ours) {
                CHECK_FAILS(s, PB_EFORMAT,
                            k ? "D/tokenizer_config.json: the chat template" : "D/chat_template.jinja: ");
                if (!strstr(pb_error(), "--template NAME") || strchr(pb_error(), '\n')) fail_msg("%s", pb_error());
            } else {
                if (s != PB_OK) fail_msg("%s: %s", name, pb_error());
                if (t.family != family_of(ours, strlen(ours))) fail_msg("%s: not %s", name, ours);
                assert_string_equal(t.system, json_string_value(json_object_get(one, "system")));
                if (!k) check_cases(name, json_object_get(one, "cases"), &t);
            }
            free(config);
            json_decref(configs[k]);
        }
    }
    assert_true(i > 10);
    json_decref(root);
}

static void supported_jinja_is_rendered(void **state)
{
    (void)state;
    json_t *root = templates_file(), *one, *context = json_object();
    size_t i;
    json_array_foreach(json_object_get(root, "language"), i, one)
    {
        json_t *text = json_array_get(one, 0), *want = json_array_get(one, 1);
        pb_bytes out = {0};
        const pb_status s = pb_jinja_render(json_string_value(text), json_string_length(text), context, &out);
        const bool same = json_is_string(want) && s == PB_OK && out.n == json_string_length(want) &&
                          (!out.n || !memcmp(out.p, json_string_value(want), out.n));
        if (!same && (json_is_string(want) || s != PB_EFORMAT))
            fail_msg("%s: '%.*s', want '%s' (%s)", json_string_value(text), (int)out.n, out.p ? out.p : "",
                     json_is_string(want) ? json_string_value(want) : "a failure", pb_error());
        pb_bytes_free(&out);
    }
    assert_true(i > 40);
    json_decref(context);
    json_decref(root);
}

static void templates_cannot_run_without_end(void **state)
{
    static const char *const bad[][2] = {
        {"{% for a in m %}{% for b in m %}{% for c in m %}{% for d in m %}x{% endfor %}{% endfor %}{% endfor %}{% "
         "endfor %}",
         "steps"},
        {"{% set ns = namespace(x='aaaaaaaa') %}{% for a in m %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "bytes"},
        {"{{ ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1) }}", "are nested more than"},
        {"{% set m.x = 1 %}", "this attribute"},
        /* n is an integer, not a list */
        {"{% for a in n %}x{% endfor %}", "a 'for' over a value that is not a list"},
        {"{{ '\\q' }}", "a string contains an escape that is not supported"},
        {"{%-%}", "a tag does not begin with the name of a statement"},
    };
    json_t *context = json_pack("{s:o,s:i}", "m", json_array(), "n", 5);
    pb_bytes out = {0};
    (void)state;
    for (int i = 0; i < 64; i++) json_array_append_new(json_object_get(context, "m"), json_integer(i));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_FAILS(pb_jinja_render(bad[i][0], strlen(bad[i][0]), context, &out), PB_EFORMAT, bad[i][1]);
        assert_int_equal(out.n, 0);
    }
    pb_bytes_free(&out);
    json_decref(context);
}

static void templates_are_found_in_folders(void **state)
{
    pb_chat_template t;
    pb_tokenizer *smol = NULL, *llama = NULL;
    (void)state;
    CHECK_OK(pb_chat_template_find(PB_FIXTURES "/chat/chatml", &t));
    assert_int_equal(t.family, PB_TEMPLATE_CHATML);
    assert_string_equal(t.file, "tokenizer_config.json");
    CHECK_OK(pb_chat_template_find(PB_FIXTURES "/tokenizers", &t)); /* the folder has neither file */
    assert_null(t.file);
    CHECK_FAILS(pb_chat_template_parse("D", NULL, 0, "[1]", 3, &t), PB_EINVAL,
                "D/tokenizer_config.json is not a JSON object");
    CHECK_FAILS(pb_chat_template_parse("D", NULL, 0, "{", 1, &t), PB_EINVAL, "D/tokenizer_config.json: line 1");
    CHECK_FAILS(pb_chat_template_parse("D", NULL, 0, "{\"chat_template\":[{}]}", 22, &t), PB_EINVAL,
                "is neither a text nor a list");
    CHECK_OK(pb_chat_template_parse("D", NULL, 0, "{\"chat_template\":null}", 22, &t));
    assert_null(t.file);
    CHECK_OK(pb_tokenizer_open(PB_FIXTURES "/chat/chatml", &smol));
    CHECK_OK(pb_tokenizer_open(PB_FIXTURES "/tokenizers/llama3.json", &llama));
    CHECK_OK(pb_chat_template_check(PB_TEMPLATE_CHATML, smol));
    CHECK_FAILS(pb_chat_template_check(PB_TEMPLATE_LLAMA3, smol), PB_EINVAL, "special token \"<|begin_of_text|>\" is ");
    CHECK_FAILS(pb_chat_template_check(PB_TEMPLATE_QWEN3, llama), PB_EINVAL, "special token \"<|im_start|>\" is ");
    pb_tokenizer_close(smol);
    pb_tokenizer_close(llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_recognised_by_their_output),
        cmocka_unit_test(supported_jinja_is_rendered),
        cmocka_unit_test(templates_cannot_run_without_end),
        cmocka_unit_test(templates_are_found_in_folders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
