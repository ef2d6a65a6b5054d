/* jinja_impl.h - the tokens of a chat template, the state of its rendering, and functions that the jinja_*.c files
 * share. */
#ifndef PB_JINJA_IMPL_H
#define PB_JINJA_IMPL_H
#include "trainer/data/jinja.h"
#include "trainer/tokenizer/room.h"

typedef enum pb_jinja_kind {
    PB_JINJA_END,       /* end of the template */
    PB_JINJA_RAW,       /* text outside of tags */
    PB_JINJA_STATEMENT, /* {% */
    PB_JINJA_OUTPUT,    /* {{ */
    PB_JINJA_CLOSE,     /* %} or }} */
    PB_JINJA_NAME,
    PB_JINJA_TEXT, /* a string literal */
    PB_JINJA_INT,
    PB_JINJA_SIGN /* an operator or bracket of one character, or two characters packed by PB_JINJA_TWO */
} pb_jinja_kind;
#define PB_JINJA_TWO(a, b) ((a) << 8 | (b))
/* A key that marks an object as a namespace. It is not a valid name in a template. */
#define PB_JINJA_NAMESPACE "namespace()"

typedef struct pb_jinja_token {
    pb_jinja_kind kind;
    size_t at, n; /* text of a RAW, NAME or TEXT token: texts.p[at..at+n), NUL-terminated */
    int value;    /* INT token: the number; SIGN token: its character or PB_JINJA_TWO */
} pb_jinja_token;

typedef struct pb_jinja_tokens {
    pb_jinja_token *token; /* [n], the last one is END */
    size_t n, room;
    pb_bytes texts;
} pb_jinja_tokens;
pb_status pb_jinja_lex(const char *text, size_t n, pb_jinja_tokens *out);
void pb_jinja_tokens_free(pb_jinja_tokens *t);

enum { PB_JINJA_SCOPES = 16, PB_JINJA_DEPTH = 64, PB_JINJA_STEPS = 200000, PB_JINJA_BYTES = 1 << 24 };

/* State of a rendering. Values of expressions are JSON values; NULL is Jinja's undefined. The array `made` owns every
 * value that the rendering creates, until the rendering ends. So expressions pass values as borrowed references. */
typedef struct pb_jinja {
    pb_jinja_tokens tokens;
    size_t at;           /* index of the next token */
    size_t steps, bytes; /* tokens read so far, and bytes of text created so far */
    int skipping;        /* above 0: code is parsed but not executed (a branch not taken) */
    int depth;           /* current nesting depth of expressions and blocks */
    json_t *made, *context;
    json_t *scope[PB_JINJA_SCOPES]; /* [scopes], innermost last */
    int scopes;
    pb_bytes *out;
} pb_jinja;

static inline const pb_jinja_token *pb_jinja_peek(const pb_jinja *j) { return &j->tokens.token[j->at]; }
/* The text of a RAW, NAME or TEXT token; other kinds have none. */
static inline const char *pb_jinja_text(const pb_jinja *j, const pb_jinja_token *t)
{
    return j->tokens.texts.p + t->at;
}
/* Returns the next token and advances. EFORMAT: the template exceeded PB_JINJA_STEPS. */
pb_status pb_jinja_next(pb_jinja *j, const pb_jinja_token **out);
bool pb_jinja_is_name(const pb_jinja *j, const char *name); /* true if the next token is this name */
bool pb_jinja_is_sign(const pb_jinja *j, int sign);
/* Consumes the next token if it is the given one; pb_jinja_need_sign fails with EFORMAT otherwise. */
pb_status pb_jinja_take_name(pb_jinja *j, const char *name, bool *taken);
pb_status pb_jinja_take_sign(pb_jinja *j, int sign, bool *taken);
pb_status pb_jinja_need_sign(pb_jinja *j, int sign);
pb_status pb_jinja_refuse(const char *what, const char *name);
/* Takes ownership of a new value; it stays alive until the rendering ends. ENOMEM: `value` is NULL. */
pb_status pb_jinja_make(pb_jinja *j, json_t *value, json_t **out);
pb_status pb_jinja_string(pb_jinja *j, const char *s, size_t n, json_t **out);

bool pb_jinja_true(json_t *v);
/* Appends a value as Jinja prints it. */
pb_status pb_jinja_print(json_t *v, pb_bytes *out);
/* Parses and evaluates an expression. `ternary` false: stops before an `if`, as in the head of a for loop. *out is NULL
 * in code that is not executed (skipping > 0). */
pb_status pb_jinja_expression(pb_jinja *j, bool ternary, json_t **out);
/* The method x.name(a, ...), the filter x | name(a, ...) and the test x is name, in jinja_calls.c. n: number of
 * arguments a. EFORMAT: not supported. */
pb_status pb_jinja_method(pb_jinja *j, json_t *x, const char *name, json_t **a, size_t n, json_t **out);
pb_status pb_jinja_filter(pb_jinja *j, json_t *x, const char *name, json_t **a, size_t n, json_t **out);
pb_status pb_jinja_test(json_t *x, const char *name, bool *out);
#endif
