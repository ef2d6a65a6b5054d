/* jinja_lex.c - splits a chat template into tokens, and removes whitespace around tags as Jinja does with trim_blocks
 * and lstrip_blocks. */
#include <ctype.h>

#include "trainer/data/jinja_impl.h"

typedef struct lexer {
    const char *s;
    size_t n, i;
    bool line_start;  /* true: s[i] is the first character of a line */
    bool strip_right; /* true: the previous tag ended with "-", so leading whitespace is removed */
    pb_jinja_tokens *out;
} lexer;

void pb_jinja_tokens_free(pb_jinja_tokens *t)
{
    free(t->token);
    pb_bytes_free(&t->texts);
    *t = (pb_jinja_tokens){0};
}

static pb_status push(lexer *x, pb_jinja_kind kind, int value)
{
    pb_jinja_tokens *t = x->out;
    PB_TOK_ROOM(t->token, t->room, t->n + 1);
    t->token[t->n++] = (pb_jinja_token){.kind = kind, .value = value, .at = t->texts.n};
    return PB_OK;
}

/* Ends the text of the last token with a NUL, and sets its length. */
static pb_status end_text(lexer *x)
{
    pb_jinja_token *t = &x->out->token[x->out->n - 1];
    t->n = x->out->texts.n - t->at;
    return pb_tok_append(&x->out->texts, "", 1);
}

static pb_status push_text(lexer *x, pb_jinja_kind kind, const char *s, size_t n)
{
    PB_TRY(push(x, kind, 0));
    PB_TRY(pb_tok_append(&x->out->texts, s, n));
    return end_text(x);
}

static bool at(const lexer *x, size_t i, char a, char b) { return i + 1 < x->n && x->s[i] == a && x->s[i + 1] == b; }

static bool tag_at(const lexer *x, size_t i) { return at(x, i, '{', '{') || at(x, i, '{', '%') || at(x, i, '{', '#'); }

/* Appends a token with the text up to the next tag ({{, {% or {#). */
static pb_status raw(lexer *x)
{
    size_t a = x->i, b = a;
    while (b < x->n && !tag_at(x, b)) b++;
    x->i = b;
    const char sign = b + 2 < x->n ? x->s[b + 2] : 0;
    if (x->strip_right)
        while (a < b && isspace((unsigned char)x->s[a])) a++;
    if (b < x->n && sign == '-') {
        while (b > a && isspace((unsigned char)x->s[b - 1])) b--;
    } else if (b < x->n && sign != '+' && x->s[b + 1] != '{') {
        size_t line = b;
        while (line > a && (x->s[line - 1] == ' ' || x->s[line - 1] == '\t')) line--;
        if (line > a ? x->s[line - 1] == '\n' : x->line_start) b = line;
    }
    return a < b ? push_text(x, PB_JINJA_RAW, x->s + a, b - a) : PB_OK;
}

/* Called after the end of a tag. `strip`: remove the whitespace that follows. `trim`: skip one newline that follows. */
static void after_tag(lexer *x, bool strip, bool trim)
{
    x->strip_right = strip;
    x->line_start = trim && !strip && x->i < x->n && x->s[x->i] == '\n';
    x->i += x->line_start;
}

static pb_status comment(lexer *x)
{
    size_t i = x->i + 2;
    while (i < x->n && !at(x, i, '#', '}')) i++;
    if (i >= x->n) return pb_fail(PB_EFORMAT, "a comment does not end");
    x->i = i + 2;
    after_tag(x, x->s[i - 1] == '-', x->s[i - 1] != '+');
    return PB_OK;
}

/* Decodes \uHHHH. Surrogates and ASCII are rejected. */
static pb_status unicode_escape(lexer *x)
{
    unsigned cp = 0;
    char utf8[3];
    for (size_t k = 2; k < 6; k++) {
        const char c = x->i + k < x->n ? x->s[x->i + k] : 0;
        if (!isxdigit((unsigned char)c))
            return pb_fail(PB_EFORMAT, "a string contains an escape that is not supported");
        cp = cp * 16 + (unsigned)(isdigit((unsigned char)c) ? c - '0' : tolower(c) - 'a' + 10);
    }
    if (cp < 0x80 || (cp >= 0xd800 && cp < 0xe000))
        return pb_fail(PB_EFORMAT, "a string contains an escape that is not supported");
    size_t n = 0;
    if (cp >= 0x800) utf8[n++] = (char)(0xe0 | cp >> 12);
    utf8[n++] = (char)(cp >= 0x800 ? 0x80 | (cp >> 6 & 0x3f) : 0xc0 | cp >> 6);
    utf8[n++] = (char)(0x80 | (cp & 0x3f));
    x->i += 6;
    return pb_tok_append(&x->out->texts, utf8, n);
}

