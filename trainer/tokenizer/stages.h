/* stages.h - splits a text into words: normalisers change the text, then pre-tokenisers cut it, one after the other. */
#ifndef PB_TOK_STAGES_H
#define PB_TOK_STAGES_H
#include "trainer/tokenizer/pattern.h"
#include "trainer/tokenizer/unicode.h"

enum { PB_TOK_MAX_STAGES = 16 };
/* Maximum length of a normal form: 16 bytes per byte of the text, plus 64. Real normalisers produce at most three bytes
 * per byte. A malicious file could reach any length, because each Replace multiplies the output of the previous one. */
enum { PB_TOK_FORM_TIMES = 16, PB_TOK_FORM_PLUS = 64 };

typedef enum pb_tok_normalizer { PB_NORM_NFC, PB_NORM_PREPEND, PB_NORM_REPLACE } pb_tok_normalizer;
typedef struct pb_tok_norm {
    pb_tok_normalizer kind;
    pb_bytes text; /* the text to prepend, or the replacement */
    pb_tok_pattern pattern;
} pb_tok_norm;

/* Says how the matches of a pattern and the text between them become pieces. The names are those of tokenizer.json. */
typedef enum pb_tok_behavior {
    PB_CUT_REMOVED,
    PB_CUT_ISOLATED,
    PB_CUT_MERGED_WITH_PREVIOUS,
    PB_CUT_MERGED_WITH_NEXT,
    PB_CUT_CONTIGUOUS
} pb_tok_behavior;
typedef struct pb_tok_cut {
    bool invert; /* true: swaps the roles of matches and of the text between them */
    pb_tok_behavior behavior;
    pb_tok_pattern pattern;
} pb_tok_cut;

typedef struct pb_stages {
    pb_tok_norm norm[PB_TOK_MAX_STAGES];
    pb_tok_cut cut[PB_TOK_MAX_STAGES];
    int norms, cuts;
    /* true: a piece without a leading space gets one before cut[prefix_at], or before it is passed to `emit` if
     * prefix_at is the number of cuts. */
    bool prefix;
    int prefix_at;
    bool byte_level; /* true: token texts in the file encode bytes in the alphabet of pb_tok_byte_to_char */
    /* scratch memory */
    pb_bytes text[2], prefixed;
    pb_tok_points points;
} pb_stages;

void pb_stages_free(pb_stages *g);
/* Normalises s. *out is s itself, or scratch memory that the next call overwrites. EINVAL: the result exceeds the
 * maximum length. */
pb_status pb_stages_normalize(pb_stages *g, const char *s, size_t n, const char **out, size_t *out_n);

typedef pb_status (*pb_tok_emit)(void *self, const char *word, size_t n);
/* Cuts s, which must be valid UTF-8, into words, and passes each to `emit` in order. No word is empty. */
pb_status pb_stages_cut(pb_stages *g, const char *s, size_t n, pb_tok_emit emit, void *self);
#endif
