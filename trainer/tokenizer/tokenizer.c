/* tokenizer.c - opens a tokenizer, encodes text to token ids, and decodes ids to text. */
#include "trainer/tokenizer/tokenizer_impl.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "os/file.h"
#include "os/text.h"
#include "trainer/tokenizer/ranges.h"

/* Maximum bytes of a tokenizer.json (the largest known files have about 30 MB), and of a text to encode. */
enum { LARGEST_FILE = 1 << 28, LONGEST_TEXT = INT32_MAX };

pb_status pb_ids_append(pb_ids *a, int32_t id)
{
    PB_TOK_ROOM(a->id, a->room, a->n + 1);
    a->id[a->n++] = id;
    return PB_OK;
}

void pb_ids_free(pb_ids *a)
{
    free(a->id);
    *a = (pb_ids){0};
}

void pb_ranges_free(pb_ranges *a)
{
    free(a->at);
    *a = (pb_ranges){0};
}

void pb_bytes_free(pb_bytes *a)
{
    free(a->p);
    *a = (pb_bytes){0};
}

void pb_tokenizer_close(pb_tokenizer *t)
{
    if (!t) return;
    pb_bpe_free(&t->bpe);
    pb_stages_free(&t->stages);
    pb_added_free(&t->added);
    pb_stages_free(&t->decoder.replace);
    free(t);
}

/* Makes the byte tokenizer: ids 0..255 are the bytes; it has no BPE merges and does not split the text into words. */
static pb_status fill_bytes(pb_tokenizer *t)
{
    static const struct {
        const char *text;
        int32_t id;
    } specials[] = {{"<im_start>", PB_TOKEN_START}, {"<im_end>", PB_TOKEN_END}};
    PB_TRY(pb_vocab_reserve(&t->bpe.vocab, 256, 0));
    for (int b = 0; b < 256; b++) {
        const char byte = (char)b;
        PB_TRY(pb_vocab_add_token(&t->bpe.vocab, b, &byte, 1, 0));
        t->bpe.byte[b] = b;
    }
    for (int k = 0; k < 2; k++) {
        const pb_tok_added flags = {.id = specials[k].id, .special = true};
        const size_t n = strlen(specials[k].text);
        PB_TRY(pb_added_push(&t->added, &flags, specials[k].text, n, specials[k].text, n));
        PB_TRY(pb_vocab_add_token(&t->bpe.vocab, flags.id, specials[k].text, n, PB_TOK_ADDED | PB_TOK_SPECIAL));
    }
    t->bpe.byte_level = t->stages.byte_level = true;
    t->decoder.kind = PB_DECODE_BYTELEVEL;
    return PB_OK;
}

