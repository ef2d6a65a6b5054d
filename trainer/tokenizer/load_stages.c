/* load_stages.c - loads the normalizer, the pre_tokenizer and the decoder from a tokenizer.json. */
#include "trainer/tokenizer/tokenizer_impl.h"

enum { MAX_DEPTH = 4 };

#define KEYS(...)                                                                                                      \
    (const char *const[]) { __VA_ARGS__, NULL }

typedef pb_status (*load_fn)(json_t *o, void *into, int depth);

/* Calls `load` for every element of the list o[key]. */
static pb_status sequence(json_t *o, const char *where, const char *key, load_fn load, void *into, int depth)
{
    json_t *list = json_object_get(o, key), *one;
    size_t i;
    PB_TRY(pb_json_object(o, where, KEYS("type", key)));
    if (!json_is_array(list)) return pb_fail(PB_EINVAL, "%s: \"%s\" is not a list", where, key);
    if (depth >= MAX_DEPTH) return pb_fail(PB_EFORMAT, "%s: Sequences are nested more than %d deep", where, depth);
    json_array_foreach(list, i, one)
    {
        if (json_is_null(one)) return pb_fail(PB_EINVAL, "%s: a Sequence contains null", where);
        PB_TRY(load(one, into, depth + 1));
    }
    return PB_OK;
}

/* Compiles the value of the key "pattern": {"String": s}, which is plain text, or {"Regex": s}. */
static pb_status pattern(json_t *o, const char *where, pb_tok_pattern *out)
{
    json_t *p = json_object_get(o, "pattern");
    const bool literal = json_object_get(p, "String") != NULL;
    pb_json_text text;
    PB_TRY(pb_json_object(p, where, KEYS("String", "Regex")));
    if (json_object_size(p) != 1)
        return pb_fail(PB_EINVAL, "%s: \"pattern\" is not an object with either \"String\" or \"Regex\"", where);
    PB_TRY(pb_json_get_text(p, where, literal ? "String" : "Regex", &text));
    return pb_tok_pattern_open(text.p, text.n, literal, out);
}

static pb_status add_norm(pb_stages *g, const char *where, pb_tok_normalizer kind, pb_tok_norm **out)
{
    if (g->norms == PB_TOK_MAX_STAGES)
        return pb_fail(PB_EFORMAT, "%s has more than %d steps", where, PB_TOK_MAX_STAGES);
    *out = &g->norm[g->norms++];
    (*out)->kind = kind;
    return PB_OK;
}

static pb_status load_replace(json_t *o, const char *where, pb_stages *g)
{
    pb_tok_norm *m = NULL;
    pb_json_text text;
    PB_TRY(pb_json_object(o, where, KEYS("type", "pattern", "content")));
    PB_TRY(pb_json_get_text(o, where, "content", &text));
    PB_TRY(add_norm(g, where, PB_NORM_REPLACE, &m));
    PB_TRY(pb_tok_append(&m->text, text.p, text.n));
    return pattern(o, where, &m->pattern);
}

static pb_status load_norm(json_t *o, void *into, int depth) { return pb_tok_load_normalizer(o, into, depth); }

pb_status pb_tok_load_normalizer(json_t *o, pb_stages *g, int depth)
{
    static const char where[] = "normalizer";
    const char *type = pb_json_type(o);
    pb_tok_norm *m = NULL;
    pb_json_text text;
    if (pb_json_absent(o)) return PB_OK;
    if (!strcmp(type, "Sequence")) return sequence(o, where, "normalizers", load_norm, g, depth);
    if (!strcmp(type, "Replace")) return load_replace(o, where, g);
    if (!strcmp(type, "NFC")) {
        PB_TRY(pb_json_object(o, where, KEYS("type")));
        return add_norm(g, where, PB_NORM_NFC, &m);
    }
    if (strcmp(type, "Prepend") != 0) return pb_json_refuse_type(o, where);
    PB_TRY(pb_json_object(o, where, KEYS("type", "prepend")));
    PB_TRY(pb_json_get_text(o, where, "prepend", &text));
    PB_TRY(add_norm(g, where, PB_NORM_PREPEND, &m));
    return pb_tok_append(&m->text, text.p, text.n);
}

static pb_status add_cut(pb_stages *g, pb_tok_behavior behavior, pb_tok_cut **out)
{
    if (g->byte_level) return pb_fail(PB_EFORMAT, "pre_tokenizer: a step after ByteLevel is not supported");
    if (g->cuts == PB_TOK_MAX_STAGES)
        return pb_fail(PB_EFORMAT, "pre_tokenizer has more than %d steps", PB_TOK_MAX_STAGES);
    *out = &g->cut[g->cuts++];
    (*out)->behavior = behavior;
    return PB_OK;
}

