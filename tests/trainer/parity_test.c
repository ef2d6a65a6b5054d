/* parity_test.c - tests that a QLoRA model computes what its weights define. The trained model `tiny` (tiny_weights.c)
 * in NF4 is compared with an oracle: a plain forward pass in double precision on the same NF4 codes, and on the
 * original weights. The model's gradients are compared with finite differences of the oracle.
 *
 * The tests forward_bounds and backward_bounds_* check wide limits, which are documented. Every mutation in
 * tests/mutations that breaks the step exceeds one of them. The other tests check narrower limits, which the present
 * code meets.
 *
 * usage: parity_test [NAME_PATTERN] */
#include "kernels/engine/bind.h"
#include "tests/trainer/oracle_model.h"
#include "tests/test.h"
#include "trainer/data/shipped.h"
#include "trainer/step/trainer.h"
#include "trainer/hf/hf_config.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/peft.h"

#define MOST_LOGITS 0.10
enum { B = 2, S = 40, T = B * S };
static const double most_ce_difference = 0.5, most_ce = 6, most_fused = 0.05;

typedef struct both {
    pb_ctx ctx;
    pb_hf_config hf;
    pb_trainer *quantised, *original;
    int32_t ids[T], targets[T];
    float mask[T];
    pb_batch batch;
} both;

/* Results of one forward pass of the trainer and of the oracle. */
typedef struct outcome {
    double rel;       /* relative L2 error of the logits */
    double ce, fused; /* ce: cross entropy of the trainer's logits, computed in double; fused: the trainer's own loss */
    double want;      /* the oracle's cross entropy */
} outcome;

/* ---- opening the trained model and choosing a batch --------------------------------------------------- */

static pb_trainer *open_adapted(both *x, pb_tuning tuning)
{
    pb_peft_config p;
    pb_trainer *t = NULL;
    pb_train_config c = pb_train_defaults(&x->hf.g);
    CHECK_OK(pb_peft_config_open(PB_TINY_WEIGHTS "/adapter", &p));
    c.model.tuning = tuning;
    c.model.blank = true;
    c.model.rank = p.rank;
    c.model.alpha = p.alpha;
    c.model.targets = p.targets;
    c.B = B;
    c.S = S;
    CHECK_OK(pb_trainer_open(&x->ctx, &c, &t));
    CHECK_OK(pb_model_load_hf(pb_trainer_model(t), PB_TINY_WEIGHTS "/model", NULL));
    CHECK_OK(pb_peft_load(pb_trainer_model(t), PB_TINY_WEIGHTS "/adapter"));
    CHECK_OK(pb_trainer_set_batch(t, &x->batch));
    return t;
}

/* Finds a batch in which about half of the positions are loss tokens, so that a loss over all positions would be
 * noticed. */
static void half_counted_batch(both *x, const pb_dataset *text)
{
    for (size_t i = 0; i < 100; i++) {
        double counted = 0;
        pb_dataset_batch(text, B, i, &(pb_rows){x->ids, x->targets, x->mask});
        for (int t = 0; t < T; t++) counted += (double)x->mask[t];
        if (counted > 0.3 * T && counted < 0.7 * T) return;
    }
    fail_msg("no batch in which about half of the tokens count");
}

static int open_both(void **state)
{
    static both x;
    pb_dataset *text = NULL;
    *state = &x;
    void *ctx;
    if (test_open_device(&ctx) != 0) return -1;
    x.ctx = *(pb_ctx *)ctx;
    CHECK_OK(pb_hf_config_open(PB_TINY_WEIGHTS "/model", &x.hf));
    CHECK_OK(pb_byte_stream_open(PB_TINY_WEIGHTS "/held-out.jsonl", S, 42, &text));
    half_counted_batch(&x, text);
    pb_dataset_close(text);
    x.batch = (pb_batch){.ids = x.ids, .targets = x.targets, .mask = x.mask};
    x.quantised = open_adapted(&x, PB_QLORA);
    x.original = open_adapted(&x, PB_LORA);
    return 0;
}

static int close_both(void **state)
{
    both *x = *state;
    pb_trainer_close(x->quantised);
    pb_trainer_close(x->original);
    pb_ctx_close(&x->ctx);
    return 0;
}