static pb_status fill(pb_tokenizer *t, json_t *root)
{
    static const char *const keys[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                       "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    json_t *vocab = NULL, *version = json_object_get(root, "version");
    PB_TRY(pb_json_object(root, "tokenizer", keys));
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return pb_fail(PB_EFORMAT, "\"version\" is not \"1.0\"");
    for (int k = 1; k <= 2; k++)
        if (!pb_json_absent(json_object_get(root, keys[k])))
            return pb_fail(PB_EFORMAT, "\"%s\" is not supported", keys[k]);
    PB_TRY(pb_tok_load_normalizer(json_object_get(root, "normalizer"), &t->stages, 0));
    PB_TRY(pb_tok_load_pre_tokenizer(json_object_get(root, "pre_tokenizer"), &t->stages, 0));
    PB_TRY(pb_tok_load_decoder(json_object_get(root, "decoder"), &t->decoder, 0));
    PB_TRY(pb_tok_load_model(json_object_get(root, "model"), t, &vocab));
    PB_TRY(pb_tok_load_added(json_object_get(root, "added_tokens"), vocab, t));
    return pb_tok_load_post_processor(json_object_get(root, "post_processor"), t, 0);
}

/* Prefixes the message of a failure with the file's name, and replaces control characters from the file. */
static pb_status blame(pb_status s, const char *name)
{
    char text[400];
    snprintf(text, sizeof text, "%s", pb_error());
    pb_make_printable(text, '?');
    return pb_fail(s, "%s: %s", name, text);
}

static pb_status make(json_t *root, pb_tokenizer **out)
{
    pb_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return pb_fail(PB_ENOMEM, "no memory for a tokenizer");
    pb_status s = pb_bpe_init(&t->bpe);
    if (s == PB_OK) s = root ? fill(t, root) : fill_bytes(t);
    if (s == PB_OK) *out = t;
    else pb_tokenizer_close(t);
    return s;
}

pb_status pb_tokenizer_parse(const char *name, const char *json, size_t n, pb_tokenizer **out)
{
    json_error_t e;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    pb_status s = root ? make(root, out) : pb_fail(PB_EINVAL, "line %d: %s", e.line, e.text);
    json_decref(root);
    return s == PB_OK ? s : blame(s, name);
}

static pb_status read_file(const char *path, pb_bytes *out)
{
    FILE *f;
    PB_TRY(pb_file_read(path, &f));
    pb_status s = PB_OK;
    size_t got = 1;
    while (s == PB_OK && got && out->n <= LARGEST_FILE) {
        char *more = out->room - out->n ? out->p : pb_tok_grow(out->p, &out->room, out->n + 65536, 1);
        if (!more) s = pb_fail(PB_ENOMEM, "%s: no memory to read %zu bytes", path, out->n);
        else out->p = more;
        got = more ? fread(out->p + out->n, 1, out->room - out->n, f) : 0;
        out->n += got;
    }
    if (s == PB_OK && ferror(f)) s = pb_fail_errno(errno, "%s", path);
    if (s == PB_OK && out->n > LARGEST_FILE) s = pb_fail(PB_EINVAL, "%s is larger than %d bytes", path, LARGEST_FILE);
    fclose(f);
    return s;
}

pb_status pb_tokenizer_open(const char *path, pb_tokenizer **out)
{
    struct stat st;
    char name[4096];
    pb_bytes json = {0};
    if (!path) return make(NULL, out);
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const int n = snprintf(name, sizeof name, "%s%s", path, folder ? "/tokenizer.json" : "");
    if (n < 0 || (size_t)n >= sizeof name) return pb_fail(PB_EINVAL, "a path has %d bytes and is too long", n);
    pb_status s = read_file(name, &json);
    if (s == PB_OK) s = pb_tokenizer_parse(name, json.p, json.n, out);
    pb_bytes_free(&json);
    return s;
}

typedef struct job { /* state of one call of pb_tokenizer_encode_ranges */
    pb_tokenizer *t;
    bool plain;
    pb_ids *out;
    pb_ranges *where;       /* NULL: ranges are not wanted */
    const char *text, *raw; /* text: the whole text; raw: the part of it that is being encoded */
    const char *form;       /* normal form of `raw`; words point into it */
    pb_tok_align align;
} job;

static pb_status emit_part(job *j, const char *word, size_t n)
{
    const size_t from = j->out->n;
    PB_TRY(pb_bpe_encode(&j->t->bpe, word, n, j->out));
    if (!j->where || j->out->n == from) return PB_OK;
    return pb_tok_locate(&j->align, &j->t->bpe.vocab, j->out->id + from, j->out->n - from, (size_t)(j->raw - j->text),
                         (size_t)(word - j->form), n, j->where);
}

/* Encodes a word. A byte-level vocabulary without merges maps each byte to a token, so the word may be split anywhere;
 * splitting bounds the scratch memory. */
static pb_status emit(void *self, const char *word, size_t n)
{
    enum { CHUNK = 1 << 16 };
    job *j = self;
    const pb_bpe *b = &j->t->bpe;
    for (; !b->vocab.merges && b->byte_level && n > CHUNK; word += CHUNK, n -= CHUNK) PB_TRY(emit_part(j, word, CHUNK));
    return emit_part(j, word, n);
}

/* Appends an added token, whose text is bytes [a,b) of the normal form. */
static pb_status push_added(job *j, int32_t token, size_t a, size_t b)
{
    PB_TRY(pb_ids_append(j->out, j->t->added.token[token].id));
    return j->where ? pb_tok_push_mapped(&j->align, (size_t)(j->raw - j->text), a, b, j->where) : PB_OK;
}

/* Sets the part of the text that is encoded next, s[n], and its normal form, which is then cut into words. */
static pb_status set_section(job *j, const char *s, size_t n, const char *form, size_t form_n)
{
    j->raw = s;
    j->form = form;
    j->align.n = 0;
    return j->where && form != s ? pb_tok_align_nfc(&j->align, s, n, form, form_n) : PB_OK;
}

/* Encodes the text between two added tokens that were found before normalisation: normalises it, finds the added tokens
 * that are searched for after normalisation, and cuts the rest into words. */
static pb_status encode_section(job *j, const char *s, size_t n)
{
    const pb_added *added = &j->t->added;
    pb_tok_scan scan = {.trie = &added->normalized, .plain = j->plain};
    int32_t token = 0;
    PB_TRY(pb_stages_normalize(&j->t->stages, s, n, &scan.s, &scan.n));
    PB_TRY(set_section(j, s, n, scan.s, scan.n));
    while (token >= 0) {
        size_t a, b;
        PB_TRY(pb_added_next(added, &scan, &a, &b, &token));
        PB_TRY(pb_stages_cut(&j->t->stages, scan.s + a, b - a, emit, j));
        if (token >= 0) PB_TRY(push_added(j, token, b, scan.done));
    }
    return PB_OK;
}

static pb_status encode_valid(job *j, const char *s, size_t n)
{
    const pb_added *added = &j->t->added;
    pb_tok_scan scan = {.s = s, .n = n, .trie = &added->raw, .plain = j->plain};
    int32_t token = 0;
    while (token >= 0) {
        size_t a, b;
        PB_TRY(pb_added_next(added, &scan, &a, &b, &token));
        if (a < b) PB_TRY(encode_section(j, s + a, b - a));
        PB_TRY(set_section(j, s, n, s, n));
        if (token >= 0) PB_TRY(push_added(j, token, b, scan.done));
    }
    return PB_OK;
}

/* Checks that invalid UTF-8 bytes s[from..to) are in the vocabulary. unk_token is not used for them, because decoding
 * would not give them back. */
static pb_status check_bytes(const pb_tokenizer *t, const char *s, size_t from, size_t to)
{
    if (!t->stages.byte_level) return pb_fail(PB_EINVAL, "tokenizer: byte %zu is not UTF-8", from);
    for (size_t i = from; i < to; i++)
        if (t->bpe.byte[(unsigned char)s[i]] < 0)
            return pb_fail(PB_EINVAL, "tokenizer: byte %zu is not UTF-8, and 0x%02X is not in the vocabulary", i,
                           (unsigned char)s[i]);
    return PB_OK;
}

static pb_status encode(job *j, const char *s, size_t n)
{
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t cp;
        len = pb_tok_valid(s + i, n - i);
        if (len) PB_TRY(encode_valid(j, s + i, len));
        i += len;
        for (len = 0; i + len < n && !pb_tok_char(s + i + len, n - i - len, &cp);) len++;
        if (len) PB_TRY(check_bytes(j->t, s, i, i + len));
        PB_TRY(set_section(j, s, n, s, n));
        if (len) PB_TRY(emit(j, s + i, len));
    }
    return PB_OK;
}

