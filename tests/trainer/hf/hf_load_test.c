/* hf_load_test.c - tests of loading weights from folders that the test writes: a seeded model larger than one I/O chunk
 * in every tuning and dtype, and malformed indexes. */
#include <unistd.h>

#include "tests/test.h"
#include "trainer/hf/hf_folder.h"
#include "trainer/hf/hf_load.h"
#include "trainer/step/trainer.h"

static char temporary[] = "/tmp/pb_hf_XXXXXX";

static const char *in_temporary(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", temporary, name);
    return path;
}

/* One line of this test's own list of tensors, which must agree with hf_names.h: the tensor `name` of a folder holds
 * `rows` rows, from row `first` on, of parameter `param` in layer `layer` (-1: the parameter is in no layer). */
typedef struct row {
    int layer, param;
    const char *name;
    size_t first, rows;
} row;

enum { V = 64, D = 96, H = 6, K = 2, d = 16, I = 6000, Q = H * d, KV = K * d };
static const pb_geometry written = {.name = "written",
                                    .family = PB_FAMILY_QWEN2,
                                    .V = V,
                                    .D = D,
                                    .L = 1,
                                    .H = H,
                                    .K = K,
                                    .d = d,
                                    .I = I,
                                    .eps = 1e-6f,
                                    .theta = 1e4,
                                    .bias = true,
                                    .max_pos = 64};