static pb_status escape(lexer *x)
{
    static const char from[] = "ntr\\'\"", to[] = "\n\t\r\\'\"";
    const char c = x->i + 1 < x->n ? x->s[x->i + 1] : 0;
    const char *k = c ? strchr(from, c) : NULL;
    if (c == 'u') return unicode_escape(x);
    if (!k) return pb_fail(PB_EFORMAT, "a string contains an escape that is not supported");
    x->i += 2;
    return pb_tok_append(&x->out->texts, to + (k - from), 1);
}

static pb_status string(lexer *x)
{
    const char quote = x->s[x->i++];
    PB_TRY(push(x, PB_JINJA_TEXT, 0));
    while (x->i < x->n && x->s[x->i] != quote) {
        if (x->s[x->i] == '\\') PB_TRY(escape(x));
        else PB_TRY(pb_tok_append(&x->out->texts, &x->s[x->i++], 1));
    }
    if (x->i++ >= x->n) return pb_fail(PB_EFORMAT, "a string does not end");
    return end_text(x);
}

static pb_status number(lexer *x)
{
    int v = 0;
    for (; x->i < x->n && isdigit((unsigned char)x->s[x->i]); x->i++) {
        v = 10 * v + (x->s[x->i] - '0');
        if (v > 1000000) return pb_fail(PB_EFORMAT, "an integer is larger than a million");
    }
    if (x->i + 1 < x->n && x->s[x->i] == '.' && isdigit((unsigned char)x->s[x->i + 1]))
        return pb_fail(PB_EFORMAT, "a number is not an integer");
    return push(x, PB_JINJA_INT, v);
}

static bool word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static pb_status sign(lexer *x)
{
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (size_t k = 0; k < sizeof two / sizeof *two; k++)
        if (at(x, x->i, two[k][0], two[k][1])) {
            x->i += 2;
            return push(x, PB_JINJA_SIGN, PB_JINJA_TWO(two[k][0], two[k][1]));
        }
    if (!strchr("+-*/%~.,:()[]{}|=<>", x->s[x->i]) || !x->s[x->i])
        return pb_fail(PB_EFORMAT, "a tag contains an invalid character");
    return push(x, PB_JINJA_SIGN, x->s[x->i++]);
}

static pb_status inside(lexer *x)
{
    const char c = x->s[x->i];
    size_t b = x->i;
    if (c == '\'' || c == '"') return string(x);
    if (isdigit((unsigned char)c)) return number(x);
    if (!word(c)) return sign(x);
    while (b < x->n && word(x->s[b])) b++;
    const size_t a = x->i;
    x->i = b;
    return push_text(x, PB_JINJA_NAME, x->s + a, b - a);
}

static pb_status tag(lexer *x)
{
    const bool output = x->s[x->i + 1] == '{';
    const char end = output ? '}' : '%';
    PB_TRY(push(x, output ? PB_JINJA_OUTPUT : PB_JINJA_STATEMENT, 0));
    x->i += 2;
    if (x->i < x->n && (x->s[x->i] == '-' || x->s[x->i] == '+')) x->i++;
    for (;;) {
        while (x->i < x->n && isspace((unsigned char)x->s[x->i])) x->i++;
        if (x->i >= x->n) return pb_fail(PB_EFORMAT, "a tag does not end");
        const char c = x->s[x->i];
        const bool mark = (c == '-' || c == '+') && at(x, x->i + 1, end, '}');
        if (mark || at(x, x->i, end, '}')) {
            x->i += mark ? 3 : 2;
            after_tag(x, c == '-', !output && c != '+');
            return push(x, PB_JINJA_CLOSE, 0);
        }
        PB_TRY(inside(x));
    }
}

pb_status pb_jinja_lex(const char *text, size_t n, pb_jinja_tokens *out)
{
    if (n && text[n - 1] == '\n') n--;
    lexer x = {.s = text, .n = n, .line_start = true, .out = out};
    while (x.i < n) {
        PB_TRY(raw(&x));
        if (x.i >= n) break;
        PB_TRY(text[x.i + 1] == '#' ? comment(&x) : tag(&x));
    }
    return push(&x, PB_JINJA_END, 0);
}