/* Appends tokens that the post-processor adds before or after the text. Each gets the empty range [at,at). */
static pb_status push_around(job *j, const int32_t *ids, size_t n, size_t at)
{
    for (size_t i = 0; i < n; i++) {
        PB_TRY(pb_ids_append(j->out, ids[i]));
        if (j->where) PB_TRY(pb_tok_push_range(j->where, at, at));
    }
    return PB_OK;
}

static pb_status encode_all(job *j, size_t n, unsigned flags)
{
    const pb_tokenizer *t = j->t;
    const bool around = flags & PB_TOK_TEMPLATE;
    if (n > LONGEST_TEXT) return pb_fail(PB_EINVAL, "tokenizer: a text has %zu bytes: need less than 2^31", n);
    if (around) PB_TRY(push_around(j, t->before, t->n_before, 0));
    PB_TRY(encode(j, j->text, n));
    return around ? push_around(j, t->after, t->n_after, n) : PB_OK;
}

pb_status pb_tokenizer_encode(pb_tokenizer *t, const char *text, size_t n, unsigned flags, pb_ids *out)
{
    return pb_tokenizer_encode_ranges(t, text, n, flags, out, NULL);
}

static pb_status check_ranges(const pb_stages *g)
{
    for (int i = 0; i < g->norms; i++)
        if (g->norm[i].kind != PB_NORM_NFC)
            return pb_fail(PB_EFORMAT, "tokenizer: with a normalizer other than NFC, the positions of tokens in the "
                                       "text cannot be determined");
    if (g->prefix)
        return pb_fail(
            PB_EFORMAT,
            "tokenizer: with spaces added before words, the positions of tokens in the text cannot be determined");
    return PB_OK;
}

