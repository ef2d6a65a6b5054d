/* cache_test.c - tests of the KV cache: a text that is computed in parts gives the logits of one
 * forward pass over the whole text, in every family, tuning and dtype; a text can begin anew; what is refused. */
#include "tests/trainer/step/trainer_fixture.h"

enum { LENGTH = 40 };

/* Sets tokens first .. first+n-1 of a fixed text as the batch. */
static pb_status set_part(pb_trainer *t, const int32_t *ids, int first, int n)
{
    static const int32_t targets[LENGTH];
    static const float mask[LENGTH];
    return pb_trainer_set_batch(t, &(pb_batch){first > 0 ? ids + first : ids, targets, mask, .S = n, .first = first});
}

static pb_train_config text_config(const char *model, pb_tuning tuning, pb_dtype dtype, bool cached)
{
    pb_train_config c = config(model, tuning);
    c.model.frozen = true;
    c.model.dtype = dtype;
    c.cached = cached;
    c.B = 1;
    c.S = LENGTH;
    return c;
}

/* The logits [LENGTH,V] after each token of the text, computed in parts of `part` tokens: those of the last token of
 * each part; the others are 0. part 0: one forward pass without a cache, from which all logits are read. */
static float *logits_of(pb_ctx *ctx, const pb_train_config *c, const int32_t *ids, int part)
{
    pb_trainer *t = open_trainer(ctx, c);
    const size_t V = (size_t)pb_trainer_model(t)->g.V;
    float *z = calloc(LENGTH * V, sizeof *z);
    assert_non_null(z);
    for (int first = 0, n; part && first < LENGTH; first += n) {
        n = LENGTH - first < part ? LENGTH - first : part;
        CHECK_OK(set_part(t, ids, first, n));
        CHECK_OK(pb_phase_forward(ctx, t));
        CHECK_OK(pb_trainer_next_logits(t, z + (size_t)(first + n - 1) * V));
    }
    for (int n = 1; !part && n <= LENGTH; n++) {
        CHECK_OK(set_part(t, ids, 0, n));
        CHECK_OK(pb_phase_forward(ctx, t));
        CHECK_OK(pb_trainer_next_logits(t, z + (size_t)(n - 1) * V));
    }
    pb_trainer_close(t);
    return z;
}

/* || a - b || / || b || over the rows of a that are not 0. */
static double apart(const float *a, const float *b, size_t V)
{
    double sum = 0, norm = 0;
    for (size_t i = 0; i < LENGTH * V; i++) {
        if (a[i / V * V] == 0 && a[i / V * V + 1] == 0) continue;
        const double d = (double)a[i] - (double)b[i];
        sum += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(sum / norm);
}

static void seeded(int32_t *ids, int V)
{
    for (int i = 0; i < LENGTH; i++) ids[i] = (int32_t)(pb_uniform(17, (uint64_t)i) * V);
}

/* The two paths do the same operations on the same numbers, in other tiles: they differ by rounding of f32, and in bf16
 * by roundings of activations that f32 sums of another order can flip. */
static void parts_give_the_logits_of_the_whole_text(void **state)
{
    static const char *const models[] = {"tiny", "tiny-qwen3", "tiny-llama", "doge-tiny"};
    static const int parts[] = {1, 7, LENGTH};
    for (int i = 0; i < 4 * PB_NTUNINGS * PB_NFLOAT; i++) {
        const pb_dtype dtype = (pb_dtype)(i / 4 / PB_NTUNINGS);
        pb_train_config c = text_config(models[i % 4], (pb_tuning)(i / 4 % PB_NTUNINGS), dtype, false);
        const double bound = dtype == PB_F32 ? 5e-6 : 2e-2;
        int32_t ids[LENGTH];
        seeded(ids, c.model.geometry->V);
        float *whole = logits_of(*state, &c, ids, 0);
        c.cached = true;
        for (int k = 0; k < 3; k++) {
            c.loss_chunk = k % 2;
            float *some = logits_of(*state, &c, ids, parts[k]);
            const double d = apart(some, whole, (size_t)c.model.geometry->V);
            if (!(d <= bound)) fail_msg("%s, case %d, parts of %d: logits differ by %g", models[i % 4], i, parts[k], d);
            free(some);
        }
        free(whole);
    }
}

/* Another text in the same trainer, shorter than the one before, and a part that is computed again. */
static void a_text_can_begin_anew(void **state)
{
    pb_train_config c = text_config("tiny-qwen3", PB_LORA, PB_F32, true);
    const size_t V = (size_t)c.model.geometry->V;
    int32_t ids[LENGTH];
    float *first = malloc(V * sizeof *first), *again = malloc(V * sizeof *again);
    assert_true(first && again);
    seeded(ids, c.model.geometry->V);
    pb_trainer *t = open_trainer(*state, &c);
    CHECK_OK(set_part(t, ids, 0, 9));
    CHECK_OK(pb_phase_forward(*state, t));
    CHECK_OK(pb_trainer_next_logits(t, first));
    CHECK_OK(set_part(t, ids, 9, 20));
    CHECK_OK(pb_phase_forward(*state, t));
    CHECK_OK(set_part(t, ids, 5, 4)); /* tokens 5 to 8 once more */
    CHECK_OK(pb_phase_forward(*state, t));
    CHECK_OK(pb_trainer_next_logits(t, again));
    for (size_t i = 0; i < V; i++) CHECK_NEAR((double)again[i], (double)first[i], 1e-5);
    CHECK_FAILS(set_part(t, ids, 10, 1), PB_EINVAL, "need 0 to 9");
    CHECK_OK(set_part(t, ids, 0, 9));
    CHECK_OK(pb_phase_forward(*state, t));
    CHECK_OK(pb_trainer_next_logits(t, again));
    assert_memory_equal(first, again, V * sizeof *first);
    pb_trainer_close(t);
    free(first), free(again);
}

static void what_a_cache_cannot_do_is_refused(void **state)
{
    pb_train_config c = text_config("tiny", PB_FULL, PB_F32, true);
    pb_trainer *t = NULL;
    int32_t ids[LENGTH] = {0};
    c.B = 2;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "batch 1");
    c.B = 1, c.packed = true;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "not packed");
    c.packed = false, c.model.frozen = false;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "frozen");
    pb_train_config v4 = text_config("v4-tiny", PB_FULL, PB_F32, true);
    CHECK_FAILS(pb_trainer_open(*state, &v4, &t), PB_EINVAL, "v4-tiny has no KV cache");
    c.model.frozen = true;
    t = open_trainer(*state, &c);
    CHECK_FAILS(set_part(t, ids, 1, 1), PB_EINVAL, "need 0 to 0");
    CHECK_FAILS(set_part(t, ids, -1, 1), PB_EINVAL, "-1 tokens before it");
    CHECK_OK(set_part(t, ids, 0, LENGTH));
    CHECK_OK(pb_phase_forward(*state, t));
    CHECK_FAILS(set_part(t, ids, LENGTH, 1), PB_EINVAL, "has room for 40");
    pb_trainer_close(t);
    c.cached = false, c.B = 2, c.S = 3;
    t = open_trainer(*state, &c);
    CHECK_OK(set_part(t, ids, 0, 3));
    CHECK_FAILS(set_part(t, ids, 3, 1), PB_EINVAL, "need 0 to 0");
    CHECK_FAILS(pb_trainer_next_logits(t, NULL), PB_EINVAL, "2 rows");
    pb_trainer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_the_logits_of_the_whole_text),
        cmocka_unit_test(a_text_can_begin_anew),
        cmocka_unit_test(what_a_cache_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
