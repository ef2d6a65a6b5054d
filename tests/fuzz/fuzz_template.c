/* fuzz_template.c - fuzzes the chat template reader with libFuzzer. To build and run it:
 *     cmake --preset fuzz && cmake --build --preset fuzz
 *     build/fuzz/bin/fuzz_template -max_total_time=60 -max_len=4096 NEW_FILES_GO_HERE tests/fuzz/corpus_template
 * Input that begins with '{' is read as a tokenizer_config.json, any other as a chat_template.jinja. */
#include <stdlib.h>
#include <string.h>

#include "trainer/data/chat_template.h"
#include "trainer/data/jinja.h"
#include "trainer/tokenizer/room.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* The variables of a template: a conversation, tools, and the special tokens that templates name. */
static json_t *context(void)
{
    static const char text[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":\" u \"},{\"role\":"
        "\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,null]}}}]"
        "}],"
        "\"tools\":[{\"a\":{}}],\"bos_token\":\"<s>\",\"add_generation_prompt\":true,\"n\":null}";
    json_error_t e;
    json_t *o = json_loads(text, 0, &e);
    if (!o) abort();
    return o;
}

static void need_line(pb_status s)
{
    if (s != PB_OK && (!*pb_error() || strpbrk(pb_error(), "\n\r"))) abort();
}

/* Renders twice. The results must be equal, a failed rendering must append nothing, and the variables must not
 * change. */
static void use(const char *text, size_t n)
{
    json_t *o = context(), *same = context();
    pb_bytes a = {0}, b = {0};
    if (pb_tok_append(&a, "x", 1) != PB_OK) abort();
    const pb_status s = pb_jinja_render(text, n, o, &a);
    need_line(s == PB_OK ? PB_OK : PB_EFORMAT);
    if (s != PB_OK && a.n != 1) abort();
    if (!json_equal(o, same)) abort();
    if (s == PB_OK && (pb_jinja_render(text, n, o, &b) != PB_OK || b.n != a.n - 1)) abort();
    if (b.n && memcmp(a.p + 1, b.p, b.n) != 0) abort();
    pb_bytes_free(&a);
    pb_bytes_free(&b);
    json_decref(o);
    json_decref(same);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *text = (const char *)bytes;
    const int config = n && bytes[0] == '{' && (n == 1 || !strchr("{%#", bytes[1]));
    pb_chat_template t;
    if (!config) use(text, n);
    const pb_status s = config ? pb_chat_template_parse("fuzz", NULL, 0, text, n, &t)
                               : pb_chat_template_parse("fuzz", n ? text : "", n, NULL, 0, &t);
    need_line(s);
    if (s == PB_OK && t.file && (t.family >= PB_NTEMPLATES || strlen(t.system) >= PB_LONGEST_SYSTEM)) abort();
    return 0;
}
