/* tokenizer.h - text to token ids and back: byte-level BPE as tokenizer.json describes it, or plain bytes.
 *
 * The file is that of Hugging Face tokenizers, and the ids are those that library gives, id by id. Model BPE (Sennrich
 * et al. 2016; on bytes, Radford et al. 2019): merges in both notations, byte_fallback, ignore_merges, unk_token,
 * fuse_unk. Added tokens with lstrip, rstrip, single_word, normalized, special. Normalisers NFC, Prepend, Replace,
 * Sequence. Pre-tokenisers ByteLevel, Split, Digits, Sequence (ByteLevel last). Post-processors ByteLevel,
 * TemplateProcessing, Sequence. Decoders ByteLevel, or Replace, ByteFallback, Fuse, Strip in this order, or none. What
 * else a file holds is refused by name.
 *
 * Characters have the properties that the installed PCRE2 and utf8proc know (Debian 12: Unicode 14 and 15). Those that
 * Unicode added later may be cut elsewhere than by a library with newer tables.
 *
 * Text is bytes. What is not UTF-8 is kept: the valid stretches on both sides are encoded as texts of their own, and a
 * run of bytes between them is one word; decoding gives the same bytes. A tokenizer that is not byte-level, or whose
 * vocabulary lacks such a byte, refuses the text. So does one whose vocabulary lacks a character and that has neither
 * an unk_token nor byte_fallback for it (the library leaves that character out without a word). Decoding writes bytes
 * as they are: a cut character is not replaced.
 *
 * A tokenizer holds scratch memory and a cache of words, so one thread at a time may use it; ids never depend on what
 * was encoded before. Encoding takes time n log n in the longest word and linear in the text, whatever the text, as
 * long as the file's patterns do not backtrack (those of GPT-2, Llama-3 and Qwen do not). */
#ifndef PB_TOKENIZER_H
#define PB_TOKENIZER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"

typedef struct pb_tokenizer pb_tokenizer;

/* Growing arrays of the caller's: start with {0}, end with pb_ids_free or pb_bytes_free. Calls append; a call that
 * fails leaves n as it was. */
typedef struct pb_ids {
    int32_t *id; /* [n] */
    size_t n, room;
} pb_ids;
typedef struct pb_bytes {
    char *p; /* [n], no final NUL */
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
    PB_TOK_PLAIN = 1,       /* encode: the text of a special token is text like any other */
    PB_TOK_TEMPLATE = 2,    /* encode: with what the file's template puts around a text (a token for its beginning) */
    PB_TOK_SKIP_SPECIAL = 4 /* decode: special tokens are left out */
};

/* `path`: a tokenizer.json, a folder that holds one, or NULL for the byte tokenizer of trainer/data.h: ids 0..255 are
 * the bytes, then the specials "<im_start>" and "<im_end>". EIO: cannot be read or is not JSON (path:line); EINVAL: not
 * a tokenizer; EFORMAT: asks for what is not listed above. One line names what and where. */
pb_status pb_tokenizer_open(const char *path, pb_tokenizer **out);
/* The same from n bytes in memory; `name` stands for the path in messages. */
pb_status pb_tokenizer_parse(const char *name, const char *json, size_t n, pb_tokenizer **out);
void pb_tokenizer_close(pb_tokenizer *t); /* NULL is fine */

/* n < 2^31. EINVAL: the tokenizer has no token for a part of the text (above), a pattern backtracks without end, the
 * normalizer makes more than 16 bytes for each of the text and 64, or a word is longer than 2^30 bytes. */
pb_status pb_tokenizer_encode(pb_tokenizer *t, const char *text, size_t n, unsigned flags, pb_ids *out);
/* The same, and which bytes of the text each token stands for: where[i] belongs to the i-th id that this call appends.
 * Ranges are in order. A token that the text does not hold (of the file's template) has an empty range. Where NFC
 * changed a character, a token's range is that of the whole stretch from one ASCII character to the next. EFORMAT:
 * the file has a normaliser beside NFC, or a blank put before words: its tokens are not bytes of the text. */
pb_status pb_tokenizer_encode_ranges(pb_tokenizer *t, const char *text, size_t n, unsigned flags, pb_ids *out,
                                     pb_ranges *where);
/* EINVAL: an id that is no token. */
pb_status pb_tokenizer_decode(const pb_tokenizer *t, const int32_t *ids, size_t n, unsigned flags, pb_bytes *out);
/* The id of an added token by its exact text, special or not. EINVAL: there is none. */
pb_status pb_tokenizer_special(const pb_tokenizer *t, const char *text, int32_t *id);
bool pb_tokenizer_is_special(const pb_tokenizer *t, int32_t id); /* false for what is no token */
/* The largest id plus one: the rows an embedding needs (a model may have more). */
size_t pb_tokenizer_vocab(const pb_tokenizer *t);
#endif
