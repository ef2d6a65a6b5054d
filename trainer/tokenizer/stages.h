/* stages.h - what stands between a text and its words: normalisers, and pre-tokenisers as a chain of cuts. */
#ifndef PB_TOK_STAGES_H
#define PB_TOK_STAGES_H
#include "trainer/tokenizer/pattern.h"
#include "trainer/tokenizer/unicode.h"

enum { PB_TOK_MAX_STAGES = 16 };
/* How long a normal form may be: 16 bytes for each of the text, and 64. The library's own normalisers need three for
 * each; a file could ask for any number, because every Replace multiplies what the one before it made. */
enum { PB_TOK_FORM_TIMES = 16, PB_TOK_FORM_PLUS = 64 };

typedef enum pb_tok_normalizer { PB_NORM_NFC, PB_NORM_PREPEND, PB_NORM_REPLACE } pb_tok_normalizer;
typedef struct pb_tok_norm {
    pb_tok_normalizer kind;
    pb_bytes text; /* prepended, or put in the place of a match */
    pb_tok_pattern pattern;
} pb_tok_norm;

/* What becomes of a match and of the text between matches. */
typedef enum pb_tok_behavior {
    PB_CUT_REMOVED,
    PB_CUT_ISOLATED,
    PB_CUT_MERGED_WITH_PREVIOUS,
    PB_CUT_MERGED_WITH_NEXT,
    PB_CUT_CONTIGUOUS
} pb_tok_behavior;
typedef struct pb_tok_cut {
    bool invert; /* matches and the text between them change places */
    pb_tok_behavior behavior;
    pb_tok_pattern pattern;
} pb_tok_cut;

typedef struct pb_stages {
    pb_tok_norm norm[PB_TOK_MAX_STAGES];
    pb_tok_cut cut[PB_TOK_MAX_STAGES];
    int norms, cuts;
    bool prefix; /* a blank goes before every piece without one that reaches cut[prefix_at], or the end */
    int prefix_at;
    bool byte_level; /* words are bytes in the alphabet of pb_tok_byte_to_char */
    /* scratch */
    pb_bytes text[2], prefixed;
    pb_tok_points points;
} pb_stages;

void pb_stages_free(pb_stages *g);
/* The normal form of s in *out, which is s itself or scratch that the next call overwrites. EINVAL: longer than above.
 */
pb_status pb_stages_normalize(pb_stages *g, const char *s, size_t n, const char **out, size_t *out_n);

typedef pb_status (*pb_tok_emit)(void *self, const char *word, size_t n);
/* Cuts s, which is valid UTF-8, into words and emits each, none empty, in order. */
pb_status pb_stages_cut(pb_stages *g, const char *s, size_t n, pb_tok_emit emit, void *self);
#endif
