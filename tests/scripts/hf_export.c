/* hf_export.c - a helper program for scripts/peers/check_export: writes seeded models and adapters as Hugging Face
 * folders, and the logits that the trainer computes with such folders.
 *
 * hf_export write MODEL f32|bf16 DIR   makes these in DIR:
 *                                        full     the model
 *                                        cut      the same model in many shards
 *                                        adapter  an adapter for `full`
 *                                        merged   `full` with the adapter added
 *                                        dense    the same with its base in NF4, dequantised
 *                                        lora.safetensors, qlora.safetensors: ids and logits
 * hf_export copy DIR OUT               reads a model and writes it
 * hf_export logits DIR [ADAPTER] FILE  writes ids and f32 logits of the model in DIR, with the adapter */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/engine/bind.h"
#include "trainer/hf/hf_config.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/hf_save.h"
#include "trainer/hf/peft.h"
#include "trainer/io/safetensors.h"
#include "trainer/step/trainer.h"

enum { B = 2, S = 33, T = B * S };

static pb_status open_trainer(pb_ctx *ctx, pb_train_config *c, pb_trainer **out)
{
    c->B = B;
    c->S = S;
    return pb_trainer_open(ctx, c, out);
}

/* Writes seeded ids and the model's logits for them to a file. */
static pb_status write_logits(pb_ctx *ctx, pb_trainer *t, const char *path)
{
    const size_t V = (size_t)pb_trainer_model(t)->g.V;
    const pb_dtype dtype = pb_trainer_model(t)->cfg.dtype;
    const pb_st_entry e[] = {{"logits", dtype == PB_F32 ? PB_ST_F32 : PB_ST_BF16, 2, {T, V}},
                             {"ids", PB_ST_I32, 2, {B, S}}};
    int32_t ids[T];
    float mask[T] = {0};
    pb_st_writer *w = NULL;
    for (size_t i = 0; i < T; i++) ids[i] = (int32_t)(pb_uniform(1, i) * (double)V);
    PB_TRY(pb_trainer_set_batch(t, &(pb_batch){.ids = ids, .targets = ids, .mask = mask}));
    PB_TRY(pb_phases[PB_PHASE_forward](ctx, t));
    PB_TRY(pb_sync(ctx));
    PB_TRY(pb_st_create(path, e, 2, NULL, 0, &w));
    pb_status s = pb_st_append(w, pb_trainer_logits(t), T * V * pb_dtype_size(dtype)); /* the device is the CPU */
    if (s == PB_OK) s = pb_st_append(w, ids, sizeof ids);
    if (s == PB_OK) return pb_st_commit(w);
    pb_st_abandon(w);
    return s;
}

static void move_gains(const pb_model *m)
{
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        for (size_t k = 0; p->trained && p->kind == PB_KIND_GAIN && k < p->cols; k++)
            ((float *)p->w)[k] += 0.05f * (float)(k % 5);
    }
}

static pb_status write_tuned(pb_ctx *ctx, pb_train_config c, const char *dir, bool adapter, const char *merged)
{
    char path[1024];
    pb_trainer *t = NULL;
    PB_TRY(open_trainer(ctx, &c, &t));
    pb_model *m = pb_trainer_model(t);
    move_gains(m);
    snprintf(path, sizeof path, "%s/%s", dir, merged);
    pb_status s = pb_model_save_hf(m, path, &(pb_hf_save_config){.merge = true});
    snprintf(path, sizeof path, "%s/adapter", dir);
    if (s == PB_OK && adapter) s = pb_peft_save(m, path, NULL);
    snprintf(path, sizeof path, "%s/%s.safetensors", dir, adapter ? "lora" : "qlora");
    if (s == PB_OK) s = write_logits(ctx, t, path);
    pb_trainer_close(t);
    return s;
}

