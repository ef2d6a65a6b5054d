/* peft_test.c - tests of adapters as PEFT folders: a written folder has PEFT's tensor names and loads back bit for bit;
 * a folder that does not fit the model, or that configures unsupported adapters, is refused before any weight
 * changes. */
#include <jansson.h>

#include "tests/folder_test.h"
#include "tests/trainer/hf/model_test.h"
#include "trainer/hf/peft.h"
#include "trainer/io/safetensors.h"

static void saved_adapters_load_unchanged(void **state)
{
    pb_ctx *ctx = *state;
    for (int i = 0; i < MODELS * 2 * PB_NFLOAT; i++) {
        const pb_geometry *g;
        const pb_tuning tuning = i / PB_NFLOAT % 2 ? PB_LORA : PB_QLORA;
        CHECK_OK(pb_geometry_find(models[i / PB_NFLOAT / 2], &g));
        pb_model m = open_model(ctx, g, tuning, (pb_dtype)(i % PB_NFLOAT), 7);
        pb_model back = open_model(ctx, g, tuning, (pb_dtype)(i % PB_NFLOAT), 8);
        move_gains(&m);
        CHECK_OK(pb_peft_save(&m, in_folder("adapter"), NULL));
        CHECK_OK(pb_peft_load(&back, in_folder("adapter")));
        for (int k = 0; k < m.n; k++)
            if (m.params[k].trained) assert_same_param(&m.params[k], &back.params[k]);
        pb_model_close(&m), pb_model_close(&back);
    }
}

/* The written tensors have PEFT's names, which this test lists independently of the code under test. */
static void adapters_are_named_as_in_peft(void **state)
{
    pb_ctx *ctx = *state;
    const pb_geometry *g;
    pb_safetensors *f = NULL;
    CHECK_OK(pb_geometry_find("tiny", &g));
    pb_model m = open_model(ctx, g, PB_LORA, PB_F32, 7);
    CHECK_OK(pb_peft_save(&m, in_folder("adapter"), NULL));
    CHECK_OK(pb_st_open(in_folder("adapter/adapter_model.safetensors"), &f));
    assert_int_equal(pb_st_count(f), 2 * (2 * 7 + 2));
    const pb_st_tensor *a = pb_st_find(f, "base_model.model.model.layers.1.mlp.down_proj.lora_A.weight");
    const pb_st_tensor *b = pb_st_find(f, "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight");
    const pb_st_tensor *n = pb_st_find(f, "base_model.model.model.layers.0.post_attention_layernorm.weight");
    if (a && b && n) {
        assert_true(n->dims == 1 && n->n == 64);
        assert_true(a->shape[0] == 4 && a->shape[1] == 176 && b->shape[0] == 64 && b->shape[1] == 4);
        assert_memory_equal(a->data, m.lora_a[PB_NTARGETS + PB_TARGET_DOWN]->w, a->bytes);
    } else {
        fail_msg("a tensor has not the name that PEFT gives it");
    }
    pb_st_close(f);
    pb_model_close(&m);
}

/* ---- parsing adapter_config.json ------------------------------------------------------------------------ */

static const char base[] =
    "{\"peft_type\":\"LORA\",\"task_type\":\"CAUSAL_LM\",\"r\":4,\"lora_alpha\":8,\"bias\":\"none\","
    "\"target_modules\":[\"q_proj\",\"self_attn.v_proj\"],\"rank_pattern\":{},"
    "\"modules_to_save\":null,\"use_dora\":false,\"layers_to_transform\":null}";

/* Opens `base` with the keys of `patch` replaced. */
static pb_status open_patched(const char *patch, pb_peft_config *c)
{
    json_error_t e;
    json_t *o = json_loads(base, 0, &e), *more = json_loads(patch, 0, &e);
    if (!o || !more) fail_msg("%s: %s", patch, e.text);
    json_object_update(o, more);
    assert_int_equal(json_dump_file(o, in_folder("adapter_config.json"), 0), 0);
    json_decref(o), json_decref(more);
    return pb_peft_config_open(test_folder, c);
}

