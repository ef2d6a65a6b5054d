/* parity.c - implements parity.h. */
#include "bench/suites/parity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/suites/train_case.h"
#include "kernels/engine/bind.h"
#include "trainer/step/divergence.h"

bool pb_parity_is(const pb_case *c) { return strcmp(c->name, "parity") == 0; }

static bool is_or_absent(const pb_case *c, const char *axis, const char *value)
{
    return !pb_case_get(c, axis) || pb_case_is(c, axis, value);
}

pb_status pb_parity_check(const pb_case *c)
{
    long batch, seq;
    PB_TRY(pb_case_int(c, "batch", &batch));
    PB_TRY(pb_case_int(c, "seq", &seq));
    if (batch * seq > PB_PARITY_TOKENS)
        return pb_fail(PB_EINVAL, "case parity: batch=%ld and seq=%ld are more than %d tokens: its oracle is slow",
                       batch, seq, PB_PARITY_TOKENS);
    if (pb_case_is(c, "mode", "eager") && pb_case_is(c, "clip", "fused") && is_or_absent(c, "loss-chunk", "0") &&
        is_or_absent(c, "recompute", "none") && is_or_absent(c, "accumulate", "1"))
        return PB_OK;
    return pb_fail(PB_EINVAL, "case parity needs mode=eager, clip=fused, and no loss-chunk, recompute or accumulate");
}

/* The reference implementations take about 400 times as long as the default ones: on two CPU cores, 0.4 to 0.8 seconds
 * per token of smollm2-135m. */
double pb_parity_seconds(const pb_case *c, bool device) { return 2 + pb_train_case_seconds(c) * (device ? 2 : 400); }

/* Both trainers, and the figures. */
typedef struct parity {
    pb_ctx *ctx, *cpu; /* of tested, of oracle */
    pb_trainer *tested, *oracle;
    pb_tensor logits[2]; /* of tested, of oracle */
    double tested_loss, mixed_loss, oracle_loss, logits_error;
    double row_error; /* the largest of a row; -1: the model has no such op */
    char row[160];    /* where it is */
} parity;

/* ---- logits, rows of the fused op, losses -------------------------------------------------------------------- */

static pb_status find_logits(void *self, const pb_tensor *x)
{
    if (strcmp(x->name, "logits") == 0) *(pb_tensor *)self = *x;
    return PB_OK;
}

static void see(void *self, const pb_divergence *d)
{
    parity *p = self;
    if (!strstr(d->ops, "addnorm_fwd") || d->row_error <= p->row_error) return;
    p->row_error = d->row_error;
    snprintf(p->row, sizeof p->row, "largest in row %zu of %s", d->worst_row, d->name);
}

static pb_status loss_of(pb_ctx *ctx, pb_trainer *t, double *loss)
{
    PB_TRY(pb_phase_loss(ctx, t));
    return pb_trainer_loss(t, loss);
}

/* Computes all figures. tested, oracle: room for the logits. The layer-by-layer comparison overwrites the activations
 * of the tested trainer, so its logits are copied first. The same comparison runs the oracle's forward pass, which is
 * slow and therefore run only there. The loss phase replaces the logits by their gradient. */
static pb_status compute(parity *p, void *tested, void *oracle)
{
    const pb_tensor *x = &p->logits[0], *y = &p->logits[1];
    const size_t n = x->rows * x->cols, bytes = n * pb_dtype_size(x->dtype);
    PB_TRY(pb_phase_forward(p->ctx, p->tested));
    PB_TRY(pb_download(p->ctx, tested, x->p, bytes));
    PB_TRY(loss_of(p->ctx, p->tested, &p->tested_loss));
    PB_TRY(pb_diverge_forward(p->oracle, p->tested, see, p));
    PB_TRY(pb_download(p->cpu, oracle, y->p, bytes));
    p->logits_error = pb_diff_arrays(oracle, tested, n, x->dtype).rel;
    PB_TRY(loss_of(p->cpu, p->oracle, &p->oracle_loss));
    PB_TRY(pb_upload(p->cpu, (void *)y->p, tested, bytes));
    return loss_of(p->cpu, p->oracle, &p->mixed_loss);
}

static pb_status compare(const pb_case *c, parity *p)
{
    PB_TRY(pb_train_case_open_all(p->ctx, c, &p->tested));
    PB_TRY(pb_train_case_open_all(p->cpu, c, &p->oracle));
    PB_TRY(pb_trainer_tensors(p->tested, find_logits, &p->logits[0]));
    PB_TRY(pb_trainer_tensors(p->oracle, find_logits, &p->logits[1]));
    const size_t bytes = p->logits[0].rows * p->logits[0].cols * pb_dtype_size(p->logits[0].dtype);
    void *tested = malloc(bytes + 1), *oracle = malloc(bytes + 1);
    const pb_status s = tested && oracle ? compute(p, tested, oracle)
                                         : pb_fail(PB_ENOMEM, "no memory for two copies of %zu bytes of logits", bytes);
    free(oracle);
    free(tested);
    return s;
}

/* ---- the case -------------------------------------------------------------------------------------------------- */

static pb_status emit(const parity *p, const pb_case *c, pb_emitter *emitter)
{
    char how[240];
    snprintf(how, sizeof how, "losses: oracle %.6g; oracle's cross-entropy on the tested logits %.6g; tested %.6g",
             p->oracle_loss, p->mixed_loss, p->tested_loss);
    PB_TRY(pb_requirement_emit(emitter, "PARITY-LOSS", c->axes, c->n, fabs(p->mixed_loss - p->oracle_loss), true, how));
    PB_TRY(
        pb_requirement_emit(emitter, "PARITY-FUSED", c->axes, c->n, fabs(p->tested_loss - p->mixed_loss), true, how));
    snprintf(how, sizeof how, "%zu rows of %zu logits", p->logits[0].rows, p->logits[0].cols);
    PB_TRY(pb_requirement_emit(emitter, "PARITY-LOGITS", c->axes, c->n, p->logits_error, true, how));
    const bool has = p->row_error >= 0;
    return pb_requirement_emit(emitter, "PARITY-NORM-ROWS", c->axes, c->n, has ? p->row_error : (double)NAN, has,
                               has ? p->row : "the model has no residual addition and norm in one op");
}

pb_status pb_parity(pb_ctx *ctx, const pb_case *c, pb_emitter *emitter)
{
    pb_ctx cpu;
    parity p = {.ctx = ctx, .cpu = &cpu, .row_error = -1};
    PB_TRY(pb_ctx_open(&cpu, PB_CPU, 0));
    cpu.prefer = ctx->id == PB_CPU ? "ref" : NULL;
    pb_status s = compare(c, &p);
    if (s == PB_OK) s = emit(&p, c, emitter);
    pb_trainer_close(p.oracle);
    pb_trainer_close(p.tested);
    pb_ctx_close(&cpu);
    return s;
}
