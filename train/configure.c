/* configure.c - turns command-line options into the configurations of model, training, tokenizer and data. */
#include <math.h>
#include <string.h>

#include "train/job.h"
#include "trainer/data/shipped.h"
#include "trainer/generate/generate.h"
#include "trainer/hf/peft.h"
#include "trainer/parallel/context.h"

/* The words that an option of type choice accepts, one table per option. The index of a word equals the value of its
 * enumerator: most tables are generated from the X-macro of the enum; dtypes and schedules list their words in the
 * order of pb_dtype and pb_schedule_kind. */
#define WORD(id, word, ...) word,
static const char *const tunings[] = {PB_TUNING_MAP(WORD)};
static const char *const clips[] = {PB_CLIP_MAP(WORD)};
static const char *const targets[] = {PB_TARGET_MAP(WORD)};
static const char *const templates[] = {PB_TEMPLATE_MAP(WORD)};
static const char *const masks[] = {PB_MASK_MAP(WORD)};
static const char *const bad_lines[] = {PB_BAD_LINES_MAP(WORD)};
static const char *const longs[] = {PB_LONG_MAP(WORD)};
static const char *const packs[] = {PB_PACK_MAP(WORD)};
static const char *const attentions[] = {PB_ATTENTION_MAP(WORD)};
static const char *const kv_qats[] = {PB_KV_QAT_MAP(WORD)};
static const char *const reduces[] = {PB_REDUCE_MAP(WORD)};
static const char *const recomputes[] = {PB_RECOMPUTE_MAP(WORD)};
static const char *const shards[] = {PB_SHARD_MAP(WORD)};
static const char *const slicings[] = {PB_SLICING_MAP(WORD)};
static const char *const optimizers[] = {PB_OPTIMIZER_MAP(WORD)};
static const char *const moments[] = {PB_ADAMW_FORMAT_MAP(WORD)};
static const char *const iterations[] = {PB_NS_MAP(WORD)};
static const char *const ns_dtypes[] = {PB_NS_DTYPE_MAP(WORD)};
static const char *const lr_factors[] = {PB_NORMUON_ADJUST_MAP(WORD)};
static const char *const guards[] = {PB_GUARD_MAP(WORD)};
static const char *const dtypes[] = {"f32", "bf16"};
static const char *const schedules[] = {"cosine", "constant"};
#undef WORD

static int index_of(const char *const *words, size_t n, const char *word)
{
    size_t i = 0;
    while (i < n && strcmp(words[i], word) != 0) i++;
    return i < n ? (int)i : -1;
}
#define INDEX_OF(words, word) index_of(words, sizeof(words) / sizeof *(words), word)

static pb_status set_bounded(const char *name, long v, long most, int *out)
{
    if (v > most) return pb_fail(PB_EINVAL, "--%s %ld: need at most %ld", name, v, most);
    *out = (int)v;
    return PB_OK;
}

/* Parses a list such as "q,v" into bits 1 << pb_target. */
static pb_status parse_targets(const char *list, unsigned *out)
{
    char word[PB_OPTION_TEXT];
    unsigned bits = 0;
    if (*list && pb_has_empty_item(list, ',')) return pb_fail(PB_EINVAL, "--targets: '%.60s' has an empty word", list);
    while ((list = pb_next_item(list, ',', word, sizeof word))) {
        const int t = INDEX_OF(targets, word);
        if (t < 0) return pb_fail(PB_EINVAL, "--targets: '%s' is not one of q,k,v,o,gate,up,down", word);
        bits |= 1u << t;
    }
    if (!bits) return pb_fail(PB_EINVAL, "--targets is empty: need at least one of q,k,v,o,gate,up,down");
    *out = bits;
    return PB_OK;
}

/* Takes rank, alpha and targets from an existing adapter (--adapter) instead of from the options. */
static pb_status configure_adapter(const pb_train_options *o, pb_model_config *m)
{
    pb_peft_config c;
    if (!o->adapter) return PB_OK;
    PB_TRY(pb_peft_config_open(o->adapter, &c));
    m->rank = c.rank;
    m->alpha = c.alpha;
    m->targets = c.targets;
    return PB_OK;
}

