/* chat_test.c - tests of conversations: reading them from JSONL, rendering them for each family, and their loss
 * masks. */
#include <stdlib.h>
#include <string.h>

#include "tests/trainer/data/chat_test.h"
#include "trainer/data/encode.h"

#define HI "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"Yo\"}]}"

/* ---- rendering conversations ----------------------------------------------------------------------- */

static void check_golden(const char *name, json_t *line, const char *how, json_t *want)
{
    rendering x = {.o = {.family = family_of(how, strcspn(how, " ")),
                         .thinking = strstr(how, "thinking"),
                         .keep_thinking = strstr(how, "keep")}};
    pb_jsonl_counts c;
    pb_status s =
        pb_jsonl_parse(name, json_string_value(line), json_string_length(line), PB_BAD_LINES_FAIL, render, &x, &c);
    if (s != PB_OK) fail_msg("%s, %s: %s", name, how, pb_error());
    if (x.r.text.n != json_string_length(want) || memcmp(x.r.text.p, json_string_value(want), x.r.text.n) != 0)
        fail_msg("%s, %s:\n%.*s\nwant\n%s", name, how, (int)x.r.text.n, x.r.text.p, json_string_value(want));
    pb_rendered_free(&x.r);
}

static void rendered_text_equals_the_family_template(void **state)
{
    (void)state;
    json_error_t e;
    json_t *root = json_load_file(PB_FIXTURES "/chat/expected.json", 0, &e), *one, *want;
    const char *how;
    size_t i, checked = 0;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, one)
    {
        json_object_foreach(json_object_get(one, "text"), how, want)
        {
            check_golden(json_string_value(json_object_get(one, "name")), json_object_get(one, "line"), how, want);
            checked++;
        }
    }
    assert_true(checked > 120);
    json_decref(root);
}

/* Renders a user's message, after a system message unless it is NULL, and what begins the answer. */
static pb_status render_question(const pb_chat_options *o, const char *system, const char *user, pb_rendered *out)
{
    pb_message m[2] = {{.role = PB_CHAT_SYSTEM}, {.role = PB_CHAT_USER, .content = {user, strlen(user)}}};
    if (system) m[0].content = (pb_json_text){system, strlen(system)};
    return pb_chat_render(&(pb_chat){.message = system ? m : m + 1, .n = system ? 2 : 1}, o, out);
}

/* chat/answers.json: the models' own templates with add_generation_prompt (scripts/fixtures/generate_fixtures.py). */
static void an_answer_begins_as_in_the_family_template(void **state)
{
    (void)state;
    json_error_t e;
    json_t *root = json_load_file(PB_FIXTURES "/chat/answers.json", 0, &e), *one;
    pb_rendered r = {0};
    size_t i;
    assert_non_null(root);
    assert_true(json_array_size(root) >= 12);
    json_array_foreach(root, i, one)
    {
        const char *family = json_string_value(json_object_get(one, "template"));
        const char *want = json_string_value(json_object_get(one, "text"));
        const pb_chat_options o = {.family = family_of(family, strlen(family)),
                                   .system = json_string_value(json_object_get(one, "default")),
                                   .answer = true};
        CHECK_OK(render_question(&o, json_string_value(json_object_get(one, "system")),
                                 json_string_value(json_object_get(one, "user")), &r));
        if (r.text.n != strlen(want) || memcmp(r.text.p, want, r.text.n) != 0)
            fail_msg("%s:\n%.*s\nwant\n%s", family, (int)r.text.n, r.text.p, want);
    }
    const pb_chat_options v4 = {.family = PB_TEMPLATE_DEEPSEEK_V4, .answer = true};
    CHECK_OK(render_question(&v4, NULL, "a", &r));
    static const char end[] = "</think>"; /* encoding_dsv4.py begins the answer in the user's turn: case no_answer */
    assert_memory_equal(r.text.p + r.text.n - strlen(end), end, strlen(end));
    const pb_chat_options bytes = {.family = PB_TEMPLATE_BYTES, .answer = true};
    static const char byte_text[] = "<im_start>user\na<im_end>\n<im_start>assistant\n";
    CHECK_OK(render_question(&bytes, NULL, "a", &r));
    assert_int_equal(r.text.n, strlen(byte_text));
    assert_memory_equal(r.text.p, byte_text, r.text.n);
    pb_rendered_free(&r);
    json_decref(root);
}

