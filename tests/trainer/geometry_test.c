/* geometry_test.c - tests of the built-in geometries against the published models: numbers of parameters, and the
 * geometry that the model's own config.json gives. */
#include "tests/test.h"
#include "trainer/hf/hf_config.h"
#include "trainer/step/trainer.h"

/* total_size / 2 of the bf16 files' model.safetensors.index.json on the Hugging Face Hub. */
static const struct {
    const char *name;
    size_t parameters;
} published[] = {{"qwen2.5-7b", 7615616512}, {"qwen3-8b", 8190735360}, {"llama-3.1-8b", 8030261248}};

static void geometries_have_the_published_number_of_parameters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        pb_ctx plan;
        pb_model m;
        const pb_geometry *g;
        size_t n = 0;
        CHECK_OK(pb_geometry_find(published[i].name, &g));
        pb_model_config c = pb_train_defaults(g).model;
        c.tuning = PB_FULL;
        CHECK_OK(pb_ctx_open_plan(&plan, PB_CPU));
        CHECK_OK(pb_model_open(&plan, &c, &m));
        for (int k = 0; k < m.n; k++) n += pb_param_n(&m.params[k]);
        assert_int_equal(n, published[i].parameters);
        pb_model_close(&m);
        pb_ctx_close(&plan);
    }
}

/* The config.json of meta-llama/Llama-3.1-8B, without the keys that do not affect the computation. */
static const char llama[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"hidden_act\":\"silu\","
    "\"hidden_size\":4096,\"intermediate_size\":14336,\"max_position_embeddings\":131072,"
    "\"mlp_bias\":false,\"model_type\":\"llama\",\"num_attention_heads\":32,"
    "\"num_hidden_layers\":32,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,"
    "\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
    "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
    "\"rope_theta\":500000.0,\"tie_word_embeddings\":false,\"vocab_size\":128256}";

static void llama_has_the_rope_of_its_configuration(void **state)
{
    (void)state;
    pb_hf_config c;
    const pb_geometry *g;
    CHECK_OK(pb_hf_config_parse("config.json", llama, sizeof llama - 1, "llama", &c));
    CHECK_OK(pb_geometry_find("llama-3.1-8b", &g));
    const int a[] = {g->family, g->V, g->D, g->L, g->H, g->K, g->d, g->I, g->max_pos, g->tied, g->bias, g->qk_norm};
    const int b[] = {c.g.family, c.g.V, c.g.D,       c.g.L,    c.g.H,    c.g.K,
                     c.g.d,      c.g.I, c.g.max_pos, c.g.tied, c.g.bias, c.g.qk_norm};
    assert_memory_equal(a, b, sizeof a);
    assert_true(g->theta == c.g.theta && g->eps == c.g.eps && g->rope.kind == c.g.rope.kind);
    assert_true(g->rope.factor == c.g.rope.factor && g->rope.original_len == c.g.rope.original_len);
    assert_true(g->rope.low_freq == c.g.rope.low_freq && g->rope.high_freq == c.g.rope.high_freq);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(geometries_have_the_published_number_of_parameters),
        cmocka_unit_test(llama_has_the_rope_of_its_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