static pb_status configure_model(const pb_train_options *o, pb_job *j)
{
    PB_TRY(pb_input_find_model(&j->input, o->model));
    j->cfg = pb_train_defaults(j->input.geometry);
    pb_model_config *m = &j->cfg.model;
    m->blank = j->input.path != NULL;
    m->tuning = (pb_tuning)INDEX_OF(tunings, o->tuning);
    m->nf4_double = strcmp(o->nf4_scales, "8bit") == 0;
    m->dtype = (pb_dtype)INDEX_OF(dtypes, o->dtype);
    m->seed = (uint64_t)o->seed;
    m->fixed_norms = strcmp(o->train_norms, "no") == 0;
    PB_TRY(set_bounded("layers", o->layers, 1000, &m->layers));
    PB_TRY(set_bounded("rank", o->rank, 1 << 16, &m->rank));
    m->alpha = isnan(o->alpha) ? 2 * (float)m->rank : (float)o->alpha;
    PB_TRY(parse_targets(o->targets, &m->targets));
    PB_TRY(configure_adapter(o, m));
    PB_TRY(set_bounded("batch", o->batch, 1 << 20, &j->cfg.B));
    PB_TRY(set_bounded("loss-chunk", o->loss_chunk, 1 << 22, &j->cfg.loss_chunk));
    PB_TRY(set_bounded("mlp-chunk", o->mlp_chunk, 1 << 22, &j->cfg.mlp_chunk));
    PB_TRY(set_bounded("seq", o->seq, 1 << 20, &j->cfg.S));
    j->cfg.attention = (pb_attention_variant)INDEX_OF(attentions, o->attention);
    j->cfg.kv_qat = (pb_kv_qat_variant)INDEX_OF(kv_qats, o->kv_qat);
    PB_TRY(pb_device_find(o->device, &j->device, &j->number));
    if (j->ranks > 1 && strchr(o->device, ':'))
        return pb_fail(PB_EINVAL,
                       "--device %s: each rank of a host uses the GPU with its own number: use --device cuda",
                       o->device);
    return PB_OK;
}

/* Sets NorMuon's part of the configuration; the schedule is configured already. Its learning rate is a multiple of
 * AdamW's, so that both follow one schedule. */
static pb_status configure_optimizer(const pb_train_options *o, pb_job *j)
{
    pb_normuon_config *n = &j->cfg.normuon;
    j->cfg.optimizer = (pb_optimizer)INDEX_OF(optimizers, o->optimizer);
    j->cfg.model.moments = (pb_adamw_format)INDEX_OF(moments, o->moments);
    if (j->cfg.optimizer != PB_OPTIMIZER_NORMUON) return PB_OK;
    PB_TRY(set_bounded("ns-steps", o->ns_steps, PB_NS_STEPS, &n->steps));
    n->variant = (pb_ns_variant)INDEX_OF(iterations, o->newton_schulz);
    n->products = (pb_ns_dtype)INDEX_OF(ns_dtypes, o->ns_dtype);
    n->adjust = (pb_normuon_adjust_kind)INDEX_OF(lr_factors, o->lr_factor);
    n->mu = (float)o->momentum;
    n->beta2 = (float)o->row_beta2;
    n->nesterov = o->nesterov;
    n->per_head = o->per_head;
    n->cautious = o->cautious_decay;
    n->guard = o->nan_guard;
    n->momentum = (pb_guard_momentum)INDEX_OF(guards, o->nan_guard_momentum);
    const double usual = n->adjust == PB_NORMUON_RMS ? j->schedule.lr : 0.02;
    j->matrix_lr = isnan(o->matrix_lr) ? usual : o->matrix_lr;
    if (!(j->matrix_lr >= 0 && isfinite(j->matrix_lr)))
        return pb_fail(PB_EINVAL, "--matrix-lr %g: need a finite number of at least 0", j->matrix_lr);
    if (!(j->schedule.lr > 0))
        return pb_fail(PB_EINVAL, "--lr %g: --optimizer normuon needs a number above 0", j->schedule.lr);
    n->rate = (float)(j->matrix_lr / j->schedule.lr);
    return PB_OK;
}

