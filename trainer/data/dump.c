/* dump.c - writes JSON values as text in the format of Python's json.dumps. */
#include "trainer/data/dump.h"

#include <stdio.h>

static pb_status put(pb_bytes *out, const char *s) { return pb_tok_append(out, s, strlen(s)); }

static pb_status dump_string(const char *s, size_t n, pb_bytes *out)
{
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* pairs: a character, and the letter of its escape */
    PB_TRY(put(out, "\""));
    for (size_t i = 0, from = 0; i <= n; i++) {
        const unsigned char c = i < n ? (unsigned char)s[i] : '"';
        char escaped[8];
        int k = 0;
        if (i < n && c >= 0x20 && c != '"' && c != '\\') continue;
        PB_TRY(pb_tok_append(out, s + from, i - from));
        from = i + 1;
        if (i == n) break;
        while (k < 14 && (unsigned char)named[k] != c) k += 2;
        if (k < 14) snprintf(escaped, sizeof escaped, "\\%c", named[k + 1]);
        else snprintf(escaped, sizeof escaped, "\\u%04x", c);
        PB_TRY(put(out, escaped));
    }
    return put(out, "\"");
}

/* Writes a float like Python's repr: the fewest digits that read back as v; positional if 1e-4 <= |v| < 1e16, otherwise
 * with an exponent. */
static pb_status dump_real(double v, pb_bytes *out)
{
    char text[64], digits[32];
    int precision = 0;
    do snprintf(text, sizeof text, "%.*e", precision, v);
    while (strtod(text, NULL) != v && ++precision < 17);
    char *e = strchr(text, 'e');
    const int exponent = atoi(e + 1), n = precision + 1;
    const char *sign = text[0] == '-' ? "-" : "", *from = text + (text[0] == '-');
    digits[0] = from[0];
    snprintf(digits + 1, sizeof digits - 1, "%.*s", precision, from + 2);
    PB_TRY(put(out, sign));
    if (exponent < -4 || exponent >= 16) {
        snprintf(text, sizeof text, "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                 abs(exponent));
        return put(out, text);
    }
    if (exponent < 0) snprintf(text, sizeof text, "0.%.*s%s", -exponent - 1, "000", digits);
    else if (n > exponent + 1) snprintf(text, sizeof text, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
    else snprintf(text, sizeof text, "%s%.*s.0", digits, exponent + 1 - n, "0000000000000000");
    return put(out, text);
}

static pb_status dump_object(json_t *o, pb_bytes *out)
{
    bool first = true;
    PB_TRY(put(out, "{"));
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it), first = false) {
        if (!first) PB_TRY(put(out, ", "));
        PB_TRY(dump_string(json_object_iter_key(it), strlen(json_object_iter_key(it)), out));
        PB_TRY(put(out, ": "));
        PB_TRY(pb_dump(json_object_iter_value(it), out));
    }
    return put(out, "}");
}

static pb_status dump_array(json_t *a, pb_bytes *out)
{
    PB_TRY(put(out, "["));
    for (size_t i = 0; i < json_array_size(a); i++) {
        if (i) PB_TRY(put(out, ", "));
        PB_TRY(pb_dump(json_array_get(a, i), out));
    }
    return put(out, "]");
}

pb_status pb_dump(json_t *v, pb_bytes *out)
{
    char text[32];
    switch (json_typeof(v)) {
    case JSON_OBJECT: return dump_object(v, out);
    case JSON_ARRAY: return dump_array(v, out);
    case JSON_STRING: return dump_string(json_string_value(v), json_string_length(v), out);
    case JSON_REAL: return dump_real(json_real_value(v), out);
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        return put(out, text);
    case JSON_TRUE: return put(out, "true");
    case JSON_FALSE: return put(out, "false");
    default: return put(out, "null");
    }
}