static pb_status render_line(pb_template family, const char *line, rendering *x)
{
    pb_jsonl_counts c;
    x->o.family = family;
    return pb_jsonl_parse("f", line, strlen(line), PB_BAD_LINES_FAIL, render, x, &c);
}

static void features_a_family_lacks_are_refused(void **state)
{
    (void)state;
    static const char tools[] = "{\"tools\":[{}],\"instruction\":\"a\",\"response\":\"b\"}";
    static const char call[] =
        "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":{}}]}]}";
    static const char result[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"\"},{\"role\":\"tool\",\"content\":\"1\"}]}";
    static const char reason[] =
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"r\"}]}";
    rendering x = {0};
    CHECK_FAILS(render_line(PB_TEMPLATE_CHATML, tools, &x), PB_EFORMAT,
                "f:1: the line has \"tools\", but template chatml does not support tools");
    CHECK_FAILS(render_line(PB_TEMPLATE_LLAMA3, call, &x), PB_EFORMAT,
                "f:1: message 1: template llama3 does not support tool calls");
    CHECK_FAILS(render_line(PB_TEMPLATE_BYTES, result, &x), PB_EFORMAT,
                "f:1: message 2: template bytes does not support tool results");
    CHECK_FAILS(render_line(PB_TEMPLATE_QWEN2_5, reason, &x), PB_EFORMAT,
                "message 1: template qwen2.5 does not support \"reasoning");
    CHECK_OK(render_line(PB_TEMPLATE_QWEN3, reason, &x));
    CHECK_FAILS(render_line(PB_TEMPLATE_DEEPSEEK_V4, tools, &x), PB_EINVAL, "tool 1 has no object \"function\"");
    x.o.answer = true;
    CHECK_FAILS(render_line(PB_TEMPLATE_QWEN2_5, HI, &x), PB_EINVAL, "the last message is not the user's");
    pb_rendered_free(&x.r);
}

static void an_instruction_becomes_a_conversation(void **state)
{
    (void)state;
    rendering x = {0};
    CHECK_OK(render_line(PB_TEMPLATE_BYTES,
                         "{\"instruction\":\"Add\",\"input\":\"1 2\",\"response\":\"3\",\"system\":\"S\",\"id\":7}",
                         &x));
    static const char want[] =
        "<im_start>system\nS<im_end>\n<im_start>user\nAdd\n1 2<im_end>\n<im_start>assistant\n3<im_end>\n";
    assert_int_equal(x.r.text.n, strlen(want));
    assert_memory_equal(x.r.text.p, want, strlen(want));
    pb_rendered_free(&x.r);
}

/* ---- reading lines of JSONL -------------------------------------------------------------------------- */

static pb_status count(void *self, const pb_chat *chat)
{
    (void)chat;
    ++*(size_t *)self;
    return PB_OK;
}

static void bad(const char *line, size_t n, pb_status status, const char *text)
{
    char all[400];
    pb_jsonl_counts c;
    size_t taken = 0;
    const int at = snprintf(all, sizeof all, "%s\n \t\r\n", HI);
    memcpy(all + at, line, n);
    snprintf(all + at + n, sizeof all - (size_t)at - n, "\n%s", HI);
    const size_t total = (size_t)at + n + 1 + strlen(HI);
    CHECK_FAILS(pb_jsonl_parse("f", all, total, PB_BAD_LINES_FAIL, count, &taken, &c), status, "f:3: ");
    if (!strstr(pb_error(), text)) fail_msg("%s: '%s' does not say '%s'", line, pb_error(), text);
    assert_int_equal(taken, 1);
    CHECK_OK(pb_jsonl_parse("f", all, total, PB_BAD_LINES_SKIP, count, &taken, &c));
    assert_int_equal(taken, 3);
    assert_int_equal(c.lines, 4);
    assert_int_equal(c.blank, 1);
    assert_int_equal(c.bad, 1);
    assert_int_equal(c.samples, 2);
    if (!strstr(c.kept[0], text) || strpbrk(c.kept[0], "\n\r")) fail_msg("kept '%s'", c.kept[0]);
}
#define BAD(line, status, text) bad(line, sizeof(line) - 1, status, text)
#define MESSAGE(rest)           "{\"messages\":[{" rest "}]}"

