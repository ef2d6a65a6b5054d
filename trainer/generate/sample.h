/* sample.h - chooses the next token from the logits of a model.
 *
 *     temperature 0    greedy: the token with the largest logit, of equal ones that with the smallest id
 *     temperature t    a draw from p = softmax(z/t) over the nucleus: the most probable tokens, of which the fewest are
 *                      taken whose probabilities sum to at least top_p. Of equally probable tokens those with smaller ids
 *                      come first. top_p 1: all tokens.
 *
 * Top-p (nucleus) sampling: Holtzman et al. 2020, arXiv:1904.09751, section 3.1. As in transformers, the temperature is
 * applied before the nucleus is found. A draw is a function of its number `u` in [0,1): the token at which the sum of
 * the nucleus' probabilities, from the most probable token on, exceeds u times their sum. */
#ifndef PB_SAMPLE_H
#define PB_SAMPLE_H
#include <stddef.h>
#include <stdint.h>

#include "os/status.h"

typedef struct pb_sampling {
    double temperature; /* finite, at least 0 */
    double top_p;       /* above 0, at most 1 */
} pb_sampling;

typedef struct pb_choice { /* scratch memory of a draw */
    double p;
    int32_t id;
} pb_choice;

/* EINVAL: a value out of range. */
pb_status pb_sampling_check(const pb_sampling *s);
/* Sets *id to the next token. scratch: [V]. EWRONG: a logit is NaN or +inf (-inf: a token that cannot follow), or all
 * are -inf. */
pb_status pb_sample(const float *logits, int V, const pb_sampling *s, double u, pb_choice *scratch, int32_t *id);
#endif
