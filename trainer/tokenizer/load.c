/* load.c - loads the model, the added tokens and the post-processor from a tokenizer.json. */
#include "trainer/tokenizer/tokenizer_impl.h"

#include <stdio.h>

enum { LONGEST_TOKEN = 1 << 16, MAX_DEPTH = 4 };

#define KEYS(...)                                                                                                      \
    (const char *const[]) { __VA_ARGS__, NULL }

static json_t *find(json_t *vocab, const char *s, size_t n) { return json_object_getn(vocab, s, n); }

static pb_status id_of(json_t *v, int64_t *id)
{
    if (!json_is_integer(v)) return pb_fail(PB_EINVAL, "its id is not an integer");
    *id = (int64_t)json_integer_value(v);
    return PB_OK;
}

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

/* Converts "<0x0A>" to 10; -1: the text has another form. */
static int fallback_byte(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || hex(s[3]) < 0 || hex(s[4]) < 0) return -1;
    return hex(s[3]) * 16 + hex(s[4]);
}

/* Computes the bytes that decoding writes for the token s[n]. *out points to s, to scratch memory of `d`, or to
 * `bytes`, which has room for n bytes. */
static pb_status decoded(pb_tok_decoder *d, const char *s, size_t n, char *bytes, const char **out, size_t *out_n)
{
    *out = s;
    *out_n = n;
    if (d->kind == PB_DECODE_BYTELEVEL && pb_tok_alphabet_decode(s, n, bytes, out_n)) *out = bytes;
    if (d->kind != PB_DECODE_CHAIN) return PB_OK;
    PB_TRY(pb_stages_normalize(&d->replace, s, n, out, out_n));
    const int b = d->byte_fallback ? fallback_byte(*out, *out_n) : -1;
    if (b < 0) return PB_OK;
    bytes[0] = (char)b;
    *out = bytes;
    *out_n = 1;
    return PB_OK;
}

/* Adds one entry of the vocabulary. A byte-level model looks up words as bytes, so a token with characters outside the
 * alphabet is not added as a word. */
static pb_status add_entry(pb_tokenizer *t, const char *s, json_t *v, char *bytes)
{
    const size_t n = strlen(s);
    const char *text = s;
    size_t text_n = n;
    int64_t id = -1;
    if (n > LONGEST_TOKEN) return pb_fail(PB_EINVAL, "the token has %zu bytes: need at most %d", n, LONGEST_TOKEN);
    PB_TRY(id_of(v, &id));
    PB_TRY(decoded(&t->decoder, s, n, bytes, &text, &text_n));
    PB_TRY(pb_vocab_add_token(&t->bpe.vocab, id, text, text_n, 0));
    const int b = fallback_byte(s, n);
    if (b >= 0) t->bpe.fallback[b] = (int32_t)id;
    if (!n) return PB_OK;
    if (!t->stages.byte_level) return pb_vocab_add_word(&t->bpe.vocab, s, n, (int32_t)id);
    if (!pb_tok_alphabet_decode(s, n, bytes, &text_n)) return PB_OK;
    if (text_n == 1) t->bpe.byte[(unsigned char)bytes[0]] = (int32_t)id;
    return pb_vocab_add_word(&t->bpe.vocab, bytes, text_n, (int32_t)id);
}

/* Prefixes the message of a failure with the entry that was being read. */
static pb_status within(pb_status s, const char *what, const char *name)
{
    char text[256];
    if (s == PB_OK) return s;
    snprintf(text, sizeof text, "%s", pb_error());
    return pb_fail(s, "%s \"%.60s\": %s", what, name, text);
}

static pb_status load_vocab(json_t *vocab, pb_tokenizer *t)
{
    char bytes[LONGEST_TOKEN];
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        const char *s = json_object_iter_key(it);
        PB_TRY(within(add_entry(t, s, json_object_iter_value(it), bytes), "model: token", s));
    }
    return PB_OK;
}