static pb_status configure_training(const pb_train_options *o, pb_job *j)
{
    pb_train_config *c = &j->cfg;
    const bool none = strcmp(o->clip, "none") == 0;
    PB_TRY(set_bounded("accumulate", o->accumulate, 1 << 20, &j->micro_batches));
    PB_TRY(set_bounded("bucket", o->bucket, 1 << 20, &j->bucket));
    if (!j->bucket) j->bucket = c->S;
    c->model.index_loss = (float)o->index_loss;
    /* --clip none uses the variant multi with an infinite limit: it still computes the norm, so that steps without a
     * finite gradient are skipped. */
    c->clip = none ? PB_CLIP_MULTI : (pb_clip_variant)INDEX_OF(clips, o->clip);
    c->max_norm = none ? INFINITY : (float)o->max_norm;
    c->weight_decay = (float)o->weight_decay;
    c->reduce = (pb_reduce)INDEX_OF(reduces, o->reduce);
    c->shard = (pb_shard)INDEX_OF(shards, o->shard);
    c->recompute = (pb_recompute)INDEX_OF(recomputes, o->recompute);
    c->keep_unread = o->capture_tensors != NULL;
    c->micro_batches = j->micro_batches;
    c->ordered = o->deterministic && c->reduce == PB_REDUCE_F32 && j->micro_batches * j->ranks > 1;
    c->loss_scale = (float)o->loss_scale;
    if (o->export && c->model.geometry->v4) /* fail now instead of after the last step */
        return pb_fail(PB_EINVAL, "--export: %s cannot be written as a Hugging Face folder", c->model.geometry->name);
    if (o->merge && c->model.tuning == PB_FULL) return pb_fail(PB_EINVAL, "--merge needs --tuning lora or qlora");
    if (!(o->weight_decay >= 0)) return pb_fail(PB_EINVAL, "--weight-decay %g: need at least 0", o->weight_decay);
    const double warmup = o->warmup < 1 ? floor(o->warmup * (double)o->steps) : o->warmup;
    if (!(warmup >= 0 && warmup <= (double)o->steps))
        return pb_fail(PB_EINVAL, "--warmup %g: need 0 to %ld, which is --steps", o->warmup, o->steps);
    j->schedule = (pb_schedule){.kind = (pb_schedule_kind)INDEX_OF(schedules, o->schedule),
                                .lr = isnan(o->lr) ? pb_default_lr(c->model.tuning, c->model.rank) : o->lr,
                                .min = o->min_lr,
                                .warmup = (long)warmup,
                                .steps = o->steps};
    j->graph = strcmp(o->mode, "graph") == 0;
    if (j->graph && c->clip == PB_CLIP_SYNC)
        return pb_fail(PB_EINVAL, "--clip sync has host syncs in every step, which --mode graph cannot record");
    PB_TRY(pb_schedule_check(&j->schedule));
    return configure_optimizer(o, j);
}

/* Sets how conversations become rows (--pack). With --pack stream each row is treated as one text, even if several
 * conversations are in it: `packed` is false, and batches have no arrays `start` and `pos`. */
static pb_status configure_rows(const pb_train_options *o, pb_job *j)
{
    pb_dataset_config *d = &j->data_cfg;
    d->S = j->cfg.S;
    d->pack = (pb_pack)INDEX_OF(packs, o->pack);
    d->long_ones = (pb_long)INDEX_OF(longs, o->long_ones);
    d->min_counted = o->min_loss_tokens;
    j->cfg.packed = d->pack != PB_PACK_STREAM;
    d->align = j->cfg.packed ? pb_sample_align(j->cfg.model.geometry) : 1;
    if (!(d->min_counted >= 0 && d->min_counted <= 1))
        return pb_fail(PB_EINVAL, "--min-loss-tokens %g: need 0 to 1", d->min_counted);
    if (!j->cfg.packed && d->long_ones != PB_LONG_SPLIT)
        return pb_fail(PB_EINVAL, "--long-ones %s: with --pack stream no conversation is too long", o->long_ones);
    return PB_OK;
}

/* Finds tokenizer, template and data. */
static pb_status configure_text(const pb_train_options *o, pb_job *j)
{
    pb_chat_options *chat = &j->data_cfg.chat;
    const char *data = o->data ? o->data : pb_large_text_path(j->input.paths[0], sizeof j->input.paths[0]);
    PB_TRY(pb_input_find_text(&j->input, data, o->tokenizer, o->template ? INDEX_OF(templates, o->template) : -1));
    *chat = j->input.chat;
    if ((o->thinking || o->keep_thinking) && chat->family != PB_TEMPLATE_DEEPSEEK_V4)
        return pb_fail(PB_EINVAL, "--thinking and --keep-thinking: only the template deepseek-v4 has a thinking mode");
    chat->thinking = o->thinking;
    chat->keep_thinking = o->keep_thinking;
    return PB_OK;
}