pb_status pb_tokenizer_encode_ranges(pb_tokenizer *t, const char *text, size_t n, unsigned flags, pb_ids *out,
                                     pb_ranges *where)
{
    job j = {.t = t, .plain = flags & PB_TOK_PLAIN, .out = out, .where = where, .text = text};
    const size_t from = out->n, ranges = where ? where->n : 0;
    pb_status s = where ? check_ranges(&t->stages) : PB_OK;
    if (s == PB_OK) s = encode_all(&j, n, flags);
    free(j.align.piece);
    if (s == PB_OK) return PB_OK;
    out->n = from;
    if (where) where->n = ranges;
    return s;
}

static bool at_strip(const pb_tok_decoder *d, const pb_bytes *b, size_t at)
{
    return at + d->strip_n <= b->n && !memcmp(b->p + at, d->strip, d->strip_n);
}

/* Removes up to strip_start characters from the beginning and strip_stop from the end of the text after `from`. */
static void strip(const pb_tok_decoder *d, pb_bytes *out, size_t from)
{
    size_t a = from;
    if (!d->strip_n) return;
    for (size_t i = 0; i < d->strip_start && at_strip(d, out, a); i++) a += d->strip_n;
    for (size_t i = 0; i < d->strip_stop && out->n >= a + d->strip_n && at_strip(d, out, out->n - d->strip_n); i++)
        out->n -= d->strip_n;
    if (a > from) memmove(out->p + from, out->p + a, out->n - a);
    out->n -= a - from;
}

pb_status pb_tokenizer_decode(const pb_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, pb_bytes *out)
{
    const pb_vocab *v = &t->bpe.vocab;
    const size_t from = out->n;
    pb_status s = PB_OK;
    bool first = true;
    for (size_t i = 0; i < n && s == PB_OK; i++) {
        const pb_tok_token *k = ids[i] >= 0 && (size_t)ids[i] < v->n ? &v->token[ids[i]] : NULL;
        if (!k || !k->flags) {
            s = pb_fail(PB_EINVAL, "tokenizer: no token has id %d (at index %zu)", ids[i], i);
            break;
        }
        if (flags & PB_TOK_SKIP_SPECIAL && k->flags & PB_TOK_SPECIAL) continue;
        if (t->decoder.kind == PB_DECODE_BLANKS && !first) s = pb_tok_append(out, " ", 1);
        if (s == PB_OK) s = pb_tok_append(out, v->text.p + k->at, k->n);
        first = false;
    }
    if (s == PB_OK) strip(&t->decoder, out, from);
    else out->n = from;
    return s;
}

pb_status pb_tokenizer_special(const pb_tokenizer *t, const char *text, int32_t *id)
{
    const pb_added *a = &t->added;
    for (size_t i = 0; i < a->n; i++) {
        if (a->token[i].n != strlen(text) || memcmp(a->texts.p + a->token[i].at, text, a->token[i].n) != 0) continue;
        *id = a->token[i].id;
        return PB_OK;
    }
    return pb_fail(PB_EINVAL, "tokenizer: \"%.60s\" is not an added token", text);
}

bool pb_tokenizer_is_special(const pb_tokenizer *t, int32_t id)
{
    const pb_vocab *v = &t->bpe.vocab;
    return id >= 0 && (size_t)id < v->n && v->token[id].flags & PB_TOK_SPECIAL;
}

size_t pb_tokenizer_vocab(const pb_tokenizer *t) { return t->bpe.vocab.n; }