static void bad_lines_are_named_and_counted(void **state)
{
    (void)state;
    BAD("x", PB_EINVAL, "column 1: ");
    BAD("[1]", PB_EINVAL, "the line is not a JSON object");
    BAD("{\"a\":1}", PB_EINVAL, "neither \"messages\" nor");
    BAD("{\"messages\":[],\"instruction\":\"\"}", PB_EINVAL, "both");
    BAD("{\"messages\":[]}", PB_EINVAL, "is not a list of messages");
    BAD("{\"messages\":[1]}", PB_EINVAL, "message 1 is not an object");
    BAD("{\"instruction\":1,\"response\":\"\"}", PB_EINVAL, "\"instruction\" is not a string");
    BAD("{\"instruction\":\"\"}", PB_EINVAL, "\"response\" is not a string");
    BAD(MESSAGE("\"content\":\"\""), PB_EINVAL, "message 1: \"role\" is not a string");
    BAD(MESSAGE("\"role\":\"user\""), PB_EINVAL, "message 1: \"content\" is not a string");
    BAD(MESSAGE("\"role\":\"bot\",\"content\":\"\""), PB_EFORMAT, "role \"bot\" is not supported");
    BAD(MESSAGE("\"role\":\"user\",\"content\":\"\",\"tool_calls\":[{}]"), PB_EINVAL,
        "only an assistant message may have \"tool_calls\"");
    BAD(MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"[]\"}]"), PB_EINVAL,
        "\"arguments\" is not an object");
    BAD(MESSAGE("\"role\":\"assistant\",\"tool_calls\":[{\"name\":\"f\",\"arguments\":\"{\"}]"), PB_EINVAL,
        "\"arguments\" is not JSON");
    BAD(MESSAGE("\"role\":\"user\",\"content\":\"\",\"step_loss_mask\":\"1\""), PB_EINVAL,
        "\"step_loss_mask\" is not a number");
    BAD("{\"instruction\":\"a\",\"response\":\"b\",\"tools\":{}}", PB_EINVAL, "\"tools\" is not a list");
    BAD("{\"instruction\":\"a\",\"instruction\":\"a\",\"response\":\"b\"}", PB_EINVAL, "duplicate");
    BAD("{\"instruction\":\"a\0b\",\"response\":\"b\"}", PB_EINVAL, "a NUL byte");
    BAD("{\"instruction\":\"\\u0000\",\"response\":\"b\"}", PB_EINVAL, "u0000");
    BAD("{\"instruction\":\"\xc3\",\"response\":\"b\"}", PB_EINVAL, "byte 17 of the line is not UTF-8");
    BAD("{\"instruction\":\"\\ud800\",\"response\":\"b\"}", PB_EINVAL, "invalid Unicode");
    BAD("{\"instruction\":\"a\",\"response\":\"b\",\"n\":92233720368547758080}", PB_EINVAL, "too big integer");
}

static void deep_and_long_lines_are_refused(void **state)
{
    (void)state;
    const size_t most = PB_JSONL_LINE + 1;
    char *all = malloc(most + 100);
    pb_jsonl_counts c;
    size_t taken = 0;
    assert_non_null(all);
    memset(all, '[', 5000);
    CHECK_FAILS(pb_jsonl_parse("f", all, 5000, PB_BAD_LINES_FAIL, count, &taken, &c), PB_EINVAL, "depth");
    memset(all, ' ', most);
    memcpy(all + most, "\n" HI, sizeof("\n" HI));
    CHECK_OK(pb_jsonl_parse("f", all, strlen(all), PB_BAD_LINES_SKIP, count, &taken, &c));
    if (!strstr(c.kept[0], "f:1: the line has more than 16777216 bytes")) fail_msg("kept '%s'", c.kept[0]);
    assert_int_equal(c.bad, 1);
    assert_int_equal(taken, 1);
    /* The same lines from a file, then a line of the greatest length allowed. */
    char path[] = "/tmp/pb_chat_testXXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    assert_non_null(f);
    fwrite(all, 1, strlen(all), f);
    fprintf(f, "\n%*s\n%s", PB_JSONL_LINE, HI, HI);
    fclose(f);
    CHECK_OK(pb_jsonl_read(path, PB_BAD_LINES_SKIP, count, &taken, &c));
    remove(path);
    assert_int_equal(c.lines, 4);
    assert_int_equal(c.bad, 1);
    assert_int_equal(taken, 4);
    free(all);
    CHECK_FAILS(pb_jsonl_read("/no/such", PB_BAD_LINES_SKIP, count, &taken, &c), PB_EPATH, "/no/such: ");
}

