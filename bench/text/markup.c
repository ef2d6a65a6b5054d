/* markup.c - escapes text for Markdown and XML, and writes test cases as JUnit XML. */
#include "bench/text/markup.h"

#include <string.h>
#include <utf8proc.h>

pb_format pb_format_of(const char *word)
{
    if (word && !strcmp(word, "markdown")) return PB_FORMAT_MARKDOWN;
    return word && !strcmp(word, "junit") ? PB_FORMAT_JUNIT : PB_FORMAT_TEXT;
}

void pb_markdown(FILE *out, const char *text, bool code)
{
    const bool quoted = code && *text;
    if (quoted) fputc('`', out);
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) fputc(' ', out);
        else if (code && *text == '`') fputc('\'', out);
        else if (code ? *text == '|' : strchr("\\`*_[]<>|#&~@", *text) != NULL) fprintf(out, "\\%c", *text);
        else fputc(*text, out);
    }
    if (quoted) fputc('`', out);
}

/* Decodes the character at `text` into *c. Returns its length in bytes; 0: not UTF-8. */
static int character(const char *text, utf8proc_int32_t *c)
{
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, c);
    return n > 0 ? (int)n : 0;
}

bool pb_is_utf8(const char *text)
{
    utf8proc_int32_t c;
    while (*text) {
        int n = character(text, &c);
        if (!n) return false;
        text += n;
    }
    return true;
}

static const char *entity(utf8proc_int32_t c)
{
    return c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&quot;"
           : c == '\'' ? "&apos;"
                       : NULL;
}

void pb_xml(FILE *out, const char *text)
{
    while (*text) {
        utf8proc_int32_t c = 0;
        int n = character(text, &c);
        bool holds = n && c >= ' ' && c != 0x7f && c != 0xfffe && c != 0xffff;
        if (!holds) fputc('?', out);
        else if (entity(c)) fputs(entity(c), out);
        else fwrite(text, 1, (size_t)n, out);
        text += n ? n : 1;
    }
}

static void attribute(FILE *out, const char *name, const char *value)
{
    fprintf(out, " %s=\"", name);
    pb_xml(out, value);
    fputc('"', out);
}

static void write_case(FILE *out, const pb_junit_case *c)
{
    static const char *const elements[] = {
        [PB_JUNIT_SKIPPED] = "skipped", [PB_JUNIT_FAILURE] = "failure", [PB_JUNIT_ERROR] = "error"};
    fputs("    <testcase", out);
    attribute(out, "classname", c->classname);
    attribute(out, "name", c->name);
    if (c->outcome == PB_JUNIT_PASSED) {
        fputs("/>\n", out);
        return;
    }
    fprintf(out, ">\n      <%s", elements[c->outcome]);
    attribute(out, "type", c->type);
    attribute(out, "message", c->message);
    fputs("/>\n    </testcase>\n", out);
}

void pb_junit(FILE *out, const char *name, size_t n, pb_junit_get get, void *user)
{
    size_t count[PB_JUNIT_ERROR + 1] = {0}, all = 0;
    pb_junit_case c;
    for (size_t i = 0; i < n; i++)
        if (get(user, i, &c)) count[c.outcome]++, all++;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"%zu\" failures=\"%zu\" errors=\"%zu\">\n"
            "  <testsuite",
            all, count[PB_JUNIT_FAILURE], count[PB_JUNIT_ERROR]);
    attribute(out, "name", name);
    fprintf(out, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\">\n", all, count[PB_JUNIT_FAILURE],
            count[PB_JUNIT_ERROR], count[PB_JUNIT_SKIPPED]);
    for (size_t i = 0; i < n; i++)
        if (get(user, i, &c)) write_case(out, &c);
    fputs("  </testsuite>\n</testsuites>\n", out);
}
