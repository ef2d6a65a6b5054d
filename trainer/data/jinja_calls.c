/* jinja_calls.c - the methods, filters and tests that expressions of a chat template can call. */
#include "trainer/data/dump.h"
#include "trainer/data/jinja_impl.h"
#include "trainer/tokenizer/unicode.h"

static bool holds(const char *set, size_t set_n, uint32_t cp)
{
    for (size_t i = 0, len; i < set_n; i += len) {
        uint32_t c = 0;
        len = pb_tok_char(set + i, set_n - i, &c);
        if (!len) return false;
        if (c == cp) return true;
    }
    return false;
}

/* True if Python's str.strip removes the character: one of `set`, or whitespace if `set` is NULL. */
static bool strips(const char *set, size_t set_n, uint32_t cp)
{
    return set ? holds(set, set_n, cp) : pb_tok_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
}

static pb_status strip(pb_jinja *j, json_t *x, json_t *set, bool left, bool right, json_t **out)
{
    const char *s = json_string_value(x), *chars = json_string_value(set);
    const size_t chars_n = json_string_length(set);
    size_t a = 0, b = json_string_length(x);
    uint32_t cp = 0;
    for (size_t len; left && a < b && (len = pb_tok_char(s + a, b - a, &cp)) && strips(chars, chars_n, cp);) a += len;
    while (right && b > a) {
        const size_t last = pb_tok_char_before(s, b);
        if (!pb_tok_char(s + last, b - last, &cp) || !strips(chars, chars_n, cp)) break;
        b = last;
    }
    return pb_jinja_string(j, s + a, b - a, out);
}

/* Changes the case of ASCII text. Other letters would need Unicode case tables and are rejected. */
static pb_status change_case(pb_jinja *j, json_t *x, bool upper, json_t **out)
{
    const char *s = json_string_value(x);
    const size_t n = json_string_length(x);
    PB_TRY(pb_jinja_string(j, s, n, out));
    char *to = malloc(n + 1);
    if (!to) return pb_fail(PB_ENOMEM, "no memory for a chat template");
    bool ascii = true;
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        ascii = ascii && !(c & 0x80);
        to[i] = (char)(upper ? (c >= 'a' && c <= 'z' ? c - 32 : c) : (c >= 'A' && c <= 'Z' ? c + 32 : c));
    }
    const pb_status status = ascii ? pb_jinja_string(j, to, n, out)
                                   : pb_fail(PB_EFORMAT, "upper and lower are supported for ASCII text only");
    free(to);
    return status;
}

static pb_status split(pb_jinja *j, json_t *x, json_t *by, json_t **out)
{
    const char *s = json_string_value(x), *end = s + json_string_length(x), *mark = json_string_value(by);
    json_t *list = NULL, *part;
    if (!mark || !*mark) return pb_fail(PB_EFORMAT, "split without a separator is not supported");
    PB_TRY(pb_jinja_make(j, json_array(), &list));
    for (const char *found; s; s = found ? found + strlen(mark) : NULL) {
        found = strstr(s, mark);
        PB_TRY(pb_jinja_string(j, s, (size_t)((found ? found : end) - s), &part));
        json_array_append(list, part);
    }
    *out = list;
    return PB_OK;
}

static bool begins(json_t *x, json_t *with, bool at_end)
{
    const size_t n = json_string_length(x), k = json_string_length(with);
    return k <= n && !memcmp(json_string_value(x) + (at_end ? n - k : 0), json_string_value(with), k);
}

