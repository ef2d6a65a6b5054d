/* fit.c - plans training with the plan backend, and refuses what does not fit into memory. */
#include "trainer/input/fit.h"

#include <stdio.h>

#include "os/memory.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/peft.h"

enum { CHUNK = 1024 }; /* the loss chunk that is proposed */

/* The memory of a rank in bytes. */
typedef struct need {
    double peak; /* what pb_fit_peak returns */
    double copy; /* host memory for the copy of a checkpoint; on a CPU part of `peak` */
} need;

static pb_status plan(const pb_fit *f, pb_ctx *ctx, const pb_train_config *asked, need *out)
{
    pb_trainer *t = NULL;
    pb_train_config cfg = *asked;
    ctx->prefer = f->prefer;
    cfg.comm = cfg.context = NULL;
    if (f->ranks > 1) PB_TRY(pb_comm_open_plan(ctx, "dp", f->rank, f->ranks, &cfg.comm));
    pb_status s = f->shares > 1 ? pb_comm_open_plan(ctx, "cp", f->share, f->shares, &cfg.context) : PB_OK;
    if (s == PB_OK) s = pb_trainer_open(ctx, &cfg, &t);
    if (s == PB_OK && f->path) s = pb_model_load_hf(pb_trainer_model(t), f->path, NULL);
    if (s == PB_OK && f->adapter) s = pb_peft_load(pb_trainer_model(t), f->adapter);
    if (s == PB_OK) s = pb_trainer_shard(t);
    if (s == PB_OK && !cfg.model.frozen) s = pb_trainer_reserve(t, cfg.S);
    out->copy = s == PB_OK && f->copy ? (double)f->copy(t) : 0;
    out->peak = (double)pb_plan_peak(ctx) + (f->device == PB_CPU ? f->more + out->copy : 0);
    pb_trainer_close(t);
    pb_comm_close(cfg.context);
    pb_comm_close(cfg.comm);
    return s;
}

static pb_status need_of(const pb_fit *f, const pb_train_config *cfg, need *out)
{
    pb_ctx ctx;
    PB_TRY(pb_ctx_open_plan(&ctx, f->device));
    const pb_status s = plan(f, &ctx, cfg, out);
    pb_ctx_close(&ctx);
    return s;
}

pb_status pb_fit_peak(const pb_fit *f, double *bytes)
{
    need n;
    PB_TRY(need_of(f, f->cfg, &n));
    *bytes = n.peak;
    return PB_OK;
}

/* Host memory that a rank can use. */
static double available_on_host(const pb_fit *f) { return pb_memory_available() / f->local_size; }

/* The bytes that a rank can use. A GPU's are its whole memory: what other processes use is not known. */
static double available(const pb_fit *f)
{
    pb_device_facts facts;
    if (f->device == PB_CPU) return available_on_host(f);
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
    case 2: /* training needs --recompute layer for it, which case 0 proposes */
        *applies = !c->mlp_chunk && (!trains || c->recompute == PB_RECOMPUTE_LAYER);
        c->mlp_chunk = CHUNK;
        return "--mlp-chunk 1024";
    case 3:
        *applies = trains && f->ranks > 1 && c->shard != PB_SHARD_PARAMETERS && c->optimizer == PB_OPTIMIZER_ADAMW;
        c->shard = PB_SHARD_PARAMETERS;
        return "--shard parameters";
    case 4:
        *applies = trains && full;
        c->model.tuning = PB_LORA;
        return "--tuning lora";
    case 5:
        *applies = c->model.tuning != PB_QLORA;
        c->model.tuning = PB_QLORA;
        return "--tuning qlora";
    default: return NULL;
    }
}

/* Writes the settings that need less memory than `n`, each with its peak; "": none. */
static void list_remedies(const pb_fit *f, const need *n, char *out, size_t room)
{
    const char *option;
    size_t at = 0;
    *out = 0;
    for (int i = 0;; i++) {
        pb_train_config c = *f->cfg;
        bool applies;
        need less;
        option = remedy(i, f, &c, &applies);
        if (!option) break;
        if (!applies || pb_train_check(&c) != PB_OK || need_of(f, &c, &less) != PB_OK || less.peak >= n->peak ||
            at >= room)
            continue;
        at += (size_t)snprintf(out + at, room - at, "%s %.1f MB with %s", at ? "," : "; it needs", 1e-6 * less.peak,
                               option);
    }
    if (n->copy > 0 && f->device == PB_CPU && at < room)
        snprintf(out + at, room - at, "%s %.1f MB without --save-async", at ? "," : "; it needs",
                 1e-6 * (n->peak - n->copy));
}

/* On a GPU, only the copy of a checkpoint is a large part of the host's memory. */
static pb_status check_copy(const pb_fit *f, const need *n)
{
    const double left = available_on_host(f);
    if (f->device == PB_CPU || n->copy <= left) return PB_OK;
    return pb_fail(
        PB_ENOMEM,
        "--save-async needs %.1f MB of host memory%s for a copy of the state, but only %.1f MB are available",
        1e-6 * n->copy, f->local_size > 1 ? " per rank" : "", 1e-6 * left);
}

pb_status pb_fit_check(const pb_fit *f)
{
    char remedies[320];
    need n;
    PB_TRY(need_of(f, f->cfg, &n));
    const double left = available(f);
    if (n.peak <= left) return check_copy(f, &n);
    list_remedies(f, &n, remedies, sizeof remedies);
    return pb_fail(PB_ENOMEM, "%.100s needs %.1f MB of memory%s, but only %.1f MB are available%s", f->name,
                   1e-6 * n.peak, f->local_size > 1 ? " per rank" : "", 1e-6 * left, remedies);
}
