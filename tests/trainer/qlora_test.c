/* qlora_test.c - tests that the loss falls steadily when adapters are trained over an NF4 base (QLoRA). A smaller
 * version of the test scripts/qlora-falls. */
#include "tests/test.h"
#include "trainer/data/shipped.h"
#include "trainer/step/trainer.h"

/* Losses are averaged over WINDOW steps. WINDOW is even, so that each window has both batches equally often. */
enum { MOST_TOKENS = 256, STEPS = 84, WINDOW = 12, WINDOWS = STEPS / WINDOW };

typedef struct fall {
    const char *model;
    int layers, B, S;
    float lr;
    double ratio; /* largest allowed ratio of the last window's mean loss to the first's */
} fall;

static pb_trainer *open_qlora(pb_ctx *ctx, const fall *f)
{
    const pb_geometry *g;
    pb_trainer *t = NULL;
    CHECK_OK(pb_geometry_find(f->model, &g));
    pb_train_config c = pb_train_defaults(g);
    c.model.tuning = PB_QLORA;
    c.model.layers = f->layers;
    c.model.targets = (1u << PB_NTARGETS) - 1;
    c.clip = PB_CLIP_FUSED;
    c.lr = f->lr;
    c.B = f->B;
    c.S = f->S;
    CHECK_OK(pb_trainer_open(ctx, &c, &t));
    return t;
}

/* Trains for STEPS steps on two batches in turn. Adds to mean[i] the mean loss of steps i*WINDOW to (i+1)*WINDOW -
 * 1. */
static void train(pb_ctx *ctx, pb_trainer *t, const pb_dataset *text, const fall *f, double *mean)
{
    static int32_t ids[MOST_TOKENS], targets[MOST_TOKENS];
    static float mask[MOST_TOKENS];
    pb_adamw_state state;
    for (int i = 0; i < STEPS; i++) {
        double loss;
        pb_dataset_batch(text, f->B, (size_t)(i % 2), &(pb_rows){ids, targets, mask});
        CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = ids, .targets = targets, .mask = mask}));
        CHECK_OK(pb_train_step(ctx, t));
        CHECK_OK(pb_trainer_loss(t, &loss));
        assert_true(isfinite(loss));
        mean[i / WINDOW] += loss / WINDOW;
    }
    CHECK_OK(pb_trainer_state(t, &state));
    assert_int_equal(state.skipped, 0);
}

static uint64_t bits(const pb_model *m)
{
    uint64_t h = 1469598103934665603u;
    for (int i = 0; i < m->n; i++) {
        const size_t n = pb_param_n(&m->params[i]) / 2;
        if (!m->params[i].q) continue;
        uint8_t *q = test_fetch(m->ctx, m->params[i].q, n);
        for (size_t k = 0; k < n; k++) h = (h ^ q[k]) * 1099511628211u;
        free(q);
    }
    return h;
}

static void check_fall(pb_ctx *ctx, const fall *f)
{
    char path[1024];
    pb_dataset *text = NULL;
    double mean[WINDOWS] = {0};
    CHECK_OK(pb_byte_stream_open(pb_shipped_path(path, sizeof path), f->S, 42, &text));
    pb_trainer *t = open_qlora(ctx, f);
    const uint64_t before = bits(pb_trainer_model(t));
    train(ctx, t, text, f, mean);
    print_message("%s: mean loss of %d steps each:", f->model, WINDOW);
    for (int i = 0; i < WINDOWS; i++) print_message(" %.4f", mean[i]);
    print_message("\n");
    for (int i = 1; i < WINDOWS; i++) assert_true(mean[i] < mean[i - 1]);
    assert_true(mean[WINDOWS - 1] <= f->ratio * mean[0]);
    assert_true(bits(pb_trainer_model(t)) == before); /* the base is frozen */
    pb_trainer_close(t);
    pb_dataset_close(text);
}

/* With a learning rate of 1e-2 the windows stop falling after 60 steps for one seed of the data in six, and which one
 * depends on the processor's order of summation. With 3e-3 each of six seeds falls in every window, to 0.91 or
 * below. */
static void loss_of_tiny_falls(void **state) { check_fall(*state, &(fall){"tiny", 0, 4, 64, 3e-3f, 0.95}); }

static void loss_of_smollm2_falls(void **state) { check_fall(*state, &(fall){"smollm2-135m", 1, 1, 24, 2e-3f, 0.7}); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_of_tiny_falls),
        cmocka_unit_test(loss_of_smollm2_falls),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
