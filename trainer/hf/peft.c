/* peft.c - lists the tensors of a PEFT adapter folder, and writes the folder. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "trainer/hf/hf_write.h"
#include "trainer/hf/peft_impl.h"
#include "trainer/io/json.h"

static void add(pb_hf_list *l, pb_param *p, const char *module, const char *part)
{
    if (!p) return;
    const bool vector = p->kind == PB_KIND_GAIN;
    pb_hf_tensor *t = &l->at[l->n++];
    *t = (pb_hf_tensor){.p = p, .target = -1, .n = pb_param_n(p), .dims = vector ? 1 : 2};
    t->shape[0] = vector ? p->cols : p->rows;
    t->shape[1] = vector ? 1 : p->cols;
    snprintf(t->name, sizeof t->name, PB_PEFT_PREFIX "model.layers.%d.%s.%sweight", p->layer, module, part);
}

pb_status pb_peft_tensors(const pb_model *m, bool norm1, bool norm2, pb_hf_list *out)
{
    pb_hf_list l = {.at = calloc((size_t)m->g.L * (2 * PB_NTARGETS + 2), sizeof *l.at)};
    char module[32];
    if (!l.at) return pb_fail(PB_ENOMEM, "no memory for the list of adapters");
    for (int layer = 0; layer < m->g.L; layer++) {
        for (int t = 0; t < PB_NTARGETS; t++) {
            pb_hf_module((pb_target)t, module);
            add(&l, m->lora_a[layer * PB_NTARGETS + t], module, "lora_A.");
            add(&l, m->lora_b[layer * PB_NTARGETS + t], module, "lora_B.");
        }
        if (norm1) add(&l, pb_layer_param(m, layer, PB_P_norm1), PB_PEFT_NORM1, "");
        if (norm2) add(&l, pb_layer_param(m, layer, PB_P_norm2), PB_PEFT_NORM2, "");
    }
    *out = l;
    return PB_OK;
}

static json_t *config(const pb_model *m, const char *base)
{
    const double alpha = (double)m->cfg.alpha;
    json_t *targets = json_array();
    char module[32];
    for (int t = 0; t < PB_NTARGETS; t++)
        if (m->cfg.targets >> t & 1)
            json_array_append_new(targets, json_string(strchr(pb_hf_module((pb_target)t, module), '.') + 1));
    json_t *saved = m->export_norms ? json_pack("[s,s]", PB_PEFT_NORM1, PB_PEFT_NORM2) : json_null();
    return json_pack("{s:s, s:s, s:s, s:i, s:o, s:o, s:o, s:s, s:f, s:b, s:b, s:b}", "peft_type", "LORA", "task_type",
                     "CAUSAL_LM", "base_model_name_or_path", base ? base : m->g.name, "r", m->cfg.rank, "lora_alpha",
                     alpha == floor(alpha) ? json_integer((json_int_t)alpha) : json_real(alpha), "target_modules",
                     targets, "modules_to_save", saved, "bias", "none", "lora_dropout", 0.0, "fan_in_fan_out", 0,
                     "inference_mode", 1, "init_lora_weights", 1);
}

static pb_status save_config(const pb_model *m, const char *dir, const char *base)
{
    char *path = NULL;
    json_t *o = config(m, base);
    pb_status s = o ? pb_path_join(dir, PB_PEFT_CONFIG, &path)
                    : pb_fail(PB_EINVAL, "%s: the name of the base model is not UTF-8", dir);
    if (s == PB_OK) s = pb_json_save(path, o);
    free(path);
    json_decref(o);
    return s;
}

pb_status pb_peft_save(pb_model *m, const char *dir, const char *base)
{
    pb_hf_list list = {0};
    char *path = NULL;
    if (m->cfg.tuning == PB_FULL) return pb_fail(PB_EINVAL, "%s: the model has no adapters to export", dir);
    PB_TRY(pb_make_folder(dir));
    /* Removed first: if this export fails halfway, no old adapter_config.json is next to the new weights. */
    PB_TRY(pb_folder_remove(dir, PB_PEFT_CONFIG));
    PB_TRY(pb_path_join(dir, PB_PEFT_WEIGHTS, &path));
    pb_status s = pb_peft_tensors(m, m->export_norms, m->export_norms, &list);
    if (s == PB_OK) s = pb_hf_write(m, list.at, list.n, false, path);
    if (s == PB_OK) s = save_config(m, dir, base);
    free(list.at);
    free(path);
    return s;
}