/* Reads the two tokens of a merge: "a b" or ["a","b"]. */
static pb_status sides(json_t *m, size_t i, pb_json_text *a, pb_json_text *b)
{
    if (json_is_array(m)) {
        if (json_array_size(m) != 2) return pb_fail(PB_EINVAL, "model: merge %zu is not a pair", i);
        PB_TRY(pb_json_text_of(json_array_get(m, 0), "model: a merge", a));
        return pb_json_text_of(json_array_get(m, 1), "model: a merge", b);
    }
    PB_TRY(pb_json_text_of(m, "model: a merge", a));
    const char *blank = memchr(a->p, ' ', a->n), *end = a->p + a->n;
    if (!blank || memchr(blank + 1, ' ', (size_t)(end - blank - 1)))
        return pb_fail(PB_EINVAL, "model: merge %zu is not two tokens separated by one space", i);
    *b = (pb_json_text){blank + 1, (size_t)(end - blank - 1)};
    a->n = (size_t)(blank - a->p);
    return PB_OK;
}

static pb_status add_merge(json_t *vocab, pb_tokenizer *t, size_t i, pb_json_text a, pb_json_text b, size_t rank)
{
    char both[2 * LONGEST_TOKEN];
    if (!a.n || !b.n) return pb_fail(PB_EINVAL, "model: merge %zu has an empty side", i);
    if (a.n + b.n > LONGEST_TOKEN) return pb_fail(PB_EINVAL, "model: merge %zu is too long", i);
    memcpy(both, a.p, a.n);
    memcpy(both + a.n, b.p, b.n);
    const pb_json_text part[3] = {a, b, {both, a.n + b.n}};
    json_t *v[3];
    for (int k = 0; k < 3; k++) {
        v[k] = find(vocab, part[k].p, part[k].n);
        if (!v[k])
            return pb_fail(PB_EINVAL, "model: merge %zu: \"%.*s\" is not in the vocabulary", i,
                           (int)(part[k].n < 60 ? part[k].n : 60), part[k].p);
    }
    pb_vocab_add_pair(&t->bpe.vocab, (int32_t)json_integer_value(v[0]), (int32_t)json_integer_value(v[1]),
                      (uint32_t)rank, (int32_t)json_integer_value(v[2]));
    return PB_OK;
}

static pb_status load_merges(json_t *merges, json_t *vocab, pb_tokenizer *t)
{
    json_t *m;
    size_t i, rank = 0;
    json_array_foreach(merges, i, m)
    {
        pb_json_text a, b;
        const char *line = json_string_value(m);
        if (line && !strncmp(line, "#version", 8)) continue;
        PB_TRY(sides(m, i, &a, &b));
        PB_TRY(add_merge(vocab, t, i, a, b, rank++));
    }
    t->bpe.vocab.merges = rank;
    return PB_OK;
}

/* Sets unk_token. It must be in the vocabulary unless the model is byte-level and has a token for every byte. */
static pb_status load_unknown(json_t *model, json_t *vocab, pb_tokenizer *t)
{
    json_t *unk = json_object_get(model, "unk_token");
    pb_json_text text;
    int missing = t->stages.byte_level ? 0 : 256;
    for (int b = 0; b < 256; b++) missing += t->bpe.byte[b] < 0;
    if (pb_json_absent(unk)) return PB_OK;
    PB_TRY(pb_json_text_of(unk, "model: unk_token", &text));
    json_t *v = find(vocab, text.p, text.n);
    if (v) t->bpe.unk = (int32_t)json_integer_value(v);
    else if (missing) return pb_fail(PB_EINVAL, "model: unk_token \"%.60s\" is not in the vocabulary", text.p);
    return PB_OK;
}

static pb_status load_options(json_t *model, pb_bpe *b)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    json_t *dropout = json_object_get(model, "dropout");
    PB_TRY(pb_json_get_bool(model, "model", "byte_fallback", &b->byte_fallback));
    PB_TRY(pb_json_get_bool(model, "model", "ignore_merges", &b->ignore_merges));
    PB_TRY(pb_json_get_bool(model, "model", "fuse_unk", &b->fuse_unk));
    for (int k = 0; k < 2; k++) {
        json_t *v = json_object_get(model, affixes[k]);
        if (!pb_json_absent(v) && (!json_is_string(v) || json_string_length(v)))
            return pb_fail(PB_EFORMAT, "model: %s is not supported", affixes[k]);
    }
    if (!pb_json_absent(dropout) && !(json_number_value(dropout) == 0.0 && json_is_number(dropout)))
        return pb_fail(PB_EFORMAT, "model: dropout is not supported");
    return PB_OK;
}

