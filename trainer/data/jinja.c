/* jinja.c - renders a chat template: executes its statements (if, for, set) and blocks. */
#include "trainer/data/jinja.h"

#include "trainer/data/jinja_impl.h"

static pb_status block(pb_jinja *j);

static pb_status close_tag(pb_jinja *j)
{
    const pb_jinja_token *t;
    PB_TRY(pb_jinja_next(j, &t));
    return t->kind == PB_JINJA_CLOSE ? PB_OK : pb_fail(PB_EFORMAT, "a tag contains more than is supported");
}

/* True if the next tokens are "{% name". */
static bool statement_is(const pb_jinja *j, const char *name)
{
    const pb_jinja_token *t = pb_jinja_peek(j);
    return t->kind == PB_JINJA_STATEMENT && t[1].kind == PB_JINJA_NAME && !strcmp(pb_jinja_text(j, t + 1), name);
}

/* Consumes "{% name". */
static pb_status open_tag(pb_jinja *j, const char *name)
{
    const pb_jinja_token *t;
    if (!statement_is(j, name)) return pb_fail(PB_EFORMAT, "the tag '%s' is missing", name);
    PB_TRY(pb_jinja_next(j, &t));
    return pb_jinja_next(j, &t);
}

static pb_status dead_block(pb_jinja *j, bool dead)
{
    j->skipping += dead;
    const pb_status s = block(j);
    j->skipping -= dead;
    return s;
}

/* ---- the statement if --------------------------------------------------------------------------------- */

/* Parses one branch: its condition and its body. The body is executed if the condition is true and *taken is false. */
static pb_status branch(pb_jinja *j, bool *taken)
{
    json_t *condition = NULL;
    const bool skip = *taken;
    j->skipping += skip;
    PB_TRY(pb_jinja_expression(j, true, &condition));
    j->skipping -= skip;
    PB_TRY(close_tag(j));
    const bool runs = !skip && pb_jinja_true(condition);
    *taken = skip || runs;
    return dead_block(j, !runs);
}

static pb_status if_statement(pb_jinja *j)
{
    bool taken = j->skipping;
    PB_TRY(branch(j, &taken));
    while (statement_is(j, "elif")) {
        PB_TRY(open_tag(j, "elif"));
        PB_TRY(branch(j, &taken));
    }
    if (statement_is(j, "else")) {
        PB_TRY(open_tag(j, "else"));
        PB_TRY(close_tag(j));
        PB_TRY(dead_block(j, taken));
    }
    PB_TRY(open_tag(j, "endif"));
    return close_tag(j);
}

/* ---- the statement for -------------------------------------------------------------------------------- */

typedef struct loop {
    const char *name;
    json_t *items;
    bool filtered;
    size_t filter; /* token index of the loop's `if` condition */
} loop;

static pb_status push_scope(pb_jinja *j)
{
    if (j->scopes == PB_JINJA_SCOPES) return pb_fail(PB_EFORMAT, "loops are nested more than %d deep", PB_JINJA_SCOPES);
    PB_TRY(pb_jinja_make(j, json_object(), &j->scope[j->scopes]));
    j->scopes++;
    return PB_OK;
}

static pb_status head(pb_jinja *j, loop *l)
{
    const pb_jinja_token *t;
    bool in;
    PB_TRY(pb_jinja_next(j, &t));
    if (t->kind != PB_JINJA_NAME) return pb_fail(PB_EFORMAT, "a 'for' has no variable");
    l->name = pb_jinja_text(j, t);
    PB_TRY(pb_jinja_take_name(j, "in", &in));
    if (!in) return pb_fail(PB_EFORMAT, "a 'for' with more than one variable is not supported");
    PB_TRY(pb_jinja_expression(j, false, &l->items));
    PB_TRY(pb_jinja_take_name(j, "if", &l->filtered));
    l->filter = j->at;
    if (l->filtered) {
        json_t *ignored;
        j->skipping++;
        PB_TRY(pb_jinja_expression(j, true, &ignored));
        j->skipping--;
    }
    if (!j->skipping && l->items && !json_is_array(l->items))
        return pb_fail(PB_EFORMAT, "a 'for' over a value that is not a list is not supported");
    return close_tag(j);
}

/* Replaces the items of a loop by those that satisfy the loop's `if` condition. */
static pb_status take_items(pb_jinja *j, loop *l)
{
    const size_t body = j->at;
    json_t *kept = NULL, *item, *condition;
    size_t i;
    if (!l->filtered) return PB_OK;
    PB_TRY(pb_jinja_make(j, json_array(), &kept));
    json_array_foreach(l->items, i, item)
    {
        PB_TRY(push_scope(j));
        json_object_set(j->scope[j->scopes - 1], l->name, item);
        j->at = l->filter;
        PB_TRY(pb_jinja_expression(j, true, &condition));
        if (pb_jinja_true(condition)) json_array_append(kept, item);
        j->scopes--;
    }
    j->at = body;
    l->items = kept;
    return PB_OK;
}

static pb_status pass(pb_jinja *j, const loop *l, size_t i, size_t n)
{
    PB_TRY(push_scope(j));
    json_t *scope = j->scope[j->scopes - 1];
    json_t *info = json_pack("{s:I, s:I, s:I, s:b, s:b}", "index", (json_int_t)i + 1, "index0", (json_int_t)i, "length",
                             (json_int_t)n, "first", i == 0, "last", i + 1 == n);
    if (!info) return pb_fail(PB_ENOMEM, "no memory for a chat template");
    json_object_set_new(scope, "loop", info);
    json_object_set(scope, l->name, json_array_get(l->items, i));
    PB_TRY(block(j));
    j->scopes--;
    return PB_OK;
}