/* ---- which tokens each loss mask counts -------------------------------------------------------------- */

typedef struct encoding {
    pb_tokenizer *t;
    pb_chat_options o;
    pb_mask_type mask;
    pb_samples s;
} encoding;

static pb_status encode(void *self, const pb_chat *chat)
{
    encoding *x = self;
    return pb_encode_chat(x->t, chat, &x->o, x->mask, &x->s);
}

static pb_status encode_line(encoding *x, const char *line)
{
    pb_jsonl_counts c;
    return pb_jsonl_parse("f", line, strlen(line), PB_BAD_LINES_FAIL, encode, x, &c);
}

/* Checks the text of the loss tokens (mask 1). */
static void check_counted(const char *tokenizer, pb_template family, pb_mask_type mask, const char *line,
                          const char *want)
{
    encoding x = {.o = {.family = family, .thinking = true}, .mask = mask};
    pb_bytes text = {0};
    CHECK_OK(pb_tokenizer_open(tokenizer, &x.t));
    CHECK_OK(encode_line(&x, line));
    assert_int_equal(x.s.n, 1);
    assert_int_equal(x.s.first[1], x.s.ids.n);
    for (size_t i = 0; i < x.s.ids.n; i++)
        if (x.s.counted[i]) CHECK_OK(pb_tokenizer_decode(x.t, &x.s.ids.id[i], 1, 0, &text));
    if (text.n != strlen(want) || (text.n && memcmp(text.p, want, text.n) != 0))
        fail_msg("mask %d: '%.*s', want '%s'", (int)mask, (int)text.n, text.p ? text.p : "", want);
    pb_bytes_free(&text);
    pb_samples_free(&x.s);
    pb_tokenizer_close(x.t);
}

#define TALK(extra)                                                                                                    \
    "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"a\"},{\"role\":"          \
    "\"assistant\",\"content\":\"b\"" extra "},{\"role\":\"user\",\"content\":\"c\"},{\"role\":\"assistant\","         \
    "\"content\":\"d\"}]}"

static void masks_select_the_named_tokens(void **state)
{
    (void)state;
    static const char *const want[PB_NMASKS] = {
        [PB_MASK_ASSISTANT] = "b<im_end>d<im_end>",
        [PB_MASK_LAST_ASSISTANT] = "d<im_end>",
        [PB_MASK_RESPONSE] = "d",
        [PB_MASK_ALL] = "<im_start>system\nS<im_end>\n<im_start>user\na<im_end>\n<im_start>assistant\nb<im_end>\n"
                        "<im_start>user\nc<im_end>\n<im_start>assistant\nd<im_end>\n",
        [PB_MASK_ALL_BUT_SYSTEM] = "\n<im_start>user\na<im_end>\n<im_start>assistant\nb<im_end>\n"
                                   "<im_start>user\nc<im_end>\n<im_start>assistant\nd<im_end>\n",
    };
    for (int i = 0; i < PB_NMASKS; i++) check_counted(NULL, PB_TEMPLATE_BYTES, (pb_mask_type)i, TALK(""), want[i]);
    check_counted(NULL, PB_TEMPLATE_BYTES, PB_MASK_ASSISTANT, TALK(",\"step_loss_mask\":0"), "d<im_end>");
    check_counted(NULL, PB_TEMPLATE_BYTES, PB_MASK_ASSISTANT, TALK(",\"step_loss_mask\":1"), "b<im_end>d<im_end>");
    check_counted(NULL, PB_TEMPLATE_BYTES, PB_MASK_ASSISTANT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
                  "");
}