pb_status pb_tok_load_model(json_t *o, pb_tokenizer *t, json_t **vocab)
{
    json_t *words = json_object_get(o, "vocab"), *merges = json_object_get(o, "merges");
    const char *type = pb_json_type(o);
    if (!o) return pb_fail(PB_EINVAL, "\"model\" is missing");
    if (*type ? strcmp(type, "BPE") != 0 : !merges) return pb_json_refuse_type(o, "model");
    PB_TRY(pb_json_object(o, "model",
                          KEYS("type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                               "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges")));
    if (!json_is_object(words)) return pb_fail(PB_EINVAL, "model: \"vocab\" is not an object");
    if (!json_is_array(merges)) return pb_fail(PB_EINVAL, "model: \"merges\" is not a list");
    t->bpe.byte_level = t->stages.byte_level;
    PB_TRY(pb_vocab_reserve(&t->bpe.vocab, json_object_size(words), json_array_size(merges)));
    PB_TRY(load_options(o, &t->bpe));
    PB_TRY(load_vocab(words, t));
    PB_TRY(load_merges(merges, words, t));
    *vocab = words;
    return load_unknown(o, words, t);
}

static pb_status read_added(json_t *o, pb_tok_added *flags, pb_json_text *text)
{
    static const char where[] = "added token";
    int64_t id = -1;
    PB_TRY(pb_json_object(o, where, KEYS("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")));
    PB_TRY(pb_json_get_text(o, where, "content", text));
    PB_TRY(id_of(json_object_get(o, "id"), &id));
    PB_TRY(pb_json_get_bool(o, where, "single_word", &flags->single_word));
    PB_TRY(pb_json_get_bool(o, where, "lstrip", &flags->lstrip));
    PB_TRY(pb_json_get_bool(o, where, "rstrip", &flags->rstrip));
    PB_TRY(pb_json_get_bool(o, where, "special", &flags->special));
    flags->normalized = !flags->special;
    PB_TRY(pb_json_get_bool(o, where, "normalized", &flags->normalized));
    if (id < 0 || id > PB_TOK_MAX_ID) return pb_fail(PB_EINVAL, "id %lld: need 0 to %d", (long long)id, PB_TOK_MAX_ID);
    flags->id = (int32_t)id;
    return PB_OK;
}

/* Adds an added token. It may also be a token of the model; then both ids must be equal. */
static pb_status add_added(json_t *o, json_t *vocab, pb_tokenizer *t)
{
    pb_tok_added flags = {0};
    pb_json_text text;
    char byte[1]; /* decoded byte of a token like <0x0A> */
    PB_TRY(read_added(o, &flags, &text));
    if (!text.n) return PB_OK; /* Hugging Face ignores empty tokens too */
    if (text.n > LONGEST_TOKEN)
        return pb_fail(PB_EINVAL, "the token has %zu bytes: need at most %d", text.n, LONGEST_TOKEN);
    const char *form = text.p;
    size_t form_n = text.n;
    json_t *v = find(vocab, text.p, text.n);
    if (v && json_integer_value(v) != flags.id)
        return pb_fail(PB_EINVAL, "the id is %d here, but %lld in the vocabulary", flags.id,
                       (long long)json_integer_value(v));
    if (flags.normalized) PB_TRY(pb_stages_normalize(&t->stages, text.p, text.n, &form, &form_n));
    if (!form_n) return pb_fail(PB_EINVAL, "the normalizer removes the whole text");
    PB_TRY(pb_added_push(&t->added, &flags, text.p, text.n, form, form_n));
    if (t->decoder.kind == PB_DECODE_CHAIN) PB_TRY(decoded(&t->decoder, form, form_n, byte, &form, &form_n));
    const uint32_t mark = PB_TOK_ADDED | (flags.special ? (uint32_t)PB_TOK_SPECIAL : 0);
    return v ? pb_vocab_mark_token(&t->bpe.vocab, flags.id, form, form_n, mark)
             : pb_vocab_add_token(&t->bpe.vocab, flags.id, form, form_n, mark);
}

pb_status pb_tok_load_added(json_t *list, json_t *vocab, pb_tokenizer *t)
{
    json_t *o;
    size_t i;
    if (pb_json_absent(list)) return PB_OK;
    if (!json_is_array(list)) return pb_fail(PB_EINVAL, "\"added_tokens\" is not a list");
    json_array_foreach(list, i, o)
    {
        const char *name = json_string_value(json_object_get(o, "content"));
        PB_TRY(within(add_added(o, vocab, t), "added token", name ? name : "?"));
    }
    return PB_OK;
}

/* Appends the ids of a special token of the template to `side`: the tokens before the text, or those after it. */
static pb_status template_token(json_t *o, json_t *special, pb_tokenizer *t, int32_t *side, size_t *n)
{
    static const char where[] = "post_processor: SpecialToken";
    pb_json_text name;
    PB_TRY(pb_json_object(o, where, KEYS("id", "type_id")));
    PB_TRY(pb_json_get_text(o, where, "id", &name));
    json_t *ids = json_object_get(json_object_get(special, name.p), "ids"), *one;
    size_t i;
    if (!json_is_array(ids)) return pb_fail(PB_EINVAL, "%s \"%.60s\" has no ids", where, name.p);
    json_array_foreach(ids, i, one)
    {
        int64_t id = -1;
        PB_TRY(id_of(one, &id));
        if (id < 0 || (uint64_t)id >= t->bpe.vocab.n || !t->bpe.vocab.token[id].flags)
            return pb_fail(PB_EINVAL, "%s \"%.60s\": no token has id %lld", where, name.p, (long long)id);
        if (*n == PB_TOK_MAX_TEMPLATE)
            return pb_fail(PB_EFORMAT, "%s: more than %d before or after the text", where, PB_TOK_MAX_TEMPLATE);
        side[(*n)++] = (int32_t)id;
    }
    return PB_OK;
}

static pb_status load_template(json_t *o, pb_tokenizer *t)
{
    static const char where[] = "post_processor: TemplateProcessing";
    json_t *single = json_object_get(o, "single"), *special = json_object_get(o, "special_tokens"), *one;
    bool after = false;
    size_t i;
    PB_TRY(pb_json_object(o, where, KEYS("type", "single", "pair", "special_tokens")));
    if (!json_is_array(single)) return pb_fail(PB_EINVAL, "%s: \"single\" is not a list", where);
    if (t->n_before || t->n_after) return pb_fail(PB_EFORMAT, "%s is given twice", where);
    json_array_foreach(single, i, one)
    {
        json_t *token = json_object_get(one, "SpecialToken");
        if (token) {
            PB_TRY(after ? template_token(token, special, t, t->after, &t->n_after)
                         : template_token(token, special, t, t->before, &t->n_before));
            continue;
        }
        const char *id = json_string_value(json_object_get(json_object_get(one, "Sequence"), "id"));
        if (!id || strcmp(id, "A") != 0 || after)
            return pb_fail(PB_EFORMAT, "%s: \"single\" is not one sequence A with special tokens before and after it",
                           where);
        after = true;
    }
    return after ? PB_OK : pb_fail(PB_EINVAL, "%s: \"single\" has no sequence A", where);
}

pb_status pb_tok_load_post_processor(json_t *o, pb_tokenizer *t, int depth)
{
    static const char where[] = "post_processor";
    const char *type = pb_json_type(o);
    json_t *list = json_object_get(o, "processors"), *one;
    size_t i;
    if (pb_json_absent(o)) return PB_OK;
    if (!strcmp(type, "TemplateProcessing")) return load_template(o, t);
    /* As a post-processor, ByteLevel only changes offsets, which this tokenizer computes in another way. */
    if (!strcmp(type, "ByteLevel"))
        return pb_json_object(o, where, KEYS("type", "add_prefix_space", "trim_offsets", "use_regex"));
    if (strcmp(type, "Sequence") != 0 || depth >= MAX_DEPTH) return pb_json_refuse_type(o, where);
    PB_TRY(pb_json_object(o, where, KEYS("type", "processors")));
    json_array_foreach(list, i, one) PB_TRY(pb_tok_load_post_processor(one, t, depth + 1));
    return PB_OK;
}