static void configurations_are_read(void **state)
{
    (void)state;
    pb_peft_config c;
    CHECK_OK(open_patched("{}", &c));
    assert_true(c.rank == 4 && c.alpha == 8 && !c.norm1 && !c.norm2);
    assert_int_equal(c.targets, 1u << PB_TARGET_Q | 1u << PB_TARGET_V);
    CHECK_OK(open_patched("{\"target_modules\":[\"down_proj\",\"mlp.up_proj\"],\"lora_alpha\":2.5,\"task_type\":null,"
                          "\"modules_to_save\":[\"input_layernorm\"],\"init_lora_weights\":\"gaussian\"}",
                          &c));
    assert_true(c.alpha == 2.5f && c.norm1 && !c.norm2);
    assert_int_equal(c.targets, 1u << PB_TARGET_UP | 1u << PB_TARGET_DOWN);
}

static const struct {
    const char *patch;
    pb_status status;
    const char *says;
} refused[] = {
    {"{\"peft_type\":\"IA3\"}", PB_EFORMAT, "adapter_config.json: \"peft_type\": only \"LORA\""},
    {"{\"task_type\":\"SEQ_CLS\"}", PB_EFORMAT, "\"task_type\": only \"CAUSAL_LM\""},
    {"{\"bias\":\"all\"}", PB_EFORMAT, "\"bias\": trained biases"},
    {"{\"use_dora\":true}", PB_EFORMAT, "\"use_dora\": the option is not supported"},
    {"{\"use_rslora\":true}", PB_EFORMAT, "\"use_rslora\""},
    {"{\"rank_pattern\":{\"q_proj\":2}}", PB_EFORMAT, "\"rank_pattern\""},
    {"{\"layers_to_transform\":[0]}", PB_EFORMAT, "\"layers_to_transform\""},
    {"{\"init_lora_weights\":\"pissa\"}", PB_EFORMAT,
     "\"init_lora_weights\": adapters whose initialisation changed the base"},
    {"{\"r\":0}", PB_EINVAL, "\"r\" is not a whole number above 0"},
    {"{\"lora_alpha\":0}", PB_EINVAL, "\"lora_alpha\" is not a number above 0"},
    {"{\"target_modules\":\"all-linear\"}", PB_EFORMAT, "\"target_modules\": only a list of names is supported"},
    {"{\"target_modules\":[\"lm_head\"]}", PB_EFORMAT, "\"target_modules\": lm_head cannot have an adapter"},
    {"{\"target_modules\":[]}", PB_EINVAL, "\"target_modules\" is empty"},
    {"{\"modules_to_save\":[\"embed_tokens\"]}", PB_EFORMAT,
     "\"modules_to_save\": embed_tokens is not supported, only input_"},
};

static void refusals_name_the_key(void **state)
{
    (void)state;
    pb_peft_config c;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        CHECK_FAILS(open_patched(refused[i].patch, &c), refused[i].status, refused[i].says);
    CHECK_FAILS(pb_peft_config_open("/nowhere", &c), PB_EPATH, "/nowhere/adapter_config.json: No such file");
}

/* ---- adapters that do not fit --------------------------------------------------------------------------- */

static pb_model open_configured(pb_ctx *ctx, int rank, float alpha, unsigned targets)
{
    pb_model m;
    const pb_geometry *g;
    CHECK_OK(pb_geometry_find("tiny", &g));
    pb_model_config c = pb_train_defaults(g).model;
    c.rank = rank;
    c.alpha = alpha;
    c.targets = targets;
    CHECK_OK(pb_model_open(ctx, &c, &m));
    return m;
}