/* The pattern with which ByteLevel splits text: that of GPT-2 (Radford et al. 2019, encoder.py). */
static const char gpt2[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static pb_status load_byte_level(json_t *o, pb_stages *g)
{
    static const char where[] = "pre_tokenizer: ByteLevel";
    bool prefix = true, regex = true, trim = true;
    pb_tok_cut *c = NULL;
    PB_TRY(pb_json_object(o, where, KEYS("type", "add_prefix_space", "trim_offsets", "use_regex")));
    PB_TRY(pb_json_get_bool(o, where, "add_prefix_space", &prefix));
    PB_TRY(pb_json_get_bool(o, where, "trim_offsets", &trim));
    PB_TRY(pb_json_get_bool(o, where, "use_regex", &regex));
    if (g->byte_level) return pb_fail(PB_EFORMAT, "%s is given twice", where);
    g->prefix = prefix;
    g->prefix_at = g->cuts;
    if (regex) {
        PB_TRY(add_cut(g, PB_CUT_ISOLATED, &c));
        PB_TRY(pb_tok_pattern_open(gpt2, sizeof gpt2 - 1, false, &c->pattern));
    }
    g->byte_level = true;
    return PB_OK;
}

static pb_status load_split(json_t *o, pb_stages *g)
{
    static const char where[] = "pre_tokenizer: Split";
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    pb_json_text name;
    pb_tok_cut *c = NULL;
    int k = 0;
    PB_TRY(pb_json_object(o, where, KEYS("type", "pattern", "behavior", "invert")));
    PB_TRY(pb_json_get_text(o, where, "behavior", &name));
    while (k < 5 && strcmp(name.p, names[k]) != 0) k++;
    if (k == 5) return pb_fail(PB_EFORMAT, "%s: behavior \"%.40s\" is not supported", where, name.p);
    PB_TRY(add_cut(g, (pb_tok_behavior)k, &c));
    PB_TRY(pb_json_get_bool(o, where, "invert", &c->invert));
    return pattern(o, where, &c->pattern);
}

static pb_status load_digits(json_t *o, pb_stages *g)
{
    static const char where[] = "pre_tokenizer: Digits", number[] = "\\p{N}";
    bool each = false;
    pb_tok_cut *c = NULL;
    PB_TRY(pb_json_object(o, where, KEYS("type", "individual_digits")));
    PB_TRY(pb_json_get_bool(o, where, "individual_digits", &each));
    PB_TRY(add_cut(g, each ? PB_CUT_ISOLATED : PB_CUT_CONTIGUOUS, &c));
    return pb_tok_pattern_open(number, sizeof number - 1, false, &c->pattern);
}

static pb_status load_pre(json_t *o, void *into, int depth) { return pb_tok_load_pre_tokenizer(o, into, depth); }

pb_status pb_tok_load_pre_tokenizer(json_t *o, pb_stages *g, int depth)
{
    static const char where[] = "pre_tokenizer";
    const char *type = pb_json_type(o);
    if (pb_json_absent(o)) return PB_OK;
    if (!strcmp(type, "Sequence")) return sequence(o, where, "pretokenizers", load_pre, g, depth);
    if (!strcmp(type, "ByteLevel")) return load_byte_level(o, g);
    if (!strcmp(type, "Split")) return load_split(o, g);
    if (!strcmp(type, "Digits")) return load_digits(o, g);
    return pb_json_refuse_type(o, where);
}

static pb_status count(json_t *o, const char *where, const char *key, size_t *out)
{
    const json_int_t v = json_integer_value(json_object_get(o, key));
    if (!json_is_integer(json_object_get(o, key)) || v < 0 || v > 1024)
        return pb_fail(PB_EINVAL, "%s: \"%s\" is not an integer from 0 to 1024", where, key);
    *out = (size_t)v;
    return PB_OK;
}

static pb_status load_strip(json_t *o, pb_tok_decoder *d)
{
    static const char where[] = "decoder: Strip";
    pb_json_text c;
    uint32_t cp;
    PB_TRY(pb_json_object(o, where, KEYS("type", "content", "start", "stop")));
    PB_TRY(pb_json_get_text(o, where, "content", &c));
    if (!c.n || pb_tok_char(c.p, c.n, &cp) != c.n)
        return pb_fail(PB_EINVAL, "%s: \"content\" is not one character", where);
    if (!d->fused || d->strip_n) return pb_fail(PB_EFORMAT, "%s is supported once only, and after Fuse", where);
    memcpy(d->strip, c.p, c.n);
    d->strip_n = c.n;
    PB_TRY(count(o, where, "start", &d->strip_start));
    return count(o, where, "stop", &d->strip_stop);
}

static pb_status load_one_decoder(json_t *o, void *into, int depth) { return pb_tok_load_decoder(o, into, depth); }

pb_status pb_tok_load_decoder(json_t *o, pb_tok_decoder *d, int depth)
{
    static const char where[] = "decoder";
    const char *type = pb_json_type(o);
    if (pb_json_absent(o)) return PB_OK;
    if (!strcmp(type, "Sequence")) return sequence(o, where, "decoders", load_one_decoder, d, depth);
    if (d->kind == PB_DECODE_BYTELEVEL)
        return pb_fail(PB_EFORMAT, "%s: a step after ByteLevel is not supported", where);
    if (!strcmp(type, "ByteLevel")) {
        if (d->kind != PB_DECODE_BLANKS)
            return pb_fail(PB_EFORMAT, "%s: a step before ByteLevel is not supported", where);
        d->kind = PB_DECODE_BYTELEVEL;
        return pb_json_object(o, where, KEYS("type", "add_prefix_space", "trim_offsets", "use_regex"));
    }
    d->kind = PB_DECODE_CHAIN;
    if (!strcmp(type, "Strip")) return load_strip(o, d);
    if (d->fused) return pb_fail(PB_EFORMAT, "%s: \"%.40s\" after Fuse is not supported", where, type);
    if (!strcmp(type, "Fuse")) {
        d->fused = true;
        return pb_json_object(o, where, KEYS("type"));
    }
    if (d->byte_fallback) return pb_fail(PB_EFORMAT, "%s: \"%.40s\" after ByteFallback is not supported", where, type);
    if (!strcmp(type, "ByteFallback")) {
        d->byte_fallback = true;
        return pb_json_object(o, where, KEYS("type"));
    }
    if (!strcmp(type, "Replace")) return load_replace(o, where, &d->replace);
    return pb_json_refuse_type(o, where);
}
