/* pattern.c - translates Oniguruma patterns to PCRE2's syntax, compiles them and finds matches. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "trainer/tokenizer/pattern.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>

#include "trainer/tokenizer/unicode_new.h"

/* Oniguruma's \w, which includes the superscripts and fractions of Latin-1 but no others. PCRE2's \w is letters,
 * numbers and the underscore. */
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

typedef struct reader {
    const char *re;
    size_t n, i;
    bool in_class;
    pb_bytes *out;
} reader;

static pb_status put(reader *r, const char *s) { return pb_tok_append(r->out, s, strlen(s)); }
static pb_status copy(reader *r, size_t n)
{
    PB_TRY(pb_tok_append(r->out, r->re + r->i, n));
    r->i += n;
    return PB_OK;
}
static bool ahead(const reader *r, const char *s)
{
    return r->n - r->i >= strlen(s) && !memcmp(r->re + r->i, s, strlen(s));
}
static pb_status refuse(const reader *r, const char *what)
{
    return pb_fail(PB_EFORMAT, "pattern: %s at character %zu is not supported", what, r->i + 1);
}

/* Writes a character class that consists of `known` (in PCRE2's syntax) and of the characters with the given properties
 * that are newer than PCRE2's tables. Omits the brackets if the pattern is already inside a class. */
static pb_status put_class(reader *r, bool negated, const char *known, const char *const *names, const size_t *lengths,
                           size_t names_n)
{
    if (r->in_class && negated) return refuse(r, "a negated property inside a class");
    if (!r->in_class) PB_TRY(put(r, negated ? "[^" : "["));
    PB_TRY(put(r, known));
    PB_TRY(pb_tok_new_put(names, lengths, names_n, r->out));
    return r->in_class ? PB_OK : put(r, "]");
}

/* Writes \p{Name} or, if negated, \P{Name}. PCRE2 spells general categories and Alphabetic as Oniguruma does; any other
 * name is a script. */
static pb_status named_property(reader *r, bool negated, const char *name, size_t len)
{
    char known[48];
    const bool category = (len == 1 && isupper((unsigned char)name[0])) ||
                          (len == 2 && isupper((unsigned char)name[0]) && islower((unsigned char)name[1]));
    const bool alphabetic = len == strlen("Alphabetic") && !memcmp(name, "Alphabetic", len);
    if (category && name[0] == 'C' && (len == 1 || name[1] == 'n'))
        return refuse(r, "\\p{C} or \\p{Cn} (unassigned characters)");
    if (len > 32) return refuse(r, "this name of a property");
    snprintf(known, sizeof known, "\\%c{%s%.*s}", 'p', category || alphabetic ? "" : "sc:", (int)len, name);
    if (pb_tok_new_any(name, len))
        return put_class(r, negated, pb_tok_new_script(name, len) ? "" : known, &name, &len, 1);
    known[1] = negated ? 'P' : 'p';
    return put(r, known);
}

static pb_status property(reader *r)
{
    const char *end = ahead(r, "\\p{") || ahead(r, "\\P{") ? memchr(r->re + r->i, '}', r->n - r->i) : NULL;
    if (!end) return refuse(r, "a \\p without {Name}");
    const char *name = r->re + r->i + 3;
    const bool caret = *name == '^', negated = (r->re[r->i + 1] == 'P') != caret;
    name += caret;
    PB_TRY(named_property(r, negated, name, (size_t)(end - name)));
    r->i = (size_t)(end + 1 - r->re);
    return PB_OK;
}

static pb_status word(reader *r, bool negated)
{
    static const char *const names[] = {"Alphabetic", "M", "Nd", "Pc"};
    static const size_t lengths[] = {10, 1, 2, 2};
    r->i += 2;
    return put_class(r, negated, WORD, names, lengths, 4);
}

static pb_status digit(reader *r, bool negated)
{
    PB_TRY(named_property(r, negated, "Nd", 2));
    r->i += 2;
    return PB_OK;
}

/* Translates the escape of a code point, \x{H..} or \uHHHH, to PCRE2's \x{H..}. */
static pb_status code_point(reader *r, char kind)
{
    const char *at = r->re + r->i + 2;
    const size_t left = r->n - r->i - 2;
    size_t len = 0;
    if (kind == 'x' && left && at[0] == '{') {
        while (len + 1 < left && isxdigit((unsigned char)at[len + 1])) len++;
        if (!len || len > 6 || len + 1 >= left || at[len + 1] != '}') return refuse(r, "this \\x{}");
        return copy(r, len + 4);
    }
    while (len < 4 && len < left && isxdigit((unsigned char)at[len])) len++;
    if (kind != 'u' || len != 4) return refuse(r, "this \\x or \\u");
    PB_TRY(put(r, "\\x{"));
    PB_TRY(pb_tok_append(r->out, at, 4));
    r->i += 6;
    return put(r, "}");
}

static pb_status escape(reader *r)
{
    const char c = r->i + 1 < r->n ? r->re[r->i + 1] : 'Z';
    const char *as = NULL;
    switch (c) {
    case 's': as = "\\p{White_Space}"; break;
    case 'S': as = "\\P{White_Space}"; break;
    case 'd':
    case 'D': return digit(r, c == 'D');
    case 'w': return word(r, false);
    case 'W':
        if (!r->in_class) return word(r, true);
        break;
    case 'v': as = "\\x{0b}"; break;
    case 'n':
    case 'r':
    case 't':
    case 'f': return copy(r, 2);
    case 'A':
    case 'z':
        if (!r->in_class) return copy(r, 2);
        break;
    case 'p':
    case 'P': return property(r);
    case 'x':
    case 'u': return code_point(r, c);
    default:
        if (ispunct((unsigned char)c) || c == ' ') return copy(r, 2);
    }
    if (!as) return refuse(r, "this escape");
    r->i += 2;
    return put(r, as);
}