static pb_status for_statement(pb_jinja *j)
{
    loop l = {0};
    PB_TRY(head(j, &l));
    if (!j->skipping) PB_TRY(take_items(j, &l));
    const size_t body = j->at, n = j->skipping ? 0 : json_array_size(l.items);
    for (size_t i = 0; i < n; i++) {
        j->at = body;
        PB_TRY(pass(j, &l, i, n));
    }
    if (!n) PB_TRY(dead_block(j, true));
    PB_TRY(open_tag(j, "endfor"));
    return close_tag(j);
}

/* ---- the statement set -------------------------------------------------------------------------------- */

static pb_status set_statement(pb_jinja *j)
{
    const pb_jinja_token *t, *member = NULL;
    json_t *v, *into = j->scope[j->scopes - 1];
    bool dot;
    PB_TRY(pb_jinja_next(j, &t));
    if (t->kind != PB_JINJA_NAME) return pb_fail(PB_EFORMAT, "a 'set' has no variable");
    PB_TRY(pb_jinja_take_sign(j, '.', &dot));
    if (dot) PB_TRY(pb_jinja_next(j, &member));
    PB_TRY(pb_jinja_need_sign(j, '='));
    PB_TRY(pb_jinja_expression(j, true, &v));
    if (j->skipping) return close_tag(j);
    if (!v) return pb_fail(PB_EFORMAT, "a 'set' to an undefined value is not supported");
    if (dot) {
        into = NULL;
        for (int i = j->scopes; i-- > 0 && !into;) into = json_object_get(j->scope[i], pb_jinja_text(j, t));
        if (member->kind != PB_JINJA_NAME || !json_object_get(into, PB_JINJA_NAMESPACE) || json_is_object(v))
            return pb_fail(PB_EFORMAT, "a 'set' of this attribute is not supported");
        t = member;
    }
    json_object_set(into, pb_jinja_text(j, t), v);
    return close_tag(j);
}

/* ---- blocks and templates ----------------------------------------------------------------------------- */

static pb_status statement(pb_jinja *j)
{
    static const struct {
        const char *name;
        pb_status (*run)(pb_jinja *);
    } all[] = {{"if", if_statement},
               {"for", for_statement},
               {"set", set_statement},
               {"generation", close_tag},
               {"endgeneration", close_tag}};
    const pb_jinja_token *name = pb_jinja_peek(j) + 1;
    if (name->kind != PB_JINJA_NAME) return pb_fail(PB_EFORMAT, "a tag does not begin with the name of a statement");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (statement_is(j, all[i].name)) {
            PB_TRY(open_tag(j, all[i].name));
            return all[i].run(j);
        }
    return pb_jinja_refuse("the statement", pb_jinja_text(j, name));
}

static pb_status append(pb_jinja *j, json_t *v)
{
    const size_t n = j->out->n;
    PB_TRY(pb_jinja_print(v, j->out));
    j->bytes += j->out->n - n;
    return j->bytes <= PB_JINJA_BYTES ? PB_OK
                                      : pb_fail(PB_EFORMAT, "it makes more than %d bytes of text", PB_JINJA_BYTES);
}

static pb_status output(pb_jinja *j)
{
    const pb_jinja_token *t;
    json_t *v;
    PB_TRY(pb_jinja_next(j, &t));
    PB_TRY(pb_jinja_expression(j, true, &v));
    PB_TRY(close_tag(j));
    return j->skipping ? PB_OK : append(j, v);
}

static pb_status raw(pb_jinja *j)
{
    const pb_jinja_token *t;
    json_t *v;
    PB_TRY(pb_jinja_next(j, &t));
    if (j->skipping) return PB_OK;
    PB_TRY(pb_jinja_string(j, pb_jinja_text(j, t), t->n, &v));
    return append(j, v);
}

static bool ends(const pb_jinja *j)
{
    static const char *const words[] = {"elif", "else", "endif", "endfor"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (statement_is(j, words[i])) return true;
    return pb_jinja_peek(j)->kind == PB_JINJA_END;
}

/* Renders up to the tag that ends the block (elif, else, endif, endfor) or the end of the template. That tag is not
 * consumed. */
static pb_status block(pb_jinja *j)
{
    if (j->depth == PB_JINJA_DEPTH) return pb_fail(PB_EFORMAT, "blocks are nested more than %d deep", PB_JINJA_DEPTH);
    j->depth++;
    while (!ends(j)) {
        const pb_jinja_kind kind = pb_jinja_peek(j)->kind;
        PB_TRY(kind == PB_JINJA_RAW ? raw(j) : kind == PB_JINJA_OUTPUT ? output(j) : statement(j));
    }
    j->depth--;
    return PB_OK;
}

static pb_status render(pb_jinja *j, const char *text, size_t n)
{
    if (!j->made) return pb_fail(PB_ENOMEM, "no memory for a chat template");
    PB_TRY(pb_jinja_lex(text, n, &j->tokens));
    PB_TRY(push_scope(j));
    PB_TRY(block(j));
    return pb_jinja_peek(j)->kind == PB_JINJA_END ? PB_OK : pb_fail(PB_EFORMAT, "an end tag has no matching start tag");
}

pb_status pb_jinja_render(const char *text, size_t n, json_t *context, pb_bytes *out)
{
    pb_jinja j = {.context = context, .out = out, .made = json_array()};
    const size_t from = out->n;
    const pb_status s = render(&j, text, n);
    if (s != PB_OK) out->n = from;
    json_decref(j.made);
    pb_jinja_tokens_free(&j.tokens);
    return s;
}