/* ---- forward pass and loss ---------------------------------------------------------------------------- */

static float *as_floats(const double *x, size_t n)
{
    float *out = malloc(n * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) out[i] = (float)x[i];
    return out;
}

/* Runs the trainer's forward pass and loss, and the oracle's. poison: index of a logit to set to NaN; SIZE_MAX:
 * none. */
static outcome compare(both *x, pb_trainer *t, const oracle *o, size_t poison)
{
    const size_t V = (size_t)pb_trainer_model(t)->g.V, n = T * V;
    double *want = calloc(n, sizeof *want), *wide = calloc(n, sizeof *wide);
    float *got = calloc(n, sizeof *got);
    assert_true(want && wide && got);
    outcome r;
    CHECK_OK(pb_phases[PB_PHASE_forward](&x->ctx, t));
    CHECK_OK(pb_download(&x->ctx, got, pb_trainer_logits(t), n * sizeof *got));
    CHECK_OK(pb_phases[PB_PHASE_loss](&x->ctx, t));
    CHECK_OK(pb_trainer_loss(t, &r.fused));
    if (poison != SIZE_MAX) got[poison] = NAN;
    for (size_t i = 0; i < n; i++) wide[i] = (double)got[i];
    oracle_logits(o, x->ids, B, S, want);
    float *narrow = as_floats(want, n);
    const pb_diff d = pb_diff_arrays(narrow, got, n, PB_F32);
    r.rel = d.rel;
    r.ce = oracle_cross_entropy(wide, x->targets, x->mask, T, (int)V);
    r.want = oracle_cross_entropy(want, x->targets, x->mask, T, (int)V);
    free(want), free(wide), free(got), free(narrow);
    return r;
}

static bool within(const outcome *r)
{
    return fabs(r->ce - r->want) < most_ce_difference && r->rel < MOST_LOGITS && r->ce < most_ce &&
           fabs(r->fused - r->want) < most_ce_difference && fabs(r->fused - r->ce) < most_fused;
}

static void say(const char *what, const outcome *r)
{
    print_message("%s: CE %.6f, oracle %.6f, fused - CE %.2e, logits relL2 %.2e\n", what, r->ce, r->want,
                  r->fused - r->ce, r->rel);
}

static void forward_bounds(void **state)
{
    both *x = *state;
    oracle o = oracle_open(pb_trainer_model(x->quantised));
    const outcome r = compare(x, x->quantised, &o, SIZE_MAX), poisoned = compare(x, x->quantised, &o, 12345);
    say("NF4 against its codes in double", &r);
    assert_true(within(&r));
    assert_false(within(&poisoned));
    assert_false(poisoned.rel < MOST_LOGITS); /* checked separately: the comparison of logits must not ignore NaN */
    oracle_close(&o);
}

static void the_forward_pass_is_exact(void **state)
{
    both *x = *state;
    pb_trainer *const both_of_them[] = {x->quantised, x->original};
    for (int i = 0; i < 2; i++) {
        oracle o = oracle_open(pb_trainer_model(both_of_them[i]));
        const outcome r = compare(x, both_of_them[i], &o, SIZE_MAX);
        assert_true(r.rel <= 1e-5);
        CHECK_NEAR(r.ce, r.want, 1e-5);
        CHECK_NEAR(r.fused, r.ce, 2e-6);
        oracle_close(&o);
    }
}

/* Compares models of other families with the oracle. They have features that `tiny` lacks: norms of q and k, a head
 * that does not share the embedding, another number of query heads per key head, scales in 8 bits. All targets have
 * adapters. */
static void other_families_are_exact(void **state)
{
    both *x = *state;
    static const char *const models[] = {"tiny-qwen3", "tiny-llama"};
    for (int i = 0; i < 2; i++) {
        const pb_geometry *g;
        pb_trainer *t = NULL;
        CHECK_OK(pb_geometry_find(models[i], &g));
        assert_int_equal(g->V, x->hf.g.V); /* the batch fits this model, too */
        pb_train_config c = pb_train_defaults(g);
        c.model.tuning = PB_QLORA;
        c.model.nf4_double = i;
        c.model.random_b = true;
        c.model.targets = (1u << PB_NTARGETS) - 1;
        c.B = B;
        c.S = S;
        CHECK_OK(pb_trainer_open(&x->ctx, &c, &t));
        CHECK_OK(pb_trainer_set_batch(t, &x->batch));
        oracle o = oracle_open(pb_trainer_model(t));
        const outcome r = compare(x, t, &o, SIZE_MAX);
        say(models[i], &r);
        assert_true(r.rel <= 1e-5);
        CHECK_NEAR(r.fused, r.want, 1e-5);
        oracle_close(&o);
        pb_trainer_close(t);
    }
}