static pb_status in_class(reader *r)
{
    if (ahead(r, "[")) return refuse(r, "a [ inside a class");
    if (ahead(r, "&&")) return refuse(r, "&& inside a class");
    if (ahead(r, "]")) r->in_class = false;
    return copy(r, 1);
}

static pb_status open_class(reader *r)
{
    r->in_class = true;
    PB_TRY(copy(r, r->i + 1 < r->n && r->re[r->i + 1] == '^' ? 2 : 1));
    return ahead(r, "]") ? refuse(r, "an empty class") : PB_OK;
}

static pb_status open_group(reader *r)
{
    static const char *const known[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"};
    if (ahead(r, "(*")) return refuse(r, "(*");
    if (!ahead(r, "(?")) return copy(r, 1);
    if (r->i == 0 && ahead(r, "(?i)")) return copy(r, 4);
    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (ahead(r, known[k])) return copy(r, strlen(known[k]));
    return refuse(r, "this kind of group");
}

pb_status pb_tok_pattern_translate(const char *re, size_t n, pb_bytes *out)
{
    reader r = {re, n, 0, false, out};
    while (r.i < n) {
        if (re[r.i] == '\\') PB_TRY(escape(&r));
        else if (r.in_class) PB_TRY(in_class(&r));
        else if (re[r.i] == '[') PB_TRY(open_class(&r));
        else if (re[r.i] == '(') PB_TRY(open_group(&r));
        else if (ahead(&r, "{,")) return refuse(&r, "{,n}");
        else if (ahead(&r, "}+")) return refuse(&r, "}+");
        else PB_TRY(copy(&r, 1));
    }
    return PB_OK;
}

/* Compiles with the meaning of Oniguruma's Ruby syntax: ^ and $ match at every line, . matches anything but a
 * newline. */
static pb_status compile(const char *re, size_t n, bool literal, pb_tok_pattern *p)
{
    const uint32_t options = PCRE2_UTF | PCRE2_NO_UTF_CHECK | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE);
    int error = 0;
    PCRE2_SIZE where = 0;
    uint32_t empty = 1;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) return pb_fail(PB_ENOMEM, "pattern: out of memory");
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(context, 50);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)re, n, options, &error, &where, context);
    pcre2_compile_context_free(context);
    if (!code) {
        char text[128] = "";
        pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
        return pb_fail(PB_EINVAL, "pattern: %s", text);
    }
    p->code = code;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) return pb_fail(PB_EFORMAT, "the pattern matches the empty text, which is not supported");
    p->jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    return PB_OK;
}

static pb_status allocate(pb_tok_pattern *p)
{
    enum { STACK_LEAST = 32 * 1024, STACK_MOST = 4 * 1024 * 1024, STEPS = 5000000, INTERPRETER_KIB = 65536 };
    p->match = pcre2_match_data_create(1, NULL);
    p->context = pcre2_match_context_create(NULL);
    p->stack = p->jit ? pcre2_jit_stack_create(STACK_LEAST, STACK_MOST, NULL) : NULL;
    if (!p->match || !p->context || (p->jit && !p->stack)) return pb_fail(PB_ENOMEM, "pattern: out of memory");
    if (p->jit) pcre2_jit_stack_assign(p->context, NULL, p->stack);
    pcre2_set_match_limit(p->context, STEPS);
    pcre2_set_heap_limit(p->context, INTERPRETER_KIB);
    return PB_OK;
}

pb_status pb_tok_pattern_open(const char *re, size_t n, bool literal, pb_tok_pattern *p)
{
    enum { LONGEST = 4096 };
    pb_bytes respelled = {0};
    pb_tok_pattern made = {0};
    if (!n || n > LONGEST) return pb_fail(PB_EINVAL, "the pattern has %zu bytes: need 1 to %d", n, LONGEST);
    pb_status s = literal ? pb_tok_append(&respelled, re, n) : pb_tok_pattern_translate(re, n, &respelled);
    if (s == PB_OK) s = compile(respelled.p, respelled.n, literal, &made);
    if (s == PB_OK) s = allocate(&made);
    pb_bytes_free(&respelled);
    if (s != PB_OK) pb_tok_pattern_close(&made);
    else *p = made;
    return s;
}

void pb_tok_pattern_close(pb_tok_pattern *p)
{
    pcre2_code_free(p->code);
    pcre2_match_data_free(p->match);
    pcre2_match_context_free(p->context);
    pcre2_jit_stack_free(p->stack);
    *p = (pb_tok_pattern){0};
}

pb_status pb_tok_pattern_find(const pb_tok_pattern *p, const char *s, size_t n, size_t from, size_t *a, size_t *b)
{
    const int rc = p->jit ? pcre2_jit_match(p->code, (PCRE2_SPTR)s, n, from, 0, p->match, p->context)
                          : pcre2_match(p->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, p->match, p->context);
    *a = *b = 0;
    if (rc == PCRE2_ERROR_NOMATCH) return PB_OK;
    if (rc < 0) {
        char text[128] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)text, sizeof text);
        return pb_fail(PB_EINVAL, "tokenizer: the pattern of tokenizer.json fails on a text of %zu bytes: %s", n, text);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(p->match);
    *a = v[0];
    *b = v[1];
    return PB_OK;
}