static void loss_tokens_include_the_end_of_turn(void **state)
{
    (void)state;
    static const char qwen[] = PB_FIXTURES "/tokenizers/qwen2.json", llama[] = PB_FIXTURES "/tokenizers/llama3.json";
    check_counted(qwen, PB_TEMPLATE_QWEN2_5, PB_MASK_ASSISTANT, TALK(""), "b<|im_end|>d<|im_end|>");
    check_counted(qwen, PB_TEMPLATE_QWEN3, PB_MASK_ASSISTANT, TALK(""),
                  "b<|im_end|><think>\n\n</think>\n\nd<|im_end|>");
    check_counted(llama, PB_TEMPLATE_LLAMA3, PB_MASK_ASSISTANT, TALK(""), "b<|eot_id|>d<|eot_id|>");
    check_counted(llama, PB_TEMPLATE_LLAMA3, PB_MASK_RESPONSE, TALK(""), "d");
    check_counted(NULL, PB_TEMPLATE_DEEPSEEK_V4, PB_MASK_ASSISTANT, TALK(""),
                  "b<\xef\xbd\x9c"
                  "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c></think>d<\xef\xbd\x9c"
                  "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>");
}

/* Tokens that are partly inside and partly outside the counted bytes are no loss tokens. */
static void partly_covered_tokens_are_not_loss_tokens(void **state)
{
    (void)state;
    pb_span spans[] = {{2, 6, 8, PB_CHAT_ASSISTANT, true}, {8, 9, 10, PB_CHAT_ASSISTANT, true}};
    const pb_rendered r = {.span = spans, .n = 2};
    static const pb_range where[] = {{0, 2}, {1, 3}, {2, 3}, {3, 3},  {3, 6}, {5, 7},
                                     {6, 8}, {7, 9}, {8, 9}, {9, 11}, {9, 10}};
    static const unsigned char want[] = {0, 0, 1, 0, 1, 1, 1, 0, 1, 0, 1};
    unsigned char got[11];
    assert_int_equal(pb_mask_make(PB_MASK_ASSISTANT, &r, where, 11, got), 6);
    assert_memory_equal(got, want, 11);
    assert_int_equal(pb_mask_make(PB_MASK_RESPONSE, &r, where, 11, got), 1);
    assert_int_equal(got[8], 1);
    spans[0].role = PB_CHAT_SYSTEM;
    assert_int_equal(pb_mask_make(PB_MASK_ALL_BUT_SYSTEM, &r, where, 11, got), 4);
    assert_int_equal(got[1] + got[7], 0);
    /* The newline of the header and the answer's leading blank lines form one token. It is partly outside the answer,
     * so it is no loss token. */
    check_counted(PB_FIXTURES "/tokenizers/qwen2.json", PB_TEMPLATE_CHATML, PB_MASK_ASSISTANT,
                  "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\\n\\n\\nx\"}]}", "x<|im_end|>");
}

static void text_of_special_tokens_is_refused(void **state)
{
    (void)state;
    encoding x = {.o = {.family = PB_TEMPLATE_BYTES}};
    CHECK_OK(pb_tokenizer_open(NULL, &x.t));
    CHECK_OK(encode_line(&x, HI));
    const size_t n = x.s.ids.n;
    CHECK_FAILS(encode_line(&x, "{\"instruction\":\"a<im_end>\",\"response\":\"\"}"), PB_EINVAL,
                "f:1: the text contains the special token \"<im_end>\"");
    assert_int_equal(x.s.n, 1);
    assert_int_equal(x.s.ids.n, n);
    CHECK_OK(encode_line(&x, HI));
    assert_int_equal(x.s.first[1], n);
    assert_int_equal(x.s.first[2], 2 * n);
    pb_samples_free(&x.s);
    pb_tokenizer_close(x.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rendered_text_equals_the_family_template),
        cmocka_unit_test(an_answer_begins_as_in_the_family_template),
        cmocka_unit_test(features_a_family_lacks_are_refused),
        cmocka_unit_test(an_instruction_becomes_a_conversation),
        cmocka_unit_test(bad_lines_are_named_and_counted),
        cmocka_unit_test(deep_and_long_lines_are_refused),
        cmocka_unit_test(masks_select_the_named_tokens),
        cmocka_unit_test(loss_tokens_include_the_end_of_turn),
        cmocka_unit_test(partly_covered_tokens_are_not_loss_tokens),
        cmocka_unit_test(text_of_special_tokens_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
