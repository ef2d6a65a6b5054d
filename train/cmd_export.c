/* cmd_export.c - `train export`: writes a model as a Hugging Face folder, with its tokenizer. */
#include <string.h>
#include <sys/stat.h>

#include "train/save.h"
#include "trainer/hf/hf_gguf.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/hf_save.h"
#include "trainer/input/fit.h"

/* Refuses the model's own folder: writing into it would replace the weights that are read. */
static pb_status check_out(const pb_train_options *o)
{
    struct stat from, to;
    if (o->args.n) return pb_fail(PB_EINVAL, "'%.60s' is not an option; try --help", o->args.v[0]);
    if (!o->out) return pb_fail(PB_EINVAL, "export needs --out DIR");
    if (stat(o->model, &from) == 0 && stat(o->out, &to) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino)
        return pb_fail(PB_EINVAL, "--out %s is the model's own folder", o->out);
    return PB_OK;
}

/* Checks that the model fits into memory, its files have its sizes, and its tokenizer can be read, before anything is
 * written. */
static pb_status check(const pb_train_options *o, const pb_input *in, const pb_train_config *cfg)
{
    pb_tokenizer *t = NULL;
    PB_TRY(pb_fit_check(
        &(pb_fit){.cfg = cfg, .device = PB_CPU, .name = o->model, .path = in->path, .ranks = 1, .local_size = 1}));
    PB_TRY(pb_hf_tokenizer_open(in->tokenizer_path, &t));
    pb_tokenizer_close(t);
    return PB_OK;
}

static pb_status write_model(const pb_train_options *o, const pb_input *in, const pb_model_config *cfg)
{
    const pb_hf_text text = {in->path, in->tokenizer_path, in->tokenizer_folder};
    pb_load_report r = {0};
    pb_ctx ctx;
    pb_model m;
    PB_TRY(pb_ctx_open(&ctx, PB_CPU, 0));
    pb_status s = pb_model_open(&ctx, cfg, &m);
    if (s == PB_OK) {
        if (in->path) s = pb_model_load_hf(&m, in->path, &r);
        if (s == PB_OK) s = pb_model_save_hf(&m, o->out, &(pb_hf_save_config){.text = &text});
        pb_model_close(&m);
    }
    pb_ctx_close(&ctx);
    if (s == PB_OK && !o->quiet) printf("exported to %s\n", o->out);
    if (s == PB_OK && r.unused)
        fprintf(stderr, "train: note: the model does not use %zu tensors of the files: %s\n", r.unused, r.names);
    return s;
}

pb_status pb_train_export(const pb_train_options *o)
{
    pb_input in = {0};
    pb_export_folder to;
    PB_TRY(check_out(o));
    PB_TRY(pb_input_find_model(&in, o->model));
    PB_TRY(pb_input_find_tokenizer(&in, o->tokenizer));
    pb_train_config cfg = pb_train_defaults(in.geometry);
    cfg.B = cfg.S = 1;
    cfg.model.tuning = PB_FULL;
    cfg.model.dtype = strcmp(o->dtype, "bf16") == 0 ? PB_BF16 : PB_F32;
    cfg.model.frozen = true;
    cfg.model.blank = in.path != NULL;
    PB_TRY(pb_hf_config_check(in.geometry, o->out));
    PB_TRY(check(o, &in, &cfg));
    PB_TRY(pb_export_open(o->out, PB_EXPORT_MODEL, &to));
    const pb_status s = write_model(o, &in, &cfg.model);
    pb_export_close(&to);
    return s;
}