/* Changing one token leaves the logits of all earlier tokens unchanged bit for bit, in the trainer and in the
 * oracle. */
static void no_token_sees_later_tokens(void **state)
{
    both *x = *state;
    enum { CHANGED = S + 23, V = 272 };
    static float got[2][T * V];
    static double want[2][T * V];
    oracle o = oracle_open(pb_trainer_model(x->quantised));
    assert_int_equal(x->hf.g.V, V);
    for (int i = 0; i < 2; i++) {
        x->ids[CHANGED] ^= i;
        CHECK_OK(pb_trainer_set_batch(x->quantised, &x->batch));
        CHECK_OK(pb_phases[PB_PHASE_forward](&x->ctx, x->quantised));
        CHECK_OK(pb_download(&x->ctx, got[i], pb_trainer_logits(x->quantised), sizeof got[i]));
        oracle_logits(&o, x->ids, B, S, want[i]);
    }
    x->ids[CHANGED] ^= 1;
    CHECK_OK(pb_trainer_set_batch(x->quantised, &x->batch));
    assert_memory_equal(got[0], got[1], CHANGED * V * sizeof(float));
    assert_memory_equal(want[0], want[1], CHANGED * V * sizeof(double));
    assert_memory_not_equal(&got[0][CHANGED * V], &got[1][CHANGED * V], V * sizeof(float));
    assert_memory_not_equal(&want[0][CHANGED * V], &want[1][CHANGED * V], V * sizeof(double));
    oracle_close(&o);
}

static void nf4_stays_near_the_original_weights(void **state)
{
    both *x = *state;
    oracle o = oracle_open(pb_trainer_model(x->original));
    const outcome r = compare(x, x->quantised, &o, SIZE_MAX);
    say("NF4 against the original weights", &r);
    assert_true(within(&r));
    oracle_close(&o);
}

/* ---- removing parts of the oracle --------------------------------------------------------------------- */

static void clear(const oracle *o, const pb_param *p)
{
    if (p) memset(oracle_param(o, p), 0, pb_param_n(p) * sizeof(double));
}

static void without_biases(oracle *o)
{
    for (int l = 0; l < o->m->g.L; l++) clear(o, pb_layer_param(o->m, l, PB_P_qkv_bias));
}
static void without_adapters(oracle *o)
{
    for (int i = 0; i < o->m->g.L * PB_NTARGETS; i++) clear(o, o->m->lora_b[i]);
}
static void with_another_eps(oracle *o) { o->eps = 1e-5; }

/* Removing a part of the oracle must change its logits beyond the limits. Adapters are small compared with their
 * base after training, so their limit is lower, but still far above the error of the forward pass. */
static void removing_any_part_changes_the_result(void **state)
{
    both *x = *state;
    static const struct {
        const char *what;
        void (*take)(oracle *o);
        double least; /* smallest accepted relative difference of the logits */
    } parts[] = {{"without biases", without_biases, MOST_LOGITS},
                 {"without adapters", without_adapters, 0.05},
                 {"with eps 1e-5", with_another_eps, MOST_LOGITS}};
    int missed = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        oracle o = oracle_open(pb_trainer_model(x->quantised));
        parts[i].take(&o);
        const outcome r = compare(x, x->quantised, &o, SIZE_MAX);
        say(parts[i].what, &r);
        assert_true(isfinite(r.rel) && isfinite(r.want));
        missed += !(r.rel > parts[i].least);
        oracle_close(&o);
    }
    assert_int_equal(missed, 0);
}

/* ---- comparing gradients ------------------------------------------------------------------------------ */

