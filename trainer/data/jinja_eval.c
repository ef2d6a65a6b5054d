/* jinja_eval.c - parses and evaluates the expressions of a chat template by recursive descent, with one function per
 * operator precedence: from `ternary`, the lowest, to `primary`. */
#include "trainer/data/jinja_impl.h"

static pb_status ternary(pb_jinja *j, json_t **out);
static pb_status alternatives(pb_jinja *j, json_t **out);

/* Returns JSON true or false. The reference is borrowed, because jansson never frees these two values. */
static json_t *boolean(bool v) { return v ? json_true() : json_false(); }

static json_t *lookup(const pb_jinja *j, const char *name)
{
    for (int i = j->scopes; i-- > 0;) {
        json_t *v = json_object_get(j->scope[i], name);
        if (v) return v;
    }
    return json_object_get(j->context, name);
}

/* ---- parsing the operands of expressions -------------------------------------------------------------- */

enum { ARGUMENTS = 8 };
typedef struct arguments {
    json_t *value[ARGUMENTS];
    const char *key[ARGUMENTS]; /* NULL: a positional argument */
    size_t n;
} arguments;

/* Parses "a, b=c)"; the opening parenthesis is already consumed. */
static pb_status read_arguments(pb_jinja *j, arguments *a)
{
    bool end;
    a->n = 0;
    PB_TRY(pb_jinja_take_sign(j, ')', &end));
    while (!end) {
        const pb_jinja_token *t = pb_jinja_peek(j);
        bool comma, equals = false;
        if (a->n == ARGUMENTS) return pb_fail(PB_EFORMAT, "a call has more than %d arguments", ARGUMENTS);
        if (t->kind == PB_JINJA_NAME && t[1].kind == PB_JINJA_SIGN && t[1].value == '=') {
            PB_TRY(pb_jinja_next(j, &t));
            PB_TRY(pb_jinja_take_sign(j, '=', &equals));
        }
        a->key[a->n] = equals ? pb_jinja_text(j, t) : NULL;
        PB_TRY(ternary(j, &a->value[a->n]));
        a->n++;
        PB_TRY(pb_jinja_take_sign(j, ',', &comma));
        PB_TRY(pb_jinja_take_sign(j, ')', &end));
        if (!comma && !end) return pb_fail(PB_EFORMAT, "a ')' is missing");
    }
    return PB_OK;
}

static pb_status call_function(pb_jinja *j, const char *name, json_t **out)
{
    arguments a;
    PB_TRY(read_arguments(j, &a));
    if (j->skipping) return PB_OK;
    if (!strcmp(name, "raise_exception")) {
        const char *why = a.n ? json_string_value(a.value[0]) : NULL;
        return pb_fail(PB_EFORMAT, "it raises \"%.80s\"", why ? why : "");
    }
    if (strcmp(name, "namespace") != 0) return pb_jinja_refuse("the function", name);
    PB_TRY(pb_jinja_make(j, json_object(), out));
    json_object_set(*out, PB_JINJA_NAMESPACE, json_true());
    for (size_t i = 0; i < a.n; i++) {
        if (!a.key[i] || !a.value[i] || json_is_object(a.value[i]))
            return pb_fail(PB_EFORMAT, "a namespace is supported with arguments of the form name=value only");
        json_object_set(*out, a.key[i], a.value[i]);
    }
    return PB_OK;
}

static pb_status name(pb_jinja *j, const char *s, json_t **out)
{
    bool call;
    PB_TRY(pb_jinja_take_sign(j, '(', &call));
    if (call) return call_function(j, s, out);
    if (j->skipping) return PB_OK;
    if (!strcmp(s, "true") || !strcmp(s, "True")) *out = json_true();
    else if (!strcmp(s, "false") || !strcmp(s, "False")) *out = json_false();
    else if (!strcmp(s, "none") || !strcmp(s, "None")) *out = json_null();
    else if (!strcmp(s, "strftime_now"))
        /* Also rejects `strftime_now is defined`: it is true in transformers, but the function is not supported
           here. */
        return pb_jinja_refuse("the function", s);
    else *out = lookup(j, s);
    return PB_OK;
}

/* Parses "a, b]"; the opening bracket is already consumed. Items must be scalars, so that a template cannot build
 * values that nest deeper than the variables it was given. */
