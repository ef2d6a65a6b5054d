/* v4_model_test.c - tests of models with DeepSeek-V4's attention block: results equal PyTorch's, dense and sparse
 * attention agree, and a step changes the right parameters. */
#include "tests/trainer/blocks/v4_trainer.h"
#include "trainer/data/shipped.h"
#include "trainer/step/trainer.h"

/* ---- comparison with PyTorch ---------------------------------------------------------------------- */

/* Checks one line of the fixture: a gradient's norm and product, or a loss including the indexers' own loss. `loss1`,
 * `loss2`, ... are losses after that many optimizer steps. */
static void check_line(pb_ctx *ctx, pb_trainer *t, const char *what, double norm, double product)
{
    if (strncmp(what, "loss", 4) != 0) {
        check_gradient(ctx, param_named(pb_trainer_model(t), what), norm, product);
        return;
    }
    if (what[4] != '0') run_phases(ctx, t, PB_PHASE_clip, PB_PHASE_optimizer);
    run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
    double own;
    CHECK_OK(pb_trainer_index_loss(t, &own));
    CHECK_NEAR(loss_of(t), norm, 2e-5);
    CHECK_NEAR(own, product, 2e-5);
}

/* Compares losses and gradients with the lines of the fixture, which PyTorch computed, and returns the number of lines.
 * `only`: name of the one model to compare; NULL: all. variant: "dense" or "sparse" replaces the fixture's attention,
 * which is valid if the top-k covers every compressed row; NULL: the fixture's attention. */
static int matches(pb_ctx *ctx, const char *only, const char *variant)
{
    char line[256], name[16], attention[16], what[48], open[16] = "";
    double norm, product;
    int rows, length, checked = 0;
    pb_trainer *t = NULL;
    FILE *f = fopen(PB_FIXTURES "/v4_model.csv", "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%15[^,],%15[^,],%d,%d,%47[^,],%lf,%lf", name, attention, &rows, &length, what, &norm,
                   &product) != 7)
            fail_msg("%s", line);
        if (only && strcmp(name, only) != 0) continue;
        if (strcmp(name, open) != 0) {
            const bool dense = strcmp(variant ? variant : attention, "dense") == 0;
            const bool index_loss = strcmp(name, "taught") == 0;
            pb_train_config c = v4_config(rows, length,
                                          index_loss ? WITH_INDEX_LOSS
                                          : dense    ? PB_ATTENTION_DENSE
                                                     : PB_ATTENTION_SPARSE);
            c.max_norm = 0.05f;
            pb_trainer_close(t);
            t = open_seeded(ctx, &c);
            memcpy(open, name, sizeof open);
        }
        check_line(ctx, t, what, norm, product);
        checked++;
    }
    fclose(f);
    pb_trainer_close(t);
    return checked;
}

static void every_gradient_matches_pytorch(void **state)
{
    assert_true(matches(*state, NULL, NULL) > 210);
    assert_true(matches(*state, "covered", "dense") > 40);
}

static void reference_ops_agree(void **state)
{
    size_t n;
    pb_ctx *ctx = *state, cpu;
    pb_train_config c = v4_config(1, 200, PB_ATTENTION_SPARSE);
    CHECK_OK(pb_ctx_open(&cpu, PB_CPU, 0));
    cpu.impl = "ref";
    pb_trainer *fast = open_seeded(ctx, &c), *ref = open_seeded(&cpu, &c);
    run_phases(ctx, fast, PB_PHASE_forward, PB_PHASE_backward);
    run_phases(&cpu, ref, PB_PHASE_forward, PB_PHASE_backward);
    CHECK_NEAR(loss_of(fast), loss_of(ref), 2e-6);
    float *a = snapshot(ref, true, &n);
    assert_close(a, snapshot(fast, true, &n), n, 2e-5, "gradients");
    pb_trainer_close(fast), pb_trainer_close(ref);
    pb_ctx_close(&cpu);
}

/* ---- dense and sparse attention ------------------------------------------------------------------------ */

/* Sets a batch of the shipped conversations. */
static void set_shipped(pb_trainer *t, const pb_dataset *shipped, size_t index)
{
    const pb_train_config *c = pb_trainer_config(t);
    text x = open_text(t);
    pb_dataset_batch(shipped, c->B, index, &(pb_rows){x.ids, x.targets, x.mask});
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = x.ids, .targets = x.targets, .mask = x.mask}));
    close_text(&x);
}

/* Dense and sparse attention give equal losses if the top-k covers all compressed rows: 20 steps on the shipped
 * conversations, with rows of 192 tokens and so 48 compressed rows, which is the indexer's top-k. Implementations are
 * deterministic; otherwise 20 steps would amplify the rounding of unordered sums beyond the limit. */