/* Moves a trained parameter by h along a seeded direction. */
static void move(const oracle *o, const pb_param *p, double h)
{
    double *w = oracle_param(o, p);
    for (size_t i = 0; i < pb_param_n(p); i++) w[i] += h * (2 * pb_uniform(7, i) - 1);
}

/* Returns the gradient's component along that direction; *norm: the gradient's norm. */
static double along(pb_ctx *ctx, const pb_param *p, double *norm)
{
    float *grad = test_fetch(ctx, p->grad, pb_param_n(p) * sizeof *grad);
    double dot = 0, sum = 0;
    for (size_t i = 0; i < pb_param_n(p); i++) {
        dot += (double)grad[i] * (2 * pb_uniform(7, i) - 1);
        sum += (double)grad[i] * (double)grad[i];
    }
    free(grad);
    *norm = sqrt(sum);
    return dot;
}

static double size_of(const oracle *o, const pb_param *p)
{
    double sum = 0;
    for (size_t i = 0; i < pb_param_n(p); i++) sum += oracle_param(o, p)[i] * oracle_param(o, p)[i];
    return sqrt(sum / (double)pb_param_n(p));
}

/* For each trained tensor, the slope of the oracle's loss along a direction must equal the gradient's component along
 * it. */
static void backward_bounds_of_gradients(void **state)
{
    both *x = *state;
    pb_trainer *t = x->quantised;
    const pb_model *m = pb_trainer_model(t);
    oracle o = oracle_open(m);
    double worst = 0;
    for (int i = PB_PHASE_forward; i <= PB_PHASE_backward; i++) CHECK_OK(pb_phases[i](&x->ctx, t));
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        if (!p->trained) continue;
        const double h = 1e-4 * size_of(&o, p);
        move(&o, p, h);
        const double up = oracle_loss(&o, &x->batch, B, S);
        move(&o, p, -2 * h);
        const double slope = (up - oracle_loss(&o, &x->batch, B, S)) / (2 * h);
        move(&o, p, h);
        double norm;
        const double gradient = along(&x->ctx, p, &norm), error = fabs(slope - gradient) / norm;
        if (!(error <= 1e-4)) fail_msg("%s: slope %.8g, gradient %.8g, norm %.3g", p->name, slope, gradient, norm);
        worst = fmax(worst, error);
    }
    print_message("gradients against slopes of the oracle: %.2e of the gradient's norm at most\n", worst);
    oracle_close(&o);
}

/* ---- clipping gradients ------------------------------------------------------------------------------- */

static double layer_norm(const pb_model *m, int layer)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++)
        if (m->params[i].trained && m->params[i].layer == layer) {
            double norm;
            (void)along(m->ctx, &m->params[i], &norm);
            sum += norm * norm;
        }
    return sqrt(sum);
}

/* Clipping by layer must bring the joint norm of a layer to the limit, not its square or the sum of norms. */
static void backward_bounds_of_clipped_norms(void **state)
{
    both *x = *state;
    pb_trainer *t = x->quantised;
    const pb_model *m = pb_trainer_model(t);
    static const pb_clip_variant variants[] = {PB_CLIP_SYNC, PB_CLIP_FUSED};
    for (int a = 0; a < 2; a++)
        for (int layer = 0; layer < m->g.L; layer++) {
            for (int i = PB_PHASE_forward; i <= PB_PHASE_backward; i++) CHECK_OK(pb_phases[i](&x->ctx, t));
            const double before = layer_norm(m, layer), limit = before / 3;
            CHECK_OK(pb_trainer_set_clip(t, variants[a], (float)limit));
            CHECK_OK(pb_phases[PB_PHASE_clip](&x->ctx, t));
            CHECK_NEAR(layer_norm(m, layer), limit, 1e-5 * limit);
            assert_true(fabs(before - 1) > 1e-3); /* a norm of 1 would equal its square */
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_bounds),
        cmocka_unit_test(the_forward_pass_is_exact),
        cmocka_unit_test(other_families_are_exact),
        cmocka_unit_test(no_token_sees_later_tokens),
        cmocka_unit_test(nf4_stays_near_the_original_weights),
        cmocka_unit_test(removing_any_part_changes_the_result),
        cmocka_unit_test(backward_bounds_of_gradients),
        cmocka_unit_test(backward_bounds_of_clipped_norms),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_both, close_both);
}