static pb_status list(pb_jinja *j, json_t **out)
{
    json_t *made = NULL, *v;
    bool end;
    PB_TRY(pb_jinja_make(j, json_array(), &made));
    PB_TRY(pb_jinja_take_sign(j, ']', &end));
    while (!end) {
        bool comma;
        PB_TRY(ternary(j, &v));
        if (!j->skipping && (!v || json_is_array(v) || json_is_object(v)))
            return pb_fail(PB_EFORMAT, "a list is supported with elements that are texts or numbers only");
        if (v) json_array_append(made, v);
        PB_TRY(pb_jinja_take_sign(j, ',', &comma));
        PB_TRY(pb_jinja_take_sign(j, ']', &end));
        if (!comma && !end) return pb_fail(PB_EFORMAT, "a ']' is missing");
    }
    if (!j->skipping) *out = made;
    return PB_OK;
}

static pb_status primary(pb_jinja *j, json_t **out)
{
    const pb_jinja_token *t;
    *out = NULL;
    PB_TRY(pb_jinja_next(j, &t));
    if (t->kind == PB_JINJA_NAME) return name(j, pb_jinja_text(j, t), out);
    if (t->kind == PB_JINJA_SIGN && t->value == '[') return list(j, out);
    if (t->kind == PB_JINJA_SIGN && t->value == '(') {
        PB_TRY(ternary(j, out));
        return pb_jinja_need_sign(j, ')');
    }
    if (t->kind == PB_JINJA_INT) return j->skipping ? PB_OK : pb_jinja_make(j, json_integer(t->value), out);
    if (t->kind != PB_JINJA_TEXT) return pb_fail(PB_EFORMAT, "a value is missing in an expression");
    return j->skipping ? PB_OK : pb_jinja_string(j, pb_jinja_text(j, t), t->n, out);
}

/* Evaluates x[from:to:step], where step is 1 or -1. A bound that is not given is NULL. */
static pb_status slice(pb_jinja *j, json_t *x, json_t *const bound[3], json_t **out)
{
    const long n = (long)json_array_size(x), step = bound[2] ? (long)json_integer_value(bound[2]) : 1;
    if (!json_is_array(x) || (step != 1 && step != -1) || (step < 0 && (bound[0] || bound[1])))
        return pb_fail(PB_EFORMAT, "this slice is not supported");
    long a = bound[0] ? (long)json_integer_value(bound[0]) : 0, b = bound[1] ? (long)json_integer_value(bound[1]) : n;
    a = a < 0 ? (a + n > 0 ? a + n : 0) : a;
    b = b < 0 ? b + n : b < n ? b : n;
    PB_TRY(pb_jinja_make(j, json_array(), out));
    for (long i = a; i < b; i++) json_array_append(*out, json_array_get(x, (size_t)(step > 0 ? i : n - 1 - i)));
    return PB_OK;
}

static pb_status item(json_t *x, json_t *key, json_t **out)
{
    json_int_t i = json_integer_value(key);
    if (json_is_object(x) && json_is_string(key)) *out = json_object_get(x, json_string_value(key));
    else if (json_is_array(x) && json_is_integer(key)) {
        i += i < 0 ? (json_int_t)json_array_size(x) : 0;
        *out = i < 0 ? NULL : json_array_get(x, (size_t)i);
    } else return pb_fail(PB_EFORMAT, "this subscript is not supported");
    return PB_OK;
}

/* Parses the rest of x[...]; the opening bracket is already consumed. */
static pb_status subscript(pb_jinja *j, json_t *x, json_t **out)
{
    json_t *bound[3] = {0};
    size_t colons = 0;
    bool taken = false;
    *out = NULL;
    for (;;) {
        if (!pb_jinja_is_sign(j, ':') && !pb_jinja_is_sign(j, ']')) PB_TRY(ternary(j, &bound[colons]));
        if (colons && bound[colons] && !json_is_integer(bound[colons]))
            return pb_fail(PB_EFORMAT, "this slice is not supported");
        PB_TRY(pb_jinja_take_sign(j, ':', &taken));
        if (!taken) break;
        if (++colons == 3) return pb_fail(PB_EFORMAT, "a slice has more than three parts");
    }
    PB_TRY(pb_jinja_need_sign(j, ']'));
    if (j->skipping) return PB_OK;
    if (colons)
        return bound[0] && !json_is_integer(bound[0]) ? pb_fail(PB_EFORMAT, "this slice is not supported")
                                                      : slice(j, x, bound, out);
    return bound[0] ? item(x, bound[0], out) : pb_fail(PB_EFORMAT, "a subscript is empty");
}

