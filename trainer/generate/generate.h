/* generate.h - continues a text token by token with a trainer's forward phase and its KV cache.
 *
 * The prompt is one batch; after it each token is a batch of one token, which attends to the cached keys and values of
 * those before it. So a token costs one pass over the weights, and the logits are those of the forward phase over the
 * whole text, up to rounding. Choosing tokens: sample.h. */
#ifndef PB_GENERATE_H
#define PB_GENERATE_H
#include "trainer/generate/sample.h"
#include "trainer/step/trainer.h"

/* Why a text ended. Each entry: X(enumerator, words after "stopped"). */
#define PB_ENDED_MAP(X)                                                                                                \
    X(STOP, "at an end-of-sequence token")                                                                             \
    X(MOST, "at the largest number of tokens")                                                                         \
    X(POSITIONS, "at the last position of the model")                                                                  \
    X(INTERRUPTED, "when interrupted")
typedef enum pb_ended {
#define X(id, words) PB_ENDED_##id,
    PB_ENDED_MAP(X)
#undef X
        PB_NENDED
} pb_ended;
extern const char *const pb_ended_words[PB_NENDED];

typedef struct pb_generation {
    const int32_t *prompt; /* [n] ids */
    int n;                 /* at least 1, at most the trainer's S */
    int most;              /* tokens to generate at most, at least 1 */
    pb_sampling sampling;
    uint64_t seed;       /* of the draws; not read at temperature 0 */
    const int32_t *stop; /* [nstop] ids that end the text; NULL if nstop is 0 */
    int nstop;
    pb_status (*each)(void *self,
                      int32_t id); /* receives each token but the one that ends the text; a failure ends it */
    void *self;
} pb_generation;

typedef struct pb_generated {
    int tokens; /* tokens chosen, including the one that ended the text */
    pb_ended ended;
    double prompt_s, rest_s; /* seconds: until the first token was chosen; for all tokens after it */
} pb_generated;

/* Configures a trainer for generation of texts of at most `positions` tokens, prompt included: a frozen model with a
 * cache, one row, and logits of one token at a time. Keeps c->model but for `frozen`. */
void pb_generate_configure(pb_train_config *c, int positions);
/* Generates a text; the trainer must be configured as above. The trainer's S limits prompt and text together: the last
 * token chosen needs no position of its own. Ends early if the process is interrupted (os/interrupt.h). EINVAL: values
 * out of range; EWRONG: logits that are not finite. */
pb_status pb_generate(pb_ctx *ctx, pb_trainer *t, const pb_generation *g, pb_generated *out);
#endif
