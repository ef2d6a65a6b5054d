/* fit.c - plans training with the plan backend, and refuses what does not fit into memory. */
#include "trainer/input/fit.h"

#include <stdio.h>

#include "os/memory.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/peft.h"

enum { CHUNK = 1024 }; /* the loss chunk that is proposed */

static pb_status plan(const pb_fit *f, pb_ctx *ctx, const pb_train_config *asked, double *bytes)
{
    pb_trainer *t = NULL;
    pb_train_config cfg = *asked;
    ctx->prefer = f->prefer;
    cfg.comm = NULL;
    if (f->ranks > 1) PB_TRY(pb_comm_open_plan(ctx, "dp", f->rank, f->ranks, &cfg.comm));
    pb_status s = pb_trainer_open(ctx, &cfg, &t);
    if (s == PB_OK && f->path) s = pb_model_load_hf(pb_trainer_model(t), f->path, NULL);
    if (s == PB_OK && f->adapter) s = pb_peft_load(pb_trainer_model(t), f->adapter);
    if (s == PB_OK) s = pb_trainer_shard(t);
    if (s == PB_OK && !cfg.model.frozen) s = pb_trainer_reserve(t, cfg.S);
    *bytes = (double)pb_plan_peak(ctx) + (f->device == PB_CPU ? f->more : 0);
    pb_trainer_close(t);
    pb_comm_close(cfg.comm);
    return s;
}

static pb_status peak_of(const pb_fit *f, const pb_train_config *cfg, double *bytes)
{
    pb_ctx ctx;
    PB_TRY(pb_ctx_open_plan(&ctx, f->device));
    const pb_status s = plan(f, &ctx, cfg, bytes);
    pb_ctx_close(&ctx);
    return s;
}

pb_status pb_fit_peak(const pb_fit *f, double *bytes) { return peak_of(f, f->cfg, bytes); }

/* The bytes that a rank can use. A GPU's are its whole memory: what other processes use is not known. */
static double available(const pb_fit *f)
{
    pb_device_facts facts;
    if (f->device == PB_CPU) return pb_memory_available() / f->local_size;
    if (pb_backend_facts(f->device, f->number, &facts) != PB_OK || !facts.memory) return (double)INFINITY;
    return (double)facts.memory;
}

/* Changes a configuration as option `number` of the remedies would; returns the option's text, or NULL after the last,
 * and sets *applies. */
static const char *remedy(int number, const pb_fit *f, pb_train_config *c, bool *applies)
{
    const bool full = c->model.tuning == PB_FULL, trains = !c->model.frozen;
    switch (number) {
    case 0:
        *applies = trains && c->recompute != PB_RECOMPUTE_LAYER;
        c->recompute = PB_RECOMPUTE_LAYER;
        return "--recompute layer";
    case 1:
        *applies = !c->loss_chunk;
        c->loss_chunk = CHUNK;
        return "--loss-chunk 1024";
    case 2:
        *applies = trains && f->ranks > 1 && c->shard != PB_SHARD_PARAMETERS && c->optimizer == PB_OPTIMIZER_ADAMW;
        c->shard = PB_SHARD_PARAMETERS;
        return "--shard parameters";
    case 3:
        *applies = trains && full;
        c->model.tuning = PB_LORA;
        return "--tuning lora";
    case 4:
        *applies = c->model.tuning != PB_QLORA;
        c->model.tuning = PB_QLORA;
        return "--tuning qlora";
    default: return NULL;
    }
}

/* Writes the settings that need less memory than `bytes`, each with its peak; "": none. */
static void list_remedies(const pb_fit *f, double bytes, char *out, size_t n)
{
    const char *option;
    size_t at = 0;
    *out = 0;
    for (int i = 0;; i++) {
        pb_train_config c = *f->cfg;
        bool applies;
        double less;
        option = remedy(i, f, &c, &applies);
        if (!option) return;
        if (!applies || pb_train_check(&c) != PB_OK || peak_of(f, &c, &less) != PB_OK || less >= bytes || at >= n)
            continue;
        at += (size_t)snprintf(out + at, n - at, "%s %.1f MB with %s", at ? "," : "; it needs", 1e-6 * less, option);
    }
}

pb_status pb_fit_check(const pb_fit *f)
{
    char remedies[256];
    double bytes;
    PB_TRY(pb_fit_peak(f, &bytes));
    const double left = available(f);
    if (bytes <= left) return PB_OK;
    list_remedies(f, bytes, remedies, sizeof remedies);
    return pb_fail(PB_ENOMEM, "%.100s needs %.1f MB of memory%s, but only %.1f MB are available%s", f->name,
                   1e-6 * bytes, f->local_size > 1 ? " per rank" : "", 1e-6 * left, remedies);
}
