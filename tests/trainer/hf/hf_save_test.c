/* hf_save_test.c - tests of writing models as Hugging Face folders: a written model loads back bit for bit, merging an
 * adapter into weights w computes w + alpha/rank B A, and models that a folder cannot represent are refused. */
#include "kernels/nf4/nf4.h"
#include "tests/folder_test.h"
#include "tests/trainer/hf/model_test.h"
#include "trainer/hf/hf_config.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/hf_save.h"
#include "trainer/hf/peft.h"
#include "trainer/io/safetensors.h"

static bool exists(const char *name) { return access(in_folder(name), F_OK) == 0; }

static void assert_same_geometry(const pb_geometry *a, const pb_geometry *b)
{
    const pb_geometry x = *a, y = *b;
    const pb_rope_scaling *r = &a->rope, *q = &b->rope;
    assert_true(r->kind == q->kind && r->factor == q->factor && r->original_len == q->original_len);
    assert_true(r->low_freq == q->low_freq && r->high_freq == q->high_freq && r->attention == q->attention);
    assert_true(r->beta_fast == q->beta_fast && r->beta_slow == q->beta_slow && r->truncate == q->truncate);
    assert_true(x.family == y.family && x.V == y.V && x.D == y.D && x.L == y.L && x.H == y.H && x.K == y.K);
    assert_true(x.d == y.d && x.I == y.I && x.eps == y.eps && x.theta == y.theta && x.max_pos == y.max_pos);
    assert_true(x.tied == y.tied && x.bias == y.bias && x.o_bias == y.o_bias && x.qk_norm == y.qk_norm &&
                x.keep == y.keep);
}

/* ---- saving whole models -------------------------------------------------------------------------------- */

static void comes_back(pb_ctx *ctx, const pb_model *m, const char *dir)
{
    pb_hf_config c;
    pb_load_report r;
    CHECK_OK(pb_hf_config_open(dir, &c));
    assert_same_geometry(&m->g, &c.g);
    pb_model back = open_model(ctx, &c.g, PB_FULL, m->cfg.dtype, 99);
    CHECK_OK(pb_model_load_hf(&back, dir, &r));
    assert_int_equal(r.unused, 0);
    assert_int_equal(back.n, m->n);
    for (int i = 0; i < m->n; i++) assert_same_param(&m->params[i], &back.params[i]);
    pb_model_close(&back);
}

/* Writes several models into one folder: as one file, as many shards, and as one file again. Each loads back
 * unchanged. */
static void saved_models_load_unchanged(void **state)
{
    pb_ctx *ctx = *state;
    static const size_t shards[] = {0, 60000, 0};
    for (int i = 0; i < MODELS * PB_NFLOAT; i++) {
        const pb_geometry *g;
        CHECK_OK(pb_geometry_find(models[i / PB_NFLOAT], &g));
        for (int k = 0; k < 3; k++) {
            pb_model m = open_model(ctx, g, PB_FULL, (pb_dtype)(i % PB_NFLOAT), (uint64_t)(7 + k));
            CHECK_OK(pb_model_save_hf(&m, in_folder("model"), &(pb_hf_save_config){.shard = shards[k]}));
            assert_true(exists("model/model.safetensors.index.json") == (k == 1));
            assert_true(exists("model/model.safetensors") == (k != 1));
            comes_back(ctx, &m, in_folder("model"));
            pb_model_close(&m);
        }
    }
}

static void files_respect_the_shard_size(void **state)
{
    pb_ctx *ctx = *state;
    const pb_geometry *g;
    enum { FILES = 7, MOST = 100000 };
    size_t tensors = 0;
    CHECK_OK(pb_geometry_find("tiny", &g));
    pb_model m = open_model(ctx, g, PB_FULL, PB_F32, 7);
    CHECK_OK(pb_model_save_hf(&m, in_folder("cut"), &(pb_hf_save_config){.shard = MOST}));
    for (int i = 1; i <= FILES; i++) {
        char name[64];
        size_t bytes = 0;
        pb_safetensors *f = NULL;
        snprintf(name, sizeof name, "cut/model-%05d-of-%05d.safetensors", i, FILES);
        CHECK_OK(pb_st_open(in_folder(name), &f));
        assert_string_equal(pb_st_metadata(f, "format"), "pt"); /* transformers refuses a file without it */
        for (size_t k = 0; k < pb_st_count(f); k++) bytes += pb_st_at(f, k)->bytes;
        assert_true(bytes && bytes <= MOST);
        tensors += pb_st_count(f);
        pb_st_close(f);
    }
    assert_int_equal(tensors, 2 + 2 * 12);
    pb_model_close(&m);
}

