/* jinja_state.c - creates the values of expressions, and reads the tokens of a chat template. */
#include <stdio.h>

#include "trainer/data/jinja_impl.h"

/* ---- creating and printing values --------------------------------------------------------------------- */

pb_status pb_jinja_refuse(const char *what, const char *name)
{
    return pb_fail(PB_EFORMAT, "%s \"%.40s\" is not supported", what, name);
}

pb_status pb_jinja_make(pb_jinja *j, json_t *value, json_t **out)
{
    if (!value || json_array_append_new(j->made, value) != 0)
        return pb_fail(PB_ENOMEM, "no memory for a chat template");
    *out = value;
    return PB_OK;
}

pb_status pb_jinja_string(pb_jinja *j, const char *s, size_t n, json_t **out)
{
    if (n > PB_JINJA_BYTES - j->bytes)
        return pb_fail(PB_EFORMAT, "it makes more than %d bytes of text", PB_JINJA_BYTES);
    j->bytes += n;
    return pb_jinja_make(j, json_stringn(s, n), out);
}

bool pb_jinja_true(json_t *v)
{
    if (!v || json_is_null(v) || json_is_false(v)) return false;
    if (json_is_string(v)) return json_string_length(v);
    if (json_is_integer(v)) return json_integer_value(v);
    if (json_is_array(v)) return json_array_size(v);
    return !json_is_object(v) || json_object_size(v);
}

pb_status pb_jinja_print(json_t *v, pb_bytes *out)
{
    char text[32];
    if (!v) return PB_OK;
    if (json_is_string(v)) return pb_tok_append(out, json_string_value(v), json_string_length(v));
    if (json_is_integer(v)) snprintf(text, sizeof text, "%lld", (long long)json_integer_value(v));
    else if (json_is_null(v)) snprintf(text, sizeof text, "None");
    else if (json_is_boolean(v)) snprintf(text, sizeof text, "%s", json_is_true(v) ? "True" : "False");
    else return pb_fail(PB_EFORMAT, "printing a list or an object is not supported");
    return pb_tok_append(out, text, strlen(text));
}

/* ---- reading tokens ----------------------------------------------------------------------------------- */

pb_status pb_jinja_next(pb_jinja *j, const pb_jinja_token **out)
{
    if (++j->steps > PB_JINJA_STEPS)
        return pb_fail(PB_EFORMAT, "it takes more than %d steps to evaluate", PB_JINJA_STEPS);
    *out = pb_jinja_peek(j);
    if ((*out)->kind != PB_JINJA_END) j->at++;
    return PB_OK;
}

bool pb_jinja_is_name(const pb_jinja *j, const char *name)
{
    const pb_jinja_token *t = pb_jinja_peek(j);
    return t->kind == PB_JINJA_NAME && !strcmp(pb_jinja_text(j, t), name);
}

bool pb_jinja_is_sign(const pb_jinja *j, int sign)
{
    const pb_jinja_token *t = pb_jinja_peek(j);
    return t->kind == PB_JINJA_SIGN && t->value == sign;
}

pb_status pb_jinja_take_name(pb_jinja *j, const char *name, bool *taken)
{
    const pb_jinja_token *t;
    *taken = pb_jinja_is_name(j, name);
    return *taken ? pb_jinja_next(j, &t) : PB_OK;
}

pb_status pb_jinja_take_sign(pb_jinja *j, int sign, bool *taken)
{
    const pb_jinja_token *t;
    *taken = pb_jinja_is_sign(j, sign);
    return *taken ? pb_jinja_next(j, &t) : PB_OK;
}

pb_status pb_jinja_need_sign(pb_jinja *j, int sign)
{
    bool taken;
    PB_TRY(pb_jinja_take_sign(j, sign, &taken));
    return taken ? PB_OK : pb_fail(PB_EFORMAT, "a '%c' is missing", sign);
}
