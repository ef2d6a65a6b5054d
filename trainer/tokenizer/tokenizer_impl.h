/* tokenizer_impl.h - the members of a tokenizer, for the files that load and run it. */
#ifndef PB_TOKENIZER_IMPL_H
#define PB_TOKENIZER_IMPL_H
#include "trainer/tokenizer/added.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/json.h"
#include "trainer/tokenizer/stages.h"

enum { PB_TOK_MAX_TEMPLATE = 16 };

typedef enum pb_tok_decoding {
    PB_DECODE_BLANKS,    /* the file has no decoder: token texts are written separated by spaces */
    PB_DECODE_BYTELEVEL, /* ByteLevel: token texts are decoded from the byte alphabet (unicode.h) */
    PB_DECODE_CHAIN      /* those of the steps Replace, ByteFallback, Fuse and Strip that the file lists */
} pb_tok_decoding;

typedef struct pb_tok_decoder {
    pb_tok_decoding kind;
    pb_stages replace; /* contains the Replace steps as normalisers */
    bool byte_fallback, fused;
    char strip[4]; /* one character, strip_n bytes */
    size_t strip_n, strip_start, strip_stop;
} pb_tok_decoder;

struct pb_tokenizer {
    pb_bpe bpe;
    pb_stages stages;
    pb_added added;
    pb_tok_decoder decoder;
    int32_t before[PB_TOK_MAX_TEMPLATE], after[PB_TOK_MAX_TEMPLATE]; /* tokens of the template around a text */
    size_t n_before, n_after;
};

/* Each function loads one part of a file. NULL or JSON null: the part is absent. Messages begin with the part's name.
 * `depth`: nesting of Sequences. */
pb_status pb_tok_load_normalizer(json_t *o, pb_stages *g, int depth);
pb_status pb_tok_load_pre_tokenizer(json_t *o, pb_stages *g, int depth);
pb_status pb_tok_load_decoder(json_t *o, pb_tok_decoder *d, int depth);
/* Loads the vocabulary and the merges. The normalizer, pre_tokenizer and decoder must be loaded before. *vocab is set
 * to the JSON object that maps texts to ids; it is owned by the file's JSON. */
pb_status pb_tok_load_model(json_t *o, pb_tokenizer *t, json_t **vocab);
pb_status pb_tok_load_added(json_t *list, json_t *vocab, pb_tokenizer *t);
pb_status pb_tok_load_post_processor(json_t *o, pb_tokenizer *t, int depth); /* load the added tokens first */
#endif
