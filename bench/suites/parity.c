/* parity.c - implements parity.h. */
#include "bench/suites/parity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/derived.h"
#include "bench/suites/train_case.h"
#include "trainer/step/divergence.h"

bool pb_parity_is(const pb_case *c) { return strcmp(c->name, "parity") == 0; }

static bool is_or_absent(const pb_case *c, const char *axis, const char *value)
{
    return !pb_case_get(c, axis) || pb_case_is(c, axis, value);
}

pb_status pb_parity_check(const pb_case *c)
{
    if (pb_case_is(c, "mode", "eager") && pb_case_is(c, "clip", "fused") && is_or_absent(c, "loss-chunk", "0") &&
        is_or_absent(c, "recompute", "none") && is_or_absent(c, "accumulate", "1"))
        return PB_OK;
    return pb_fail(PB_EINVAL, "case parity needs mode=eager, clip=fused, and no loss-chunk, recompute or accumulate");
}

/* Reference implementations take about 400 times as long as those that a CPU prefers: on two cores, 0.4 to 0.8 seconds per
 * token of smollm2-135m. */
double pb_parity_seconds(const pb_case *c, bool device) { return 2 + pb_train_case_seconds(c) * (device ? 2 : 400); }

/* Both trainers, this side's and the other's, and the figures. */
typedef struct parity {
    pb_ctx *ctx, *cpu; /* of own, of other */
    pb_trainer *own, *other;
    pb_tensor logits[2]; /* of own, of other */
    double own_loss, mixed_loss, other_loss, logits_error;
    double row_error; /* the largest of a row; -1: the model has no such op */
    char row[160];    /* where it is */
} parity;

/* ---- logits, rows of the fused op, losses -------------------------------------------------------------------- */

static pb_status find_logits(void *self, const pb_tensor *x)
{
    if (strcmp(x->name, "logits") == 0) *(pb_tensor *)self = *x;
    return PB_OK;
}

/* Returns |y - x| / |x| of n elements, in double precision. */
static double relative_error(const void *y, const void *x, size_t n, pb_dtype dtype)
{
    double sum = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        const double a = pb_load(x, i, dtype), d = pb_load(y, i, dtype) - a;
        sum += d * d;
        norm += a * a;
    }
    return sqrt(sum) / sqrt(norm);
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

/* Computes all figures. own, other: room for the logits. The comparison layer by layer changes what this side computes,
 * so this side's logits are copied before it; and it runs the other side's forward pass, which is thus run once. The loss
 * phase replaces the logits by their gradient. */
static pb_status compute(parity *p, void *own, void *other)
{
    const pb_tensor *x = &p->logits[0], *y = &p->logits[1];
    const size_t n = x->rows * x->cols, bytes = n * pb_dtype_size(x->dtype);
    PB_TRY(pb_phase_forward(p->ctx, p->own));
    PB_TRY(pb_download(p->ctx, own, x->p, bytes));
    PB_TRY(loss_of(p->ctx, p->own, &p->own_loss));
    PB_TRY(pb_diverge_forward(p->other, p->own, see, p));
    PB_TRY(pb_download(p->cpu, other, y->p, bytes));
    p->logits_error = relative_error(own, other, n, x->dtype);
    PB_TRY(loss_of(p->cpu, p->other, &p->other_loss));
    PB_TRY(pb_upload(p->cpu, (void *)y->p, own, bytes));
    return loss_of(p->cpu, p->other, &p->mixed_loss);
}

static pb_status compare(const pb_case *c, parity *p)
{
    PB_TRY(pb_train_case_open(p->ctx, c, &p->own));
    PB_TRY(pb_train_case_open(p->cpu, c, &p->other));
    PB_TRY(pb_trainer_tensors(p->own, find_logits, &p->logits[0]));
    PB_TRY(pb_trainer_tensors(p->other, find_logits, &p->logits[1]));
    const size_t bytes = p->logits[0].rows * p->logits[0].cols * pb_dtype_size(p->logits[0].dtype);
    void *own = malloc(bytes + 1), *other = malloc(bytes + 1);
    const pb_status s = own && other ? compute(p, own, other)
                                     : pb_fail(PB_ENOMEM, "no memory for two copies of %zu bytes of logits", bytes);
    free(other);
    free(own);
    return s;
}

/* ---- the case -------------------------------------------------------------------------------------------------- */

static pb_status emit(const parity *p, const pb_case *c, pb_emitter *emitter)
{
    char how[240];
    snprintf(how, sizeof how, "loss %.6g of the other side, %.6g of this side's logits, %.6g of this side",
             p->other_loss, p->mixed_loss, p->own_loss);
    PB_TRY(pb_requirement_emit(emitter, "PARITY-LOSS", c->axes, c->n, fabs(p->mixed_loss - p->other_loss), true, how));
    PB_TRY(pb_requirement_emit(emitter, "PARITY-FUSED", c->axes, c->n, fabs(p->own_loss - p->mixed_loss), true, how));
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
    pb_trainer_close(p.other);
    pb_trainer_close(p.own);
    pb_ctx_close(&cpu);
    return s;
}