/* lora_alpha is written as PEFT writes it: whole numbers without a decimal point, other values without rounding. */
static void alpha_is_written_exactly(void **state)
{
    static const struct {
        float alpha;
        const char *text;
    } cases[] = {{8, "\"lora_alpha\": 8,"}, {2.5f, "\"lora_alpha\": 2.5,"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[4096];
        pb_peft_config back;
        pb_model m = open_configured(*state, 4, cases[i].alpha, 1u << PB_TARGET_Q);
        CHECK_OK(pb_peft_save(&m, in_folder("alpha"), NULL));
        pb_model_close(&m);
        CHECK_OK(pb_peft_config_open(in_folder("alpha"), &back));
        assert_true(back.alpha == cases[i].alpha);
        FILE *f = fopen(in_folder("alpha/adapter_config.json"), "r");
        assert_non_null(f);
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
        if (!strstr(text, cases[i].text)) fail_msg("%s is not in %s", cases[i].text, text);
    }
}

static void adapters_of_another_shape_are_refused(void **state)
{
    pb_ctx *ctx = *state;
    const unsigned qv = 1u << PB_TARGET_Q | 1u << PB_TARGET_V;
    static const struct {
        int rank;
        float alpha;
        unsigned targets;
        const char *says;
    } cases[] = {
        {8, 8, 1u << PB_TARGET_Q | 1u << PB_TARGET_V, "the adapters have rank 4, but the model's have rank 8"},
        {4, 4, 1u << PB_TARGET_Q | 1u << PB_TARGET_V, "the adapters have alpha 8, but the model's have alpha 4"},
        {4, 8, 1u << PB_TARGET_Q | 1u << PB_TARGET_UP,
         "the adapters are on q_proj, v_proj, but the model's are on q_proj, up_proj"},
    };
    pb_model m = open_configured(ctx, 4, 8, qv);
    CHECK_OK(pb_peft_save(&m, in_folder("qv"), "some/base"));
    pb_model_close(&m);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m = open_configured(ctx, cases[i].rank, cases[i].alpha, cases[i].targets);
        CHECK_FAILS(pb_peft_load(&m, in_folder("qv")), PB_EINVAL, cases[i].says);
        pb_model_close(&m);
    }
    m = open_model(ctx, pb_geometries, PB_FULL, PB_F32, 7);
    CHECK_FAILS(pb_peft_load(&m, in_folder("qv")), PB_EINVAL, "/qv: the model has no adapters");
    pb_model_close(&m);
}

/* An adapter folder is refused if it is from a model with more or fewer layers, or if it has gains that its
 * adapter_config.json does not list. */
static void missing_or_extra_tensors_are_refused(void **state)
{
    pb_ctx *ctx = *state;
    pb_model_config c = pb_train_defaults(pb_geometries).model;
    pb_model one, two;
    pb_peft_config read;
    CHECK_OK(pb_model_open(ctx, &c, &two));
    c.layers = 1;
    CHECK_OK(pb_model_open(ctx, &c, &one));
    CHECK_OK(pb_peft_save(&one, in_folder("one"), NULL));
    CHECK_OK(pb_peft_save(&two, in_folder("two"), NULL));
    CHECK_OK(pb_peft_config_open(in_folder("two"), &read));
    assert_true(read.norm1 && read.norm2);
    ((float *)pb_layer_param(&two, 0, PB_P_norm1)->w)[0] = 42;
    CHECK_FAILS(pb_peft_load(&two, in_folder("one")), PB_EINVAL,
                "/one has no tensor base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight");
    assert_true(((float *)pb_layer_param(&two, 0, PB_P_norm1)->w)[0] == 42);
    CHECK_FAILS(pb_peft_load(&one, in_folder("two")), PB_EINVAL,
                "the model has no parameter for tensor base_model.model.model.layers.1.input_layernorm.weight");
    json_error_t e;
    json_t *o = json_load_file(in_folder("one/adapter_config.json"), 0, &e);
    json_object_set_new(o, "modules_to_save", json_null());
    assert_int_equal(json_dump_file(o, in_folder("one/adapter_config.json"), 0), 0);
    json_decref(o);
    CHECK_FAILS(pb_peft_load(&one, in_folder("one")), PB_EINVAL,
                "no parameter for tensor base_model.model.model.layers.0.inp");
    pb_model_close(&one), pb_model_close(&two);
}

static pb_status no_upload(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    (void)ctx, (void)dev, (void)host, (void)bytes;
    return pb_fail(PB_EDEVICE, "the copy failed");
}

static void a_failed_copy_to_the_device_is_reported(void **state)
{
    pb_ctx *ctx = *state;
    const pb_backend *real = ctx->be;
    pb_backend broken = *real;
    pb_model m = open_model(ctx, pb_geometries, PB_LORA, PB_F32, 7);
    CHECK_OK(pb_peft_save(&m, in_folder("adapter"), NULL));
    broken.upload = no_upload;
    ctx->be = &broken;
    CHECK_FAILS(pb_peft_load(&m, in_folder("adapter")), PB_EDEVICE, "the copy failed");
    ctx->be = real;
    pb_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_adapters_load_unchanged),
        cmocka_unit_test(adapters_are_named_as_in_peft),
        cmocka_unit_test(configurations_are_read),
        cmocka_unit_test(refusals_name_the_key),
        cmocka_unit_test(alpha_is_written_exactly),
        cmocka_unit_test(adapters_of_another_shape_are_refused),
        cmocka_unit_test(missing_or_extra_tensors_are_refused),
        cmocka_unit_test(a_failed_copy_to_the_device_is_reported),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