/* Rotary scaling and biases are written and read back. */
static void saved_configurations_load_unchanged(void **state)
{
    (void)state;
    static const char *const folders[] = {"qwen2", "qwen3", "llama"};
    for (int i = 0; i < 4; i++) {
        char dir[512];
        pb_hf_config c, back;
        snprintf(dir, sizeof dir, PB_FIXTURES "/hf/%s", folders[i % 3]);
        CHECK_OK(pb_hf_config_open(dir, &c));
        if (i == 3) { /* linear scaling does not use original_len, but reading sets it for every kind of scaling */
            c.g.rope = (pb_rope_scaling){.kind = PB_ROPE_LINEAR, .factor = 2.5, .original_len = c.g.max_pos};
            c.g.theta = 12345.678;
        }
        CHECK_OK(pb_hf_config_save(&c.g, PB_BF16, test_folder));
        CHECK_OK(pb_hf_config_open(test_folder, &back));
        assert_same_geometry(&c.g, &back.g);
    }
}

/* ---- saving with merged adapters ------------------------------------------------------------------------ */

enum { D = 36, I = 30000, R = 4 };
/* A geometry whose tensors begin inside an NF4 block, or are larger than one chunk. */
static const pb_geometry odd = {.name = "odd",
                                .family = PB_FAMILY_LLAMA,
                                .V = 40,
                                .D = D,
                                .L = 1,
                                .H = 5,
                                .K = 1,
                                .d = 6,
                                .I = I,
                                .eps = 1e-5f,
                                .theta = 1e4,
                                .max_pos = 64};

static double weight(const pb_param *p, size_t i)
{
    if (!p->q) return pb_load(p->w, i, p->dtype);
    const int code = i % 2 ? p->q[i / 2] & 15 : p->q[i / 2] >> 4;
    const pb_nf4_scales *s = &p->scales;
    const size_t j = i / (size_t)s->block;
    if (s->absmax) return (double)pb_nf4_level[code] * (double)s->absmax[j];
    const float product = s->code[s->absmax_q[j]] * s->absmax2[j / 256], scale = product + *s->offset;
    return (double)pb_nf4_level[code] * (double)scale;
}

static double best(const pb_param *p, size_t i)
{
    return p->master ? (double)p->master[i] : pb_load(p->w, i, p->dtype);
}

static void check_merged(const pb_model *m, const pb_model *merged, pb_target t, int param, double tol)
{
    int in, out, offset;
    const pb_param *p = pb_layer_param(m, 0, param), *a = m->lora_a[t], *b = m->lora_b[t];
    pb_target_shape(&m->g, t, &in, &out, &offset);
    for (size_t r = 0; r < (size_t)out; r++)
        for (size_t c = 0; c < (size_t)in; c++) {
            const size_t i = ((size_t)offset + r) * (size_t)in + c;
            double want = 0;
            for (size_t k = 0; k < R; k++) want += best(b, r * R + k) * best(a, k * (size_t)in + c);
            want = weight(p, i) + (double)m->cfg.alpha / R * want;
            const double got = pb_load(pb_layer_param(merged, 0, param)->w, i, m->cfg.dtype);
            if (!(fabs(got - want) <= tol * fabs(want) + 1e-6))
                fail_msg("%s[%zu,%zu] = %.9g, want %.9g", p->name, r, c, got, want);
        }
}

/* Opens `odd` over NF4 with scales in 8 bits. blank: without base weights. */
static pb_model open_narrow(pb_ctx *ctx, pb_dtype dtype, bool blank)
{
    pb_model plain = open_model(ctx, &odd, PB_QLORA, dtype, 3), m;
    pb_model_config c = plain.cfg;
    pb_model_close(&plain);
    c.nf4_double = true;
    c.blank = blank;
    CHECK_OK(pb_model_open(ctx, &c, &m));
    return m;
}

/* A parameter larger than a chunk is loaded in several, whose scales are quantised together. */
static void chunks_have_the_scales_of_the_whole(void **state)
{
    pb_ctx *ctx = *state;
    pb_model full = open_model(ctx, &odd, PB_FULL, PB_F32, 3);
    CHECK_OK(pb_model_save_hf(&full, in_folder("whole"), NULL));
    pb_model want = open_narrow(ctx, PB_F32, false), got = open_narrow(ctx, PB_F32, true);
    CHECK_OK(pb_model_load_hf(&got, in_folder("whole"), NULL));
    size_t largest = 0;
    for (int i = 0; i < want.n; i++) {
        const pb_param *x = &want.params[i], *y = &got.params[i];
        if (!x->q) continue;
        const size_t blocks = (pb_param_n(x) + 63) / 64;
        largest = pb_param_n(x) > largest ? pb_param_n(x) : largest;
        assert_memory_equal(x->q, y->q, (pb_param_n(x) + 1) / 2);
        assert_memory_equal(x->scales.absmax_q, y->scales.absmax_q, blocks);
        assert_memory_equal(x->scales.absmax2, y->scales.absmax2, (blocks + 255) / 256 * sizeof(float));
        assert_true(*x->scales.offset == *y->scales.offset && *x->scales.offset > 0);
    }
    assert_true(largest > 1 << 20);
    pb_model_close(&full), pb_model_close(&want), pb_model_close(&got);
}

