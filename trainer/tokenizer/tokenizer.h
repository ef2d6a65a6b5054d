/* tokenizer.h - converts text to token ids and back, by the byte-pair encoding of a tokenizer.json, or with one token
 * per byte.
 *
 * The file format is that of Hugging Face tokenizers, and the ids equal those of that library. Supported:
 *
 *   model            BPE (Sennrich et al. 2016; on bytes, Radford et al. 2019): merges in both notations,
 *                    byte_fallback, ignore_merges, unk_token, fuse_unk
 *   added tokens     lstrip, rstrip, single_word, normalized, special
 *   normalisers      NFC, Prepend, Replace, Sequence
 *   pre-tokenisers   ByteLevel, Split, Digits, Sequence (ByteLevel last)
 *   post-processors  ByteLevel, TemplateProcessing, Sequence
 *   decoders         ByteLevel; or Replace, ByteFallback, Fuse, Strip in this order; or none
 *
 * A file with any other feature is rejected; the message names the feature.
 *
 * Properties of characters come from the installed PCRE2 and utf8proc (Debian 12: Unicode 14 and 15). unicode.def
 * corrects them to the Unicode versions of Hugging Face tokenizers. Characters of a later Unicode may be cut
 * differently than by a later version of that library.
 *
 * Text is bytes, and need not be UTF-8. Valid parts are encoded as separate texts; each run of invalid bytes between
 * them is encoded as one word, so that decoding gives the same bytes. Such a text is EINVAL if the tokenizer is not
 * byte-level or lacks one of these bytes. A text is also EINVAL if the vocabulary lacks a character that neither
 * unk_token nor byte_fallback covers (Hugging Face's library silently omits such a character). Decoding does not
 * replace incomplete characters.
 *
 * A tokenizer contains scratch memory and a cache of words, so only one thread may use it at a time. Ids do not depend
 * on earlier calls. Encoding takes time linear in the text and n log n in the longest word, if the file's patterns do
 * not backtrack (those of GPT-2, Llama-3 and Qwen do not). */
#ifndef PB_TOKENIZER_H
#define PB_TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"

typedef struct pb_tokenizer pb_tokenizer;

/* Growing arrays, owned by the caller: initialise with {0}, free with pb_ids_free, pb_bytes_free or pb_ranges_free.
 * Functions append to them; on failure n is unchanged. */
typedef struct pb_ids {
    int32_t *id; /* [n] */
    size_t n, room;
} pb_ids;
typedef struct pb_bytes {
    char *p; /* [n], not NUL-terminated */
    size_t n, room;
} pb_bytes;
typedef struct pb_range { /* bytes [a,b) of a text */
    uint32_t a, b;
} pb_range;
typedef struct pb_ranges {
    pb_range *at; /* [n] */
    size_t n, room;
} pb_ranges;
pb_status pb_ids_append(pb_ids *a, int32_t id);
void pb_ids_free(pb_ids *a);
void pb_ranges_free(pb_ranges *a);
void pb_bytes_free(pb_bytes *a);

/* Flags of encoding and decoding. */
enum {
    PB_TOK_PLAIN = 1,       /* encode: the text of a special token is treated as ordinary text */
    PB_TOK_TEMPLATE = 2,    /* encode: adds the tokens of the file's template around the text */
    PB_TOK_SKIP_SPECIAL = 4 /* decode: omits special tokens */
};

/* The byte tokenizer: ids 0..255 are the bytes of the text, followed by the special tokens "<im_start>" and
 * "<im_end>". */
enum { PB_TOKEN_START = 256, PB_TOKEN_END, PB_BYTE_VOCAB };

/* Opens a tokenizer. `path`: a tokenizer.json, a folder that contains one, or NULL for the byte tokenizer. EPATH, EIO:
 * the file cannot be read. EINVAL: it is malformed. EFORMAT: it uses something not listed above. The message is one
 * line and says where. */
pb_status pb_tokenizer_open(const char *path, pb_tokenizer **out);
/* Like pb_tokenizer_open, from n bytes in memory. `name` is used as the path in messages. */
pb_status pb_tokenizer_parse(const char *name, const char *json, size_t n, pb_tokenizer **out);
void pb_tokenizer_close(pb_tokenizer *t); /* NULL is allowed */

/* Appends the ids of text[n], n < 2^31. EINVAL: the tokenizer has no token for a part of the text (see above), a
 * pattern exceeds its match limit, the normal form is too long (stages.h), or a word has more than 2^30 bytes. */
pb_status pb_tokenizer_encode(pb_tokenizer *t, const char *text, size_t n, unsigned flags, pb_ids *out);
/* Like pb_tokenizer_encode, and also appends the byte range of each token: one range per id, in ascending order. A
 * token of the file's template has an empty range. If NFC changed a character, its token's range extends from an ASCII
 * character to the next one. EFORMAT: the file has a normaliser other than NFC, or inserts blanks before words, so that
 * tokens do not correspond to bytes of the text. */
pb_status pb_tokenizer_encode_ranges(pb_tokenizer *t, const char *text, size_t n, unsigned flags, pb_ids *out,
                                     pb_ranges *where);
/* Appends the bytes of n tokens. EINVAL: an id is not a token. */
pb_status pb_tokenizer_decode(const pb_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, pb_bytes *out);
/* Finds an added token, special or not, by its exact text. EINVAL: not found. */
pb_status pb_tokenizer_special(const pb_tokenizer *t, const char *text, int32_t *id);
bool pb_tokenizer_is_special(const pb_tokenizer *t, int32_t id); /* false if id is not a token */
/* The largest id plus one: the minimum number of rows of an embedding. */
size_t pb_tokenizer_vocab(const pb_tokenizer *t);
#endif
