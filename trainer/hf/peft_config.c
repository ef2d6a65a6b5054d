/* peft_config.c - parses adapter_config.json, and rejects every key that describes unsupported adapters. */
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "os/text.h"
#include "trainer/hf/peft_impl.h"
#include "trainer/io/json.h"

/* Keys that change the computation or the set of adapted modules. They must be absent, null, false or empty. */
static const char *const unsupported[] = {"alora_invocation_tokens",
                                          "alpha_pattern",
                                          "arrow_config",
                                          "exclude_modules",
                                          "fan_in_fan_out",
                                          "kasa_config",
                                          "layer_replication",
                                          "layers_pattern",
                                          "layers_to_transform",
                                          "lora_bias",
                                          "megatron_config",
                                          "monteclora_config",
                                          "rank_pattern",
                                          "target_parameters",
                                          "trainable_token_indices",
                                          "use_bdlora",
                                          "use_dora",
                                          "use_qalora",
                                          "use_rslora",
                                          "velora_config"};

static bool is_set(const json_t *v)
{
    return v && !json_is_null(v) && !json_is_false(v) && !(json_is_array(v) && !json_array_size(v)) &&
           !(json_is_object(v) && !json_object_size(v));
}

static pb_status refuse(const char *path, const char *key, const char *why)
{
    return pb_fail(PB_EFORMAT, "%s: \"%s\": %s", path, key, why);
}

static bool says(const json_t *o, const char *key, const char *word)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text && strcmp(text, word) == 0;
}

static pb_status check_kind(const char *path, const json_t *o)
{
    if (!says(o, "peft_type", "LORA")) return refuse(path, "peft_type", "only \"LORA\" is supported");
    if (is_set(json_object_get(o, "task_type")) && !says(o, "task_type", "CAUSAL_LM"))
        return refuse(path, "task_type", "only \"CAUSAL_LM\" is supported");
    if (is_set(json_object_get(o, "bias")) && !says(o, "bias", "none"))
        return refuse(path, "bias", "trained biases are not supported");
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (is_set(json_object_get(o, unsupported[i])))
            return refuse(path, unsupported[i], "the option is not supported");
    const json_t *init = json_object_get(o, "init_lora_weights");
    if (json_is_string(init) && !says(o, "init_lora_weights", "gaussian") &&
        !says(o, "init_lora_weights", "orthogonal"))
        return refuse(path, "init_lora_weights",
                      "adapters whose initialisation changed the base weights are not supported");
    return PB_OK;
}

/* True if `text` is the module's full name ("self_attn.q_proj") or its last component ("q_proj"). */
static bool names(const char *text, const char *module)
{
    const char *dot = strrchr(module, '.');
    return strcmp(text, module) == 0 || (dot && strcmp(text, dot + 1) == 0);
}

static pb_status read_targets(const char *path, const json_t *list, unsigned *out)
{
    size_t i;
    const json_t *v;
    char module[32];
    if (!json_is_array(list)) return refuse(path, "target_modules", "only a list of names is supported");
    json_array_foreach(list, i, v)
    {
        const char *text = json_string_value(v);
        int t = 0;
        if (!text || !pb_is_printable(text))
            return pb_fail(PB_EINVAL, "%s: \"target_modules\" is not a list of names", path);
        while (t < PB_NTARGETS && !names(text, pb_hf_module((pb_target)t, module))) t++;
        if (t == PB_NTARGETS)
            return pb_fail(PB_EFORMAT, "%s: \"target_modules\": %.60s cannot have an adapter", path, text);
        *out |= 1u << t;
    }
    return *out ? PB_OK : pb_fail(PB_EINVAL, "%s: \"target_modules\" is empty", path);
}

static pb_status read_saved(const char *path, const json_t *list, pb_peft_config *c)
{
    size_t i;
    const json_t *v;
    if (!is_set(list)) return PB_OK;
    if (!json_is_array(list)) return pb_fail(PB_EINVAL, "%s: \"modules_to_save\" is not a list of names", path);
    json_array_foreach(list, i, v)
    {
        const char *text = json_string_value(v);
        if (text && strcmp(text, PB_PEFT_NORM1) == 0) c->norm1 = true;
        else if (text && strcmp(text, PB_PEFT_NORM2) == 0) c->norm2 = true;
        else
            return pb_fail(PB_EFORMAT,
                           "%s: \"modules_to_save\": %.60s is not supported, only " PB_PEFT_NORM1 " and " PB_PEFT_NORM2,
                           path, text && pb_is_printable(text) ? text : "?");
    }
    return PB_OK;
}

static pb_status read_config(const char *path, const json_t *o, pb_peft_config *c)
{
    const json_t *r = json_object_get(o, "r"), *alpha = json_object_get(o, "lora_alpha");
    PB_TRY(check_kind(path, o));
    if (!json_is_integer(r) || json_integer_value(r) < 1 || json_integer_value(r) > 1 << 22)
        return pb_fail(PB_EINVAL, "%s: \"r\" is not a whole number above 0", path);
    c->rank = (int)json_integer_value(r);
    if (!json_is_number(alpha) || !(json_number_value(alpha) > 0) || !(json_number_value(alpha) < 1e30))
        return pb_fail(PB_EINVAL, "%s: \"lora_alpha\" is not a number above 0", path);
    c->alpha = (float)json_number_value(alpha);
    PB_TRY(read_targets(path, json_object_get(o, "target_modules"), &c->targets));
    return read_saved(path, json_object_get(o, "modules_to_save"), c);
}

pb_status pb_peft_config_open(const char *dir, pb_peft_config *out)
{
    pb_peft_config c = {0};
    json_t *root = NULL;
    char *path = NULL;
    PB_TRY(pb_path_join(dir, PB_PEFT_CONFIG, &path));
    pb_status s = pb_json_open(path, &root);
    if (s == PB_OK) s = read_config(path, root, &c);
    json_decref(root);
    free(path);
    if (s == PB_OK) *out = c;
    return s;
}