/* Parses name or name(...) after a dot (an attribute or method) or after a bar (filter true). */
static pb_status named(pb_jinja *j, json_t *x, bool filter, json_t **out)
{
    const pb_jinja_token *t;
    arguments a = {.n = 0};
    bool call;
    *out = NULL;
    PB_TRY(pb_jinja_next(j, &t));
    if (t->kind != PB_JINJA_NAME) return pb_fail(PB_EFORMAT, "a name is missing after '.' or '|'");
    const char *s = pb_jinja_text(j, t);
    PB_TRY(pb_jinja_take_sign(j, '(', &call));
    if (call) PB_TRY(read_arguments(j, &a));
    if (j->skipping) return PB_OK;
    for (size_t i = 0; i < a.n; i++)
        if (a.key[i]) return pb_jinja_refuse("an argument", a.key[i]);
    if (filter) return pb_jinja_filter(j, x, s, a.value, a.n, out);
    if (call) return pb_jinja_method(j, x, s, a.value, a.n, out);
    if (!x) return pb_fail(PB_EFORMAT, "\"%.40s\" is used on an undefined value", s);
    *out = json_object_get(x, s);
    return PB_OK;
}

/* Parses "[not] name" after `is`. *out is the tested value and is replaced by the result. */
static pb_status test(pb_jinja *j, json_t **out)
{
    const pb_jinja_token *t;
    bool negated, result = false;
    PB_TRY(pb_jinja_take_name(j, "not", &negated));
    PB_TRY(pb_jinja_next(j, &t));
    if (t->kind != PB_JINJA_NAME) return pb_fail(PB_EFORMAT, "a name is missing after 'is'");
    if (j->skipping) return PB_OK;
    PB_TRY(pb_jinja_test(*out, pb_jinja_text(j, t), &result));
    *out = boolean(result != negated);
    return PB_OK;
}

static pb_status postfix(pb_jinja *j, json_t **out)
{
    PB_TRY(primary(j, out));
    for (bool taken = true; taken;) {
        json_t *x = *out;
        PB_TRY(pb_jinja_take_sign(j, '.', &taken));
        if (taken) PB_TRY(named(j, x, false, out));
        if (taken) continue;
        PB_TRY(pb_jinja_take_sign(j, '|', &taken));
        if (taken) PB_TRY(named(j, x, true, out));
        if (taken) continue;
        PB_TRY(pb_jinja_take_sign(j, '[', &taken));
        if (taken) PB_TRY(subscript(j, x, out));
        if (taken) continue;
        PB_TRY(pb_jinja_take_name(j, "is", &taken));
        if (taken) PB_TRY(test(j, out));
    }
    return PB_OK;
}

/* ---- parsing the operators, from the highest precedence to the lowest --------------------------------- */

static pb_status unary(pb_jinja *j, json_t **out)
{
    bool minus;
    PB_TRY(pb_jinja_take_sign(j, '-', &minus));
    PB_TRY(postfix(j, out));
    if (!minus || j->skipping) return PB_OK;
    if (!json_is_integer(*out)) return pb_fail(PB_EFORMAT, "'-' is supported for integers only");
    return pb_jinja_make(j, json_integer(-json_integer_value(*out)), out);
}

static pb_status join(pb_jinja *j, json_t *a, json_t *b, json_t **out)
{
    pb_bytes both = {0};
    pb_status s = pb_jinja_print(a, &both);
    if (s == PB_OK) s = pb_jinja_print(b, &both);
    if (s == PB_OK) s = pb_jinja_string(j, both.p ? both.p : "", both.n, out);
    pb_bytes_free(&both);
    return s;
}