static const row rows[] = {
    {-1, PB_P_embed, "model.embed_tokens.weight", 0, V},
    {-1, PB_P_norm, "model.norm.weight", 0, 0},
    {-1, PB_P_head, "lm_head.weight", 0, V},
    {0, PB_P_norm1, "model.layers.0.input_layernorm.weight", 0, 0},
    {0, PB_P_qkv, "model.layers.0.self_attn.q_proj.weight", 0, Q},
    {0, PB_P_qkv, "model.layers.0.self_attn.k_proj.weight", Q, KV},
    {0, PB_P_qkv, "model.layers.0.self_attn.v_proj.weight", Q + KV, KV},
    {0, PB_P_qkv_bias, "model.layers.0.self_attn.q_proj.bias", 0, Q},
    {0, PB_P_qkv_bias, "model.layers.0.self_attn.k_proj.bias", Q, KV},
    {0, PB_P_qkv_bias, "model.layers.0.self_attn.v_proj.bias", Q + KV, KV},
    {0, PB_P_o, "model.layers.0.self_attn.o_proj.weight", 0, D},
    {0, PB_P_norm2, "model.layers.0.post_attention_layernorm.weight", 0, 0},
    {0, PB_P_gate_up, "model.layers.0.mlp.gate_proj.weight", 0, I},
    {0, PB_P_gate_up, "model.layers.0.mlp.up_proj.weight", I, I},
    {0, PB_P_down, "model.layers.0.mlp.down_proj.weight", 0, D},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void write_rows(const pb_model *m)
{
    pb_st_entry e[ROWS];
    pb_st_writer *w = NULL;
    for (int i = 0; i < ROWS; i++) {
        const row *r = &rows[i];
        const pb_param *p = r->layer < 0 ? m->outer[r->param] : pb_layer_param(m, r->layer, r->param);
        e[i] = (pb_st_entry){r->name, PB_ST_F32, p->kind == PB_KIND_BIAS || !r->rows ? 1 : 2, {r->rows, p->cols}};
        if (!r->rows) e[i].shape[0] = p->cols;
    }
    CHECK_OK(pb_st_create(in_temporary("model.safetensors"), e, ROWS, NULL, 0, &w));
    for (int i = 0; i < ROWS; i++) {
        const row *r = &rows[i];
        const pb_param *p = r->layer < 0 ? m->outer[r->param] : pb_layer_param(m, r->layer, r->param);
        const size_t cols = p->kind == PB_KIND_BIAS ? 1 : p->cols, n = r->rows ? r->rows * cols : p->cols;
        CHECK_OK(pb_st_append(w, (const float *)p->w + r->first * cols, n * sizeof(float)));
    }
    CHECK_OK(pb_st_commit(w));
}

static bool narrow_scales; /* models in NF4 have scales in 8 bits */

static pb_model open_written(pb_ctx *ctx, pb_tuning tuning, pb_dtype dtype, bool blank)
{
    pb_model m;
    pb_model_config c = pb_train_defaults(&written).model;
    c.tuning = tuning;
    c.nf4_double = tuning == PB_QLORA && narrow_scales;
    c.dtype = dtype;
    c.blank = blank;
    CHECK_OK(pb_model_open(ctx, &c, &m));
    return m;
}

static void assert_same_scales(const pb_nf4_scales *a, const pb_nf4_scales *b, size_t blocks)
{
    assert_true(!a->absmax == !b->absmax);
    if (a->absmax) {
        assert_memory_equal(a->absmax, b->absmax, blocks * sizeof(float));
        return;
    }
    assert_memory_equal(a->absmax_q, b->absmax_q, blocks);
    assert_memory_equal(a->absmax2, b->absmax2, (blocks + 255) / 256 * sizeof(float));
    assert_memory_equal(a->offset, b->offset, sizeof(float));
}

static void assert_same_params(const pb_model *a, const pb_model *b, const pb_model *exact)
{
    assert_int_equal(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        const pb_param *x = &a->params[i], *y = &b->params[i];
        const size_t n = pb_param_n(x);
        if (x->w) assert_memory_equal(x->w, y->w, n * pb_dtype_size(x->dtype));
        if (x->q) assert_memory_equal(x->q, y->q, (n + 1) / 2);
        if (x->q) assert_same_scales(&x->scales, &y->scales, (n + 63) / 64);
        /* master weights hold the file's values, not their rounding to bf16 */
        if (x->master && x->kind != PB_KIND_ADAPTER)
            assert_memory_equal(x->master, exact->params[i].w, n * sizeof(float));
    }
}

/* A seeded model written to a folder loads back unchanged, including adapters and NF4 codes. */
static void every_tuning_loads_what_was_written(void **state)
{
    pb_ctx *ctx = *state;
    assert_non_null(mkdtemp(temporary));
    pb_model exact = open_written(ctx, PB_FULL, PB_F32, false);
    write_rows(&exact);
    for (int i = 0; i < (PB_NTUNINGS + 1) * PB_NFLOAT; i++) {
        narrow_scales = i >= PB_NTUNINGS * PB_NFLOAT;
        const pb_tuning tuning = narrow_scales ? PB_QLORA : (pb_tuning)(i / PB_NFLOAT);
        const pb_dtype dtype = (pb_dtype)(i % PB_NFLOAT);
        pb_load_report r;
        pb_model seeded = open_written(ctx, tuning, dtype, false), loaded = open_written(ctx, tuning, dtype, true);
        CHECK_OK(pb_model_load_hf(&loaded, temporary, &r));
        assert_int_equal(r.tensors, ROWS);
        assert_int_equal(r.unused, 0);
        assert_string_equal(r.names, "");
        assert_same_params(&loaded, &seeded, &exact);
        pb_model_close(&seeded), pb_model_close(&loaded);
    }
    narrow_scales = false;
    pb_model_close(&exact);
}

/* An f32 model with as_bf16 gets the values of the bf16 model, and in NF4 its codes. */
static void an_f32_model_can_have_bf16_values(void **state)
{
    for (int tuning = 0; tuning < PB_NTUNINGS; tuning++) {
        pb_model narrow = open_written(*state, (pb_tuning)tuning, PB_BF16, true), wide;
        pb_model_config c = narrow.cfg;
        c.dtype = PB_F32, c.as_bf16 = true;
        CHECK_OK(pb_model_open(*state, &c, &wide));
        CHECK_OK(pb_model_load_hf(&narrow, temporary, NULL));
        CHECK_OK(pb_model_load_hf(&wide, temporary, NULL));
        for (int i = 0; i < wide.n; i++) {
            const pb_param *a = &narrow.params[i], *b = &wide.params[i];
            if (b->q) assert_memory_equal(a->q, b->q, (pb_param_n(a) + 1) / 2);
            if (b->w)
                assert_true(pb_load(a->w, pb_param_n(a) / 2, a->dtype) == pb_load(b->w, pb_param_n(a) / 2, PB_F32));
        }
        pb_model_close(&narrow), pb_model_close(&wide);
    }
    unlink(in_temporary("model.safetensors"));
}

static const pb_backend *real;

static pb_status upload_a_chunk(pb_ctx *ctx, void *dev, const void *host, size_t bytes)
{
    if (bytes > 4 << 20) return pb_fail(PB_EWRONG, "a copy of %zu bytes from a buffer of 4 MB", bytes);
    return real->upload(ctx, dev, host, bytes);
}

/* The CPU context is changed to claim that it is a GPU. Tensors are then loaded through a host buffer, the largest one
 * in several chunks. */
static void a_gpu_gets_chunks(void **state)
{
    pb_ctx *ctx = *state;
    const pb_backend_id id = ctx->id;
    real = ctx->be;
    pb_backend chunks = *real;
    pb_model exact = open_written(ctx, PB_FULL, PB_F32, false), loaded = open_written(ctx, PB_FULL, PB_F32, true);
    write_rows(&exact);
    chunks.upload = upload_a_chunk;
    ctx->be = &chunks;
    ctx->id = PB_CUDA;
    const pb_status s = pb_model_load_hf(&loaded, temporary, NULL);
    ctx->be = real;
    ctx->id = id;
    CHECK_OK(s);
    assert_same_params(&loaded, &exact, &exact);
    pb_model_close(&exact), pb_model_close(&loaded);
    unlink(in_temporary("model.safetensors"));
}

static const char *const bad_indexes[][2] = {
    {"[]", "not a JSON object"},
    {"{}", "\"weight_map\" is not an object"},
    {"{\"weight_map\":{}}", "\"weight_map\" is not an object, or lists no tensors"},
    {"{\"weight_map\":{\"w\":3}}", "tensor w: its file must be given by a name without a folder"},
    {"{\"weight_map\":{\"w\":\"../x\"}}", "tensor w: its file must be given by a name without a folder"},
    {"{\"weight_map\":{\"w\":\"..\"}}", "tensor w: its file must be given by a name without a folder"},
    {"{\"weight_map\":{\"w\\n\":\"x\"}}", "the name of a tensor contains control characters"},
    {"{\"weight_map\":{\"w\":\"absent\"}}", "absent: No such file"},
    {"{\"weight_map\":{\"v\":\"a\"}}", "index.json: tensor v is missing in a"},
    {"{\"weight_map\":{\"w\":\"a\",\"x\":\"b\"}}", "/b: tensor w is also in"},
};

static void write_one(const char *file)
{
    pb_st_writer *w = NULL;
    const float one = 1;
    CHECK_OK(pb_st_create(in_temporary(file), &(pb_st_entry){"w", PB_ST_F32, 1, {1}}, 1, NULL, 0, &w));
    CHECK_OK(pb_st_append(w, &one, sizeof one));
    CHECK_OK(pb_st_commit(w));
}

static void bad_indexes_are_refused(void **state)
{
    (void)state;
    write_one("a");
    write_one("b");
    for (size_t i = 0; i < sizeof bad_indexes / sizeof *bad_indexes; i++) {
        pb_hf_folder folder = {0};
        FILE *f = fopen(in_temporary("model.safetensors.index.json"), "w");
        assert_non_null(f);
        fputs(bad_indexes[i][0], f);
        fclose(f);
        const pb_status want = strstr(bad_indexes[i][1], "No such") ? PB_EPATH : PB_EINVAL;
        CHECK_FAILS(pb_hf_folder_open(temporary, &folder), want, bad_indexes[i][1]);
    }
    unlink(in_temporary("model.safetensors.index.json"));
    unlink(in_temporary("a"));
    unlink(in_temporary("b"));
    assert_int_equal(rmdir(temporary), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tuning_loads_what_was_written),
        cmocka_unit_test(an_f32_model_can_have_bf16_values),
        cmocka_unit_test(a_gpu_gets_chunks),
        cmocka_unit_test(bad_indexes_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
