/* generate.c - the loop that feeds tokens to the forward phase and chooses the next one. */
#include "trainer/generate/generate.h"

#include <stdlib.h>

#include "kernels/engine/bind.h"
#include "kernels/engine/clock.h"
#include "os/interrupt.h"

const char *const pb_ended_words[PB_NENDED] = {
#define X(id, words) words,
    PB_ENDED_MAP(X)
#undef X
};

typedef struct room {
    float *logits;      /* [V] */
    pb_choice *scratch; /* [V] */
    int32_t *targets;   /* [n] zeros: the forward phase does not read targets */
    float *mask;        /* [n] zeros */
} room;

void pb_generate_configure(pb_train_config *c, int positions)
{
    c->model.frozen = true;
    c->cached = true;
    c->packed = false;
    c->B = 1;
    c->S = positions;
    c->loss_chunk = 1;
}

static pb_status check(const pb_train_config *c, const pb_generation *g)
{
    if (!c->cached) return pb_fail(PB_EINVAL, "generation needs a trainer with a KV cache");
    if (g->n < 1 || g->n > c->S)
        return pb_fail(PB_EINVAL, "a prompt of %d tokens: need 1 to %d, the positions of the trainer", g->n, c->S);
    if (g->most < 1) return pb_fail(PB_EINVAL, "%d tokens to generate: need at least 1", g->most);
    return pb_sampling_check(&g->sampling);
}

/* Runs the forward phase on n new tokens, with `first` earlier tokens in the cache, and chooses the next token. */
static pb_status step(pb_ctx *ctx, pb_trainer *t, const pb_generation *g, const room *r, const int32_t *ids, int first,
                      int n, int32_t *next)
{
    const int V = pb_trainer_model(t)->g.V;
    const uint64_t number = (uint64_t)(first + n - g->n); /* of the token that is chosen, from 0 */
    PB_TRY(pb_trainer_set_batch(
        t, &(pb_batch){.ids = ids, .targets = r->targets, .mask = r->mask, .S = n, .first = first}));
    PB_TRY(pb_phase_forward(ctx, t));
    PB_TRY(pb_trainer_next_logits(t, r->logits));
    return pb_sample(r->logits, V, &g->sampling, pb_uniform(g->seed, number), r->scratch, next);
}

static bool stops(const pb_generation *g, int32_t id)
{
    for (int i = 0; i < g->nstop; i++)
        if (g->stop[i] == id) return true;
    return false;
}

static pb_status generate(pb_ctx *ctx, pb_trainer *t, const pb_generation *g, const room *r, pb_generated *out)
{
    const int S = pb_trainer_config(t)->S;
    const double start = pb_clock_seconds();
    int32_t id;
    PB_TRY(step(ctx, t, g, r, g->prompt, 0, g->n, &id));
    out->prompt_s = pb_clock_seconds() - start;
    for (out->tokens = 1;; out->tokens++) {
        const int at = g->n + out->tokens - 1; /* position of token `id` */
        out->rest_s = pb_clock_seconds() - start - out->prompt_s;
        out->ended = PB_ENDED_STOP;
        if (stops(g, id)) return PB_OK;
        PB_TRY(g->each(g->self, id));
        out->ended = out->tokens >= g->most ? PB_ENDED_MOST : at >= S ? PB_ENDED_POSITIONS : PB_ENDED_INTERRUPTED;
        if (out->tokens >= g->most || at >= S || pb_interrupted()) return PB_OK;
        PB_TRY(step(ctx, t, g, r, &id, at, 1, &id));
    }
}

pb_status pb_generate(pb_ctx *ctx, pb_trainer *t, const pb_generation *g, pb_generated *out)
{
    const size_t V = (size_t)pb_trainer_model(t)->g.V;
    *out = (pb_generated){0};
    PB_TRY(check(pb_trainer_config(t), g));
    room r = {.logits = malloc(V * sizeof *r.logits),
              .scratch = malloc(V * sizeof *r.scratch),
              .targets = calloc((size_t)g->n, sizeof *r.targets),
              .mask = calloc((size_t)g->n, sizeof *r.mask)};
    const pb_status s = r.logits && r.scratch && r.targets && r.mask
                            ? generate(ctx, t, g, &r, out)
                            : pb_fail(PB_ENOMEM, "no memory for the logits of %zu tokens", V);
    free(r.logits);
    free(r.scratch);
    free(r.targets);
    free(r.mask);
    return s;
}