static pb_status apply(pb_jinja *j, int sign, json_t *a, json_t *b, json_t **out)
{
    if (j->skipping) return PB_OK;
    if (sign == '~' || (sign == '+' && json_is_string(a) && json_is_string(b))) return join(j, a, b, out);
    if (!json_is_integer(a) || !json_is_integer(b))
        return pb_fail(PB_EFORMAT, "arithmetic is supported for two integers or two strings only");
    const json_int_t x = json_integer_value(a), y = json_integer_value(b);
    const json_int_t most = 1 << 20;
    if (x > most || x < -most || y > most || y < -most)
        return pb_fail(PB_EFORMAT, "an integer is larger than a million");
    if (sign == '+') return pb_jinja_make(j, json_integer(x + y), out);
    if (sign == '-') return pb_jinja_make(j, json_integer(x - y), out);
    if (sign == '*') return pb_jinja_make(j, json_integer(x * y), out);
    if (x < 0 || y <= 0)
        return pb_fail(PB_EFORMAT, "division is supported for non-negative integers by positive ones only");
    return pb_jinja_make(j, json_integer(sign == '%' ? x % y : x / y), out);
}

static pb_status binary(pb_jinja *j, const int *signs, pb_status (*operand)(pb_jinja *, json_t **), json_t **out)
{
    PB_TRY(operand(j, out));
    for (size_t k = 0; signs[k];) {
        json_t *a = *out, *b;
        bool taken;
        PB_TRY(pb_jinja_take_sign(j, signs[k], &taken));
        if (!taken) {
            k++;
            continue;
        }
        PB_TRY(operand(j, &b));
        PB_TRY(apply(j, signs[k], a, b, out));
        k = 0;
    }
    return PB_OK;
}

static pb_status product(pb_jinja *j, json_t **out)
{
    return binary(j, (const int[]){'*', '%', PB_JINJA_TWO('/', '/'), 0}, unary, out);
}

static pb_status sum(pb_jinja *j, json_t **out) { return binary(j, (const int[]){'+', '-', '~', 0}, product, out); }

static pb_status contains(json_t *x, json_t *in, bool *out)
{
    json_t *v;
    size_t i;
    *out = false;
    if (json_is_string(in) && json_is_string(x)) *out = strstr(json_string_value(in), json_string_value(x)) != NULL;
    else if (json_is_object(in) && json_is_string(x)) *out = json_object_get(in, json_string_value(x)) != NULL;
    else if (json_is_array(in)) json_array_foreach(in, i, v) *out = *out || json_equal(v, x);
    else return pb_fail(PB_EFORMAT, "this use of 'in' is not supported");
    return PB_OK;
}

static pb_status order(int sign, json_t *a, json_t *b, bool *out)
{
    if ((json_is_boolean(a) && json_is_integer(b)) || (json_is_integer(a) && json_is_boolean(b)))
        return pb_fail(PB_EFORMAT, "comparing a truth value with a number is not supported");
    const bool equal = a == b || (a && b && json_equal(a, b));
    if (sign == PB_JINJA_TWO('=', '=') || sign == PB_JINJA_TWO('!', '=')) {
        *out = equal == (sign == PB_JINJA_TWO('=', '='));
        return PB_OK;
    }
    if (!json_is_integer(a) || !json_is_integer(b))
        return pb_fail(PB_EFORMAT, "<, <=, > and >= are supported for two integers only");
    const json_int_t x = json_integer_value(a), y = json_integer_value(b);
    *out = sign == '<' ? x < y : sign == '>' ? x > y : sign == PB_JINJA_TWO('<', '=') ? x <= y : x >= y;
    return PB_OK;
}

/* Parses one comparison, whose left side is *out. *done: no comparison follows. */
static pb_status compare(pb_jinja *j, json_t **out, bool *done)
{
    static const int signs[] = {
        PB_JINJA_TWO('=', '='), PB_JINJA_TWO('!', '='), PB_JINJA_TWO('<', '='), PB_JINJA_TWO('>', '='), '<', '>'};
    json_t *b;
    bool taken, negated = false, result = false;
    *done = false;
    for (size_t k = 0; k < sizeof signs / sizeof *signs; k++) {
        PB_TRY(pb_jinja_take_sign(j, signs[k], &taken));
        if (!taken) continue;
        PB_TRY(sum(j, &b));
        if (!j->skipping) PB_TRY(order(signs[k], *out, b, &result));
        *out = j->skipping ? NULL : boolean(result);
        return PB_OK;
    }
    PB_TRY(pb_jinja_take_name(j, "not", &negated));
    PB_TRY(pb_jinja_take_name(j, "in", &taken));
    *done = !taken;
    if (!taken) return negated ? pb_fail(PB_EFORMAT, "'in' is missing after 'not'") : PB_OK;
    PB_TRY(sum(j, &b));
    if (!j->skipping) PB_TRY(contains(*out, b, &result));
    *out = j->skipping ? NULL : boolean(result != negated);
    return PB_OK;
}

