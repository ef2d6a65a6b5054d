/* sample.c - greedy choice and top-p sampling. */
#include "trainer/generate/sample.h"

#include <math.h>
#include <stdlib.h>

pb_status pb_sampling_check(const pb_sampling *s)
{
    if (!(s->temperature >= 0 && isfinite(s->temperature)))
        return pb_fail(PB_EINVAL, "temperature %g: need a finite number of at least 0", s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return pb_fail(PB_EINVAL, "top-p %g: need a number above 0 and at most 1", s->top_p);
    return PB_OK;
}

/* Sets *id to the token with the largest logit. */
static pb_status largest(const float *z, int V, int32_t *id)
{
    int best = 0;
    for (int i = 0; i < V; i++) {
        if (isnan(z[i]) || z[i] == INFINITY)
            return pb_fail(PB_EWRONG, "the logit of token %d is %g: the model's weights or its arithmetic overflowed",
                           i, (double)z[i]);
        if (z[i] > z[best]) best = i;
    }
    if (z[best] == -INFINITY) return pb_fail(PB_EWRONG, "the logits of all %d tokens are -inf", V);
    *id = best;
    return PB_OK;
}

static int by_probability(const void *a, const void *b)
{
    const pb_choice *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

pb_status pb_sample(const float *logits, int V, const pb_sampling *s, double u, pb_choice *scratch, int32_t *id)
{
    double sum = 0, nucleus = 0, passed = 0;
    int n = 0, i = 0;
    PB_TRY(largest(logits, V, id));
    if (s->temperature == 0) return PB_OK;
    const double top = (double)logits[*id];
    for (int k = 0; k < V; k++) {
        scratch[k] = (pb_choice){exp(((double)logits[k] - top) / s->temperature), k};
        sum += scratch[k].p;
    }
    qsort(scratch, (size_t)V, sizeof *scratch, by_probability);
    while (n < V && (n == 0 || nucleus < s->top_p * sum)) nucleus += scratch[n++].p;
    /* Because of rounding, the running sum may stay below the threshold: the last candidate then ends the search. */
    while (i + 1 < n && scratch[i + 1].p > 0 && (passed += scratch[i].p) <= u * nucleus) i++;
    *id = scratch[i].id;
    return PB_OK;
}