static void merging_adds_the_adapters(void **state)
{
    pb_ctx *ctx = *state;
    static const int param[PB_NTARGETS] = {PB_P_qkv, PB_P_qkv, PB_P_qkv, PB_P_o, PB_P_gate_up, PB_P_gate_up, PB_P_down};
    for (int i = 0; i < 3 * PB_NFLOAT; i++) {
        const pb_dtype dtype = (pb_dtype)(i % PB_NFLOAT);
        pb_model m = i >= 2 * PB_NFLOAT ? open_narrow(ctx, dtype, false)
                                        : open_model(ctx, &odd, i < PB_NFLOAT ? PB_LORA : PB_QLORA, dtype, 3);
        pb_model merged = open_model(ctx, &odd, PB_FULL, dtype, 4);
        CHECK_OK(pb_model_save_hf(&m, in_folder("merged"), &(pb_hf_save_config){.merge = true}));
        CHECK_OK(pb_model_load_hf(&merged, in_folder("merged"), NULL));
        for (int t = 0; t < PB_NTARGETS; t++)
            check_merged(&m, &merged, (pb_target)t, param[t], dtype == PB_F32 ? 0 : 1.0 / 256);
        pb_model_close(&m), pb_model_close(&merged);
    }
}

static float *logits_of(pb_ctx *ctx, pb_trainer *t, size_t n)
{
    float *out = malloc(n * sizeof *out);
    assert_non_null(out);
    run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_forward);
    CHECK_OK(pb_download(ctx, out, pb_trainer_logits(t), n * sizeof *out));
    return out;
}

static void merged_models_give_the_same_logits(void **state)
{
    pb_ctx *ctx = *state;
    for (int i = 0; i < MODELS * 2; i++) {
        pb_train_config c = config(models[i / 2], i % 2 ? PB_LORA : PB_QLORA);
        pb_trainer *tuned = open_fixture(ctx, &c);
        pb_model *m = pb_trainer_model(tuned);
        const size_t n = (size_t)T * (size_t)m->g.V;
        move_gains(m);
        CHECK_OK(pb_model_save_hf(m, in_folder("merged"), &(pb_hf_save_config){.merge = true}));
        c.model.tuning = PB_FULL;
        c.model.blank = true;
        pb_trainer *dense = open_fixture(ctx, &c);
        CHECK_OK(pb_model_load_hf(pb_trainer_model(dense), in_folder("merged"), NULL));
        float *want = logits_of(ctx, tuned, n), *got = logits_of(ctx, dense, n);
        const pb_diff d = pb_diff_arrays(want, got, n, PB_F32);
        if (!pb_diff_ok(&d, 1e-5)) fail_msg("%s: logits differ by %g", models[i / 2], d.rel);
        free(want), free(got);
        pb_trainer_close(tuned), pb_trainer_close(dense);
    }
}

/* ---- models that cannot be saved ------------------------------------------------------------------------ */

static void models_that_cannot_be_saved_are_refused(void **state)
{
    pb_ctx *ctx = *state;
    const pb_geometry *g;
    CHECK_OK(pb_geometry_find("tiny", &g));
    pb_model full = open_model(ctx, g, PB_FULL, PB_F32, 7), lora = open_model(ctx, g, PB_LORA, PB_F32, 7);
    pb_model qlora = open_model(ctx, g, PB_QLORA, PB_F32, 7);
    CHECK_FAILS(pb_model_save_hf(&lora, in_folder("no"), NULL), PB_EFORMAT, "/no: the model has adapters");
    CHECK_FAILS(pb_model_save_hf(&qlora, in_folder("no"), NULL), PB_EFORMAT, "/no: a model with base weights in NF4");
    CHECK_FAILS(pb_peft_save(&full, in_folder("no"), NULL), PB_EINVAL, "/no: the model has no adapters");
    full.g.bias = false;
    CHECK_FAILS(pb_model_save_hf(&full, in_folder("no"), NULL), PB_EFORMAT, "a qwen2 model must have biases on q, k");
    full.g.bias = full.g.qk_norm = true;
    CHECK_FAILS(pb_model_save_hf(&full, in_folder("no"), NULL), PB_EFORMAT,
                "qwen3 and doge models have norms of q and k");
    assert_false(exists("no"));
    full.g.qk_norm = false;
    CHECK_FAILS(pb_model_save_hf(&full, "/nowhere/at/all", NULL), PB_EPATH, "/nowhere/at/all: No such file");
    pb_model_close(&full), pb_model_close(&lora), pb_model_close(&qlora);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_models_load_unchanged),
        cmocka_unit_test(files_respect_the_shard_size),
        cmocka_unit_test(saved_configurations_load_unchanged),
        cmocka_unit_test(chunks_have_the_scales_of_the_whole),
        cmocka_unit_test(merging_adds_the_adapters),
        cmocka_unit_test(merged_models_give_the_same_logits),
        cmocka_unit_test(models_that_cannot_be_saved_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