static void dense_and_sparse_agree_if_all_rows_are_selected(void **state)
{
    static const double tol[] = {[PB_F32] = 1e-6, [PB_BF16] = 1e-3};
    pb_ctx *ctx = *state;
    char path[1024];
    pb_dataset *shipped;
    ctx->deterministic = true;
    CHECK_OK(pb_byte_stream_open(pb_shipped_path(path, sizeof path), 192, 42, &shipped));
    for (int dtype = 0; dtype < PB_NFLOAT; dtype++) {
        pb_train_config c = v4_config(2, 192, PB_ATTENTION_DENSE);
        c.model.dtype = (pb_dtype)dtype;
        pb_trainer *dense = open_trainer(ctx, &c);
        c.attention = PB_ATTENTION_SPARSE;
        pb_trainer *sparse = open_trainer(ctx, &c);
        double first = 0;
        for (size_t step = 0; step < 20; step++) {
            set_shipped(dense, shipped, step), set_shipped(sparse, shipped, step);
            CHECK_OK(pb_train_step(ctx, dense));
            CHECK_OK(pb_train_step(ctx, sparse));
            if (!step) first = loss_of(dense);
            CHECK_NEAR(loss_of(sparse), loss_of(dense), tol[dtype] * loss_of(dense));
        }
        assert_true(loss_of(dense) < 0.8 * first); /* both have learnt */
        pb_trainer_close(dense), pb_trainer_close(sparse);
    }
    pb_dataset_close(shipped);
    ctx->deterministic = false;
}

static void sparse_attention_differs_if_rows_are_left_out(void **state)
{
    pb_ctx *ctx = *state;
    double loss[2];
    for (int i = 0; i < 2; i++) {
        pb_train_config c = v4_config(1, 320, i ? PB_ATTENTION_SPARSE : PB_ATTENTION_DENSE);
        pb_trainer *t = open_seeded(ctx, &c);
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_loss);
        loss[i] = loss_of(t);
        pb_trainer_close(t);
    }
    assert_true(fabs(loss[1] - loss[0]) > 1e-5);
}

/* ---- which parameters a step changes ------------------------------------------------------------------- */

/* moving[i]: the parameters that a step changes in layers of ratio 0, 4 and 128. The other parameters of model.def do
 * not exist in such a layer, or belong to the indexer, which changes only with index_loss. */
static const char *const moving[3] = {
    "norm1 latent latent_norm q_b kv_norm sink o_a o_b norm2 gate_up down ",
    "norm1 latent latent_norm q_b kv_norm sink ape pool_norm o_a o_b norm2 gate_up down ",
    "norm1 latent latent_norm q_b kv_norm sink ape pool_norm o_a o_b norm2 gate_up down "};

static bool should_move(const pb_param *p, bool index_loss)
{
    char word[64];
    if (p->layer < 0 || index_loss) return true;
    snprintf(word, sizeof word, "%s ", strrchr(p->name, '.') + 1);
    const char *at = strstr(moving[p->layer], word);
    return at && (at == moving[p->layer] || at[-1] == ' ');
}

static void exactly_the_trained_parameters_change(void **state)
{
    pb_ctx *ctx = *state;
    for (int variant = PB_ATTENTION_DENSE; variant <= WITH_INDEX_LOSS; variant++) {
        pb_train_config c = v4_config(1, 320, variant);
        int kept = 0;
        c.lr = 1e-2f;
        c.weight_decay = 0.5f;
        pb_trainer *t = open_seeded(ctx, &c), *was = open_seeded(ctx, &c);
        for (int step = 0; step < 3; step++) CHECK_OK(pb_train_step(ctx, t));
        for (int i = 0; i < pb_trainer_model(t)->n; i++) {
            const pb_param *p = &pb_trainer_model(t)->params[i], *q = &pb_trainer_model(was)->params[i];
            const size_t bytes = pb_param_n(p) * pb_dtype_size(p->dtype);
            void *a = test_fetch(ctx, p->w, bytes), *b = test_fetch(ctx, q->w, bytes);
            const bool moved = memcmp(a, b, bytes) != 0;
            if (moved != should_move(p, variant == WITH_INDEX_LOSS))
                fail_msg("%s has %smoved", p->name, moved ? "" : "not ");
            assert_true(p->trained == moved && !p->grad == !moved && !p->m == !moved);
            kept += !moved;
            free(a), free(b);
        }
        /* without index_loss the indexer's index_q, index_in, index_ape and index_norm stay unchanged */
        assert_int_equal(kept, variant == WITH_INDEX_LOSS ? 0 : 4);
        pb_trainer_close(t), pb_trainer_close(was);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gradient_matches_pytorch),
        cmocka_unit_test(reference_ops_agree),
        cmocka_unit_test(dense_and_sparse_agree_if_all_rows_are_selected),
        cmocka_unit_test(sparse_attention_differs_if_rows_are_left_out),
        cmocka_unit_test(exactly_the_trained_parameters_change),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
