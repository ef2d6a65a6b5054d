/* tokenizer_impl.h - what a tokenizer is made of, for the files that load and run it. */
#ifndef PB_TOKENIZER_IMPL_H
#define PB_TOKENIZER_IMPL_H
#include "trainer/tokenizer/added.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/json.h"
#include "trainer/tokenizer/stages.h"

enum { PB_TOK_MAX_TEMPLATE = 16 };

typedef enum pb_tok_decoding {
    PB_DECODE_BLANKS,    /* no decoder: tokens as they stand in the file, a blank between two */
    PB_DECODE_BYTELEVEL, /* the bytes that the alphabet stands for */
    PB_DECODE_CHAIN      /* replacements, <0x..> to bytes, then blanks or the like stripped from both ends */
} pb_tok_decoding;

typedef struct pb_tok_decoder {
    pb_tok_decoding kind;
    pb_stages replace; /* its normalisers are the Replace steps */
    bool byte_fallback, fused;
    char strip[4]; /* one character, strip_n bytes */
    size_t strip_n, strip_start, strip_stop;
} pb_tok_decoder;

struct pb_tokenizer {
    pb_bpe bpe;
    pb_stages stages;
    pb_added added;
    pb_tok_decoder decoder;
    int32_t before[PB_TOK_MAX_TEMPLATE], after[PB_TOK_MAX_TEMPLATE]; /* the template around a text */
    size_t n_before, n_after;
};

/* The parts of a file; NULL or null: the part is absent. Messages begin with the part's name. */
pb_status pb_tok_load_normalizer(json_t *o, pb_stages *g, int depth);
pb_status pb_tok_load_pre_tokenizer(json_t *o, pb_stages *g, int depth);
pb_status pb_tok_load_decoder(json_t *o, pb_tok_decoder *d, int depth);
/* Needs stages and decoder. `vocab` stays the file's table from text to id. */
pb_status pb_tok_load_model(json_t *o, pb_tokenizer *t, json_t **vocab);
pb_status pb_tok_load_added(json_t *list, json_t *vocab, pb_tokenizer *t);
pb_status pb_tok_load_post_processor(json_t *o, pb_tokenizer *t, int depth); /* needs the added tokens */
#endif