pb_status pb_jinja_method(pb_jinja *j, json_t *x, const char *name, json_t **a, size_t n, json_t **out)
{
    json_t *first = n ? a[0] : NULL;
    const bool text = n == 0 || json_is_string(first);
    if (json_is_object(x) && !strcmp(name, "get") && n && json_is_string(first) && n <= 2) {
        *out = json_object_get(x, json_string_value(first));
        if (!*out) *out = n == 2 ? a[1] : json_null();
        return PB_OK;
    }
    if (!json_is_string(x) || n > 1 || !text) return pb_jinja_refuse("this use of the method", name);
    if (!strcmp(name, "strip")) return strip(j, x, first, true, true, out);
    if (!strcmp(name, "lstrip")) return strip(j, x, first, true, false, out);
    if (!strcmp(name, "rstrip")) return strip(j, x, first, false, true, out);
    if (!strcmp(name, "upper") && !n) return change_case(j, x, true, out);
    if (!strcmp(name, "lower") && !n) return change_case(j, x, false, out);
    if (!strcmp(name, "split") && n) return split(j, x, first, out);
    const bool end = !strcmp(name, "endswith");
    if (!n || (!end && strcmp(name, "startswith") != 0)) return pb_jinja_refuse("the method", name);
    *out = begins(x, first, end) ? json_true() : json_false();
    return PB_OK;
}

static pb_status length(pb_jinja *j, json_t *x, json_t **out)
{
    const char *s = json_string_value(x);
    size_t n = 0;
    uint32_t cp;
    if (s)
        for (size_t i = 0, len = 1; i < json_string_length(x) && len; i += len, n++)
            len = pb_tok_char(s + i, json_string_length(x) - i, &cp);
    else if (json_is_array(x)) n = json_array_size(x);
    else if (json_is_object(x)) n = json_object_size(x);
    else return pb_jinja_refuse("this use of the filter", "length");
    return pb_jinja_make(j, json_integer((json_int_t)n), out);
}

/* Converts a value to a string: the text that `append` writes for it. */
static pb_status as_text(pb_jinja *j, json_t *x, pb_status (*append)(json_t *, pb_bytes *), json_t **out)
{
    pb_bytes text = {0};
    pb_status s = append(x, &text);
    if (s == PB_OK) s = pb_jinja_string(j, text.p ? text.p : "", text.n, out);
    pb_bytes_free(&text);
    return s;
}

pb_status pb_jinja_filter(pb_jinja *j, json_t *x, const char *name, json_t **a, size_t n, json_t **out)
{
    if ((!strcmp(name, "default") || !strcmp(name, "d")) && n == 1) {
        *out = x ? x : a[0];
        return PB_OK;
    }
    if (n) return pb_jinja_refuse("arguments of the filter", name);
    if (!strcmp(name, "length") || !strcmp(name, "count")) return length(j, x, out);
    if (!strcmp(name, "tojson") && x) return as_text(j, x, pb_dump, out);
    if (!strcmp(name, "string")) return as_text(j, x, pb_jinja_print, out);
    if (json_is_array(x) && (!strcmp(name, "first") || !strcmp(name, "last"))) {
        const size_t size = json_array_size(x);
        *out = size ? json_array_get(x, *name == 'f' ? 0 : size - 1) : NULL;
        return PB_OK;
    }
    if (!json_is_string(x)) return pb_jinja_refuse("this use of the filter", name);
    if (!strcmp(name, "trim")) return strip(j, x, NULL, true, true, out);
    if (!strcmp(name, "upper")) return change_case(j, x, true, out);
    if (!strcmp(name, "lower")) return change_case(j, x, false, out);
    return pb_jinja_refuse("the filter", name);
}

pb_status pb_jinja_test(json_t *x, const char *name, bool *out)
{
    const bool list = json_is_array(x), text = json_is_string(x), map = json_is_object(x);
    const struct {
        const char *name;
        bool value;
    } tests[] = {
        {"defined", x != NULL},
        {"undefined", !x},
        {"none", json_is_null(x)},
        {"string", text},
        {"mapping", map},
        {"iterable", !x || list || text || map},
        {"sequence", !x || list || text || map},
        {"number", json_is_number(x) || json_is_boolean(x)},
        {"boolean", json_is_boolean(x)},
        {"true", json_is_true(x)},
        {"false", json_is_false(x)},
    };
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (!strcmp(tests[i].name, name)) {
            *out = tests[i].value;
            return PB_OK;
        }
    return pb_jinja_refuse("the test", name);
}