static pb_status write_full(pb_ctx *ctx, const pb_train_config *c, const char *dir)
{
    char path[1024];
    pb_model m;
    PB_TRY(pb_model_open(ctx, &c->model, &m));
    snprintf(path, sizeof path, "%s/full", dir);
    pb_status s = pb_model_save_hf(&m, path, NULL);
    snprintf(path, sizeof path, "%s/cut", dir);
    if (s == PB_OK) s = pb_model_save_hf(&m, path, &(pb_hf_save_config){.shard = 100000});
    pb_model_close(&m);
    return s;
}

static pb_status write_folders(pb_ctx *ctx, const char *model, const char *dtype, const char *dir)
{
    const pb_geometry *g;
    PB_TRY(pb_geometry_find(model, &g));
    pb_train_config c = pb_train_defaults(g);
    c.model.dtype = strcmp(dtype, "bf16") == 0 ? PB_BF16 : PB_F32;
    c.model.rank = 4;
    c.model.alpha = 6;
    c.model.random_b = true;
    c.model.targets =
        1u << PB_TARGET_Q | 1u << PB_TARGET_K | 1u << PB_TARGET_O | 1u << PB_TARGET_UP | 1u << PB_TARGET_DOWN;
    c.model.tuning = PB_FULL;
    mkdir(dir, 0777);
    PB_TRY(write_full(ctx, &c, dir));
    c.model.tuning = PB_LORA;
    PB_TRY(write_tuned(ctx, c, dir, true, "merged"));
    c.model.tuning = PB_QLORA;
    return write_tuned(ctx, c, dir, false, "dense");
}

static pb_status read_folders(pb_ctx *ctx, const char *dir, const char *adapter, const char *out)
{
    pb_hf_config hf;
    pb_peft_config p;
    pb_trainer *t = NULL;
    PB_TRY(pb_hf_config_open(dir, &hf));
    pb_train_config c = pb_train_defaults(&hf.g);
    c.model.blank = true;
    c.model.tuning = adapter ? PB_LORA : PB_FULL;
    if (adapter) {
        PB_TRY(pb_peft_config_open(adapter, &p));
        c.model.rank = p.rank;
        c.model.alpha = p.alpha;
        c.model.targets = p.targets;
    }
    PB_TRY(open_trainer(ctx, &c, &t));
    pb_status s = pb_model_load_hf(pb_trainer_model(t), dir, NULL);
    if (s == PB_OK && adapter) s = pb_peft_load(pb_trainer_model(t), adapter);
    if (s == PB_OK) s = write_logits(ctx, t, out);
    pb_trainer_close(t);
    return s;
}

static pb_status copy_folder(pb_ctx *ctx, const char *dir, const char *out)
{
    pb_hf_config hf;
    pb_model m;
    PB_TRY(pb_hf_config_open(dir, &hf));
    pb_model_config c = pb_train_defaults(&hf.g).model;
    c.blank = true;
    c.tuning = PB_FULL;
    PB_TRY(pb_model_open(ctx, &c, &m));
    pb_status s = pb_model_load_hf(&m, dir, NULL);
    if (s == PB_OK) s = pb_model_save_hf(&m, out, NULL);
    pb_model_close(&m);
    return s;
}

int main(int argc, char **argv)
{
    pb_ctx ctx;
    pb_status s = pb_ctx_open(&ctx, PB_CPU, 0);
    if (s == PB_OK && argc == 5 && strcmp(argv[1], "write") == 0) s = write_folders(&ctx, argv[2], argv[3], argv[4]);
    else if (s == PB_OK && (argc == 4 || argc == 5) && strcmp(argv[1], "logits") == 0)
        s = read_folders(&ctx, argv[2], argc == 5 ? argv[3] : NULL, argv[argc - 1]);
    else if (s == PB_OK && argc == 4 && strcmp(argv[1], "copy") == 0) s = copy_folder(&ctx, argv[2], argv[3]);
    else if (s == PB_OK)
        s = pb_fail(PB_EINVAL, "usage: write MODEL f32|bf16 DIR, copy DIR OUT or logits DIR [ADAPTER] FILE");
    if (s != PB_OK) fprintf(stderr, "hf_export: %s\n", pb_error());
    pb_ctx_close(&ctx);
    return s == PB_OK ? 0 : 1;
}