static pb_status negation(pb_jinja *j, json_t **out)
{
    bool negated = true, none = false;
    size_t n = 0;
    for (; negated; n += negated) PB_TRY(pb_jinja_take_name(j, "not", &negated));
    PB_TRY(sum(j, out));
    PB_TRY(compare(j, out, &none));
    if (!none) PB_TRY(compare(j, out, &none));
    if (!none) return pb_fail(PB_EFORMAT, "a chain of comparisons is not supported");
    if (n && !j->skipping) *out = boolean(pb_jinja_true(*out) != (n % 2 == 1));
    return PB_OK;
}

/* Parses "a and b and ..." or "a or b or ...". As in Python, the result is the first operand whose truth value is
 * `stop` (false for `and`, true for `or`), else the last one. Operands after the result are parsed but not executed. */
static pb_status logical_chain(pb_jinja *j, const char *word, bool stop, pb_status (*operand)(pb_jinja *, json_t **),
                               json_t **out)
{
    bool taken;
    PB_TRY(operand(j, out));
    for (;;) {
        json_t *b;
        PB_TRY(pb_jinja_take_name(j, word, &taken));
        if (!taken) return PB_OK;
        const bool decided = !j->skipping && pb_jinja_true(*out) == stop;
        j->skipping += decided;
        PB_TRY(operand(j, &b));
        j->skipping -= decided;
        if (!decided) *out = b;
    }
}

static pb_status conjunction(pb_jinja *j, json_t **out) { return logical_chain(j, "and", false, negation, out); }
static pb_status alternatives(pb_jinja *j, json_t **out) { return logical_chain(j, "or", true, conjunction, out); }

/* Parses the rest of "a if condition else b". `a` begins at token index `from` and has been parsed without execution,
 * because the condition comes after it. `a` is therefore parsed again here, and executed if the condition is true. */
static pb_status finish_ternary(pb_jinja *j, size_t from, json_t **out)
{
    json_t *condition = NULL, *b = NULL;
    bool otherwise;
    PB_TRY(alternatives(j, &condition));
    const bool yes = pb_jinja_true(condition);
    PB_TRY(pb_jinja_take_name(j, "else", &otherwise));
    j->skipping += yes;
    if (otherwise) PB_TRY(ternary(j, &b));
    j->skipping -= yes;
    const size_t end = j->at;
    j->at = from;
    j->skipping += !yes;
    PB_TRY(alternatives(j, out));
    j->skipping -= !yes;
    j->at = end;
    if (!yes) *out = b;
    return PB_OK;
}

/* Parses "a if condition else b" in code that is not executed. */
static pb_status skip_ternary(pb_jinja *j)
{
    json_t *ignored;
    bool more;
    PB_TRY(alternatives(j, &ignored));
    PB_TRY(pb_jinja_take_name(j, "if", &more));
    if (more) PB_TRY(alternatives(j, &ignored));
    if (more) PB_TRY(pb_jinja_take_name(j, "else", &more));
    return more ? ternary(j, &ignored) : PB_OK;
}

static pb_status either(pb_jinja *j, json_t **out)
{
    const size_t from = j->at;
    bool conditional;
    json_t *ignored;
    if (j->skipping) return skip_ternary(j);
    j->skipping++;
    PB_TRY(alternatives(j, &ignored));
    j->skipping--;
    PB_TRY(pb_jinja_take_name(j, "if", &conditional));
    if (conditional) return finish_ternary(j, from, out);
    j->at = from;
    return alternatives(j, out);
}

static pb_status ternary(pb_jinja *j, json_t **out)
{
    *out = NULL;
    if (j->depth == PB_JINJA_DEPTH)
        return pb_fail(PB_EFORMAT, "expressions are nested more than %d deep", PB_JINJA_DEPTH);
    j->depth++;
    const pb_status s = either(j, out);
    j->depth--;
    return s;
}

pb_status pb_jinja_expression(pb_jinja *j, bool with_if, json_t **out)
{
    *out = NULL;
    return with_if ? ternary(j, out) : alternatives(j, out);
}