/* `train generate`: without --adapter, --tuning lora uses the model without adapters. The number of positions is set
 * later, from the length of the prompt. */
static pb_status configure_generation(const pb_train_options *o, pb_job *j)
{
    PB_TRY(configure_text(o, j));
    j->data_cfg.chat.answer = true;
    if (!o->adapter && j->cfg.model.tuning == PB_LORA) j->cfg.model.tuning = PB_FULL;
    pb_generate_configure(&j->cfg, 1);
    return pb_train_check(&j->cfg);
}

static pb_status configure_data(const pb_train_options *o, pb_job *j)
{
    pb_dataset_config *d = &j->data_cfg;
    PB_TRY(configure_text(o, j));
    PB_TRY(configure_rows(o, j));
    d->mask = (pb_mask_type)INDEX_OF(masks, o->loss_mask_type);
    d->bad_lines = (pb_bad_lines)INDEX_OF(bad_lines, o->bad_lines);
    d->seed = (uint64_t)o->seed;
    d->held_out = o->eval_split;
    if (!(o->eval_split >= 0 && o->eval_split < 1))
        return pb_fail(PB_EINVAL, "--eval-split %g: need at least 0 and less than 1", o->eval_split);
    if (o->eval_data && o->eval_split > 0)
        return pb_fail(PB_EINVAL, "--eval-data and --eval-split cannot be given together");
    if (o->eval_interval > 0 && !o->eval_data && !(o->eval_split > 0))
        return pb_fail(PB_EINVAL, "--eval-interval %ld needs --eval-data FILE or --eval-split X", o->eval_interval);
    return PB_OK;
}

/* Arranges the ranks (--topology). */
static pb_status configure_ranks(const pb_train_options *o, pb_job *j)
{
    const pb_topology *t = &j->topology;
    PB_TRY(pb_topology_parse(o->topology, j->ranks, &j->topology));
    j->group = pb_topology_at(t, j->rank, PB_AXIS_DP);
    j->groups = t->size[PB_AXIS_DP];
    return PB_OK;
}

/* Sets how ranks divide the rows that they share (--slices). --seq must be a multiple of the number of chunks of a row;
 * --bucket is rounded up to one. */
static pb_status configure_slices(const pb_train_options *o, pb_job *j)
{
    const int shares = j->topology.size[PB_AXIS_CP];
    j->cfg.slicing = (pb_slicing)INDEX_OF(slicings, o->slices);
    const pb_context c = pb_train_context(&j->cfg, shares, 0);
    const int unit = pb_context_unit(&c);
    if (j->cfg.S % unit)
        return pb_fail(PB_EINVAL, "--seq %d: %d ranks share a row (--topology %s, --slices %s): need a multiple of %d",
                       j->cfg.S, shares, o->topology, o->slices, unit);
    j->bucket = (j->bucket + unit - 1) / unit * unit;
    return PB_OK;
}

pb_status pb_job_configure(const pb_train_options *o, pb_job *j)
{
    *j = (pb_job){.o = o, .micro_batches = 1, .rank = pb_world_rank(o->world), .ranks = pb_world_size(o->world)};
    if ((o->command == PB_COMMAND_plan || o->dry_run) && o->ranks > 1)
        PB_TRY(set_bounded("ranks", o->ranks, 1 << 16, &j->ranks));
    PB_TRY(configure_ranks(o, j));
    PB_TRY(pb_cli_check_needs(&pb_train_cli, o->command, pb_train_needs, o));
    if (o->args.n) return pb_fail(PB_EINVAL, "'%.60s' is not an option; try --help", o->args.v[0]);
    PB_TRY(configure_model(o, j));
    if (o->command == PB_COMMAND_generate) return configure_generation(o, j);
    if (o->dump_logits && o->loss_chunk)
        return pb_fail(PB_EINVAL, "--dump-logits needs the logits of all tokens: use --loss-chunk 0");
    if (o->command == PB_COMMAND_eval) j->cfg.model.frozen = true;
    else PB_TRY(configure_training(o, j));
    PB_TRY(configure_slices(o, j));
    PB_TRY(configure_data(o, j));
    return pb_train_check(&j->cfg);
}
