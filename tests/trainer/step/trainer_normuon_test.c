/* trainer_normuon_test.c - training with NorMuon: which optimizer trains which tensor, the blocks of fused tensors,
 * eager and replayed steps, memory, and the NaN guard.
 *
 * A value that is not finite in an update whose gradient is finite is made by writing one into the momentum. */
#include "tests/trainer/step/trainer_fixture.h"
#include "trainer/step/matrices.h"

static pb_train_config normuon(const char *model, pb_tuning tuning, pb_dtype dtype)
{
    pb_train_config c = config(model, tuning);
    c.model.dtype = dtype;
    c.optimizer = PB_OPTIMIZER_NORMUON;
    c.normuon.rate = 10;
    c.clip = PB_CLIP_MULTI;
    return c;
}

/* ---- routing and blocks -------------------------------------------------------------------------------------- */

static void matrices_of_layers_go_to_normuon(void **state)
{
    static const struct {
        const char *model;
        pb_tuning tuning;
        bool per_head;
        int tensors, blocks;
    } want[] = {
        {"tiny", PB_FULL, false, 2 * 4, 2 * 7},              /* qkv o gate_up down; q k v o gate up down */
        {"tiny", PB_FULL, true, 2 * 4, 2 * (6 + 2 + 2 + 4)}, /* 6 heads of q, 2 of k, 2 of v */
        {"tiny", PB_LORA, false, 2 * 14, 2 * 14},            /* A and B of 7 targets */
        {"tiny", PB_QLORA, false, 2 * 14, 2 * 14},
        {"v4-tiny", PB_FULL, false, 3 * 6, 3 * (2 + 1 + 2 + 1 + 2 + 1) + 2 * 2}, /* see below */
    };
    /* A layer of v4-tiny: latent (q, kv; and values and gates in 2 of 3 layers), q_b, o_a (2 groups), o_b, gate, up,
     * down. */
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        pb_train_config c = normuon(want[i].model, want[i].tuning, PB_F32);
        c.normuon.per_head = want[i].per_head;
        pb_trainer *t = open_trainer(*state, &c);
        const pb_matrix_counts n = pb_trainer_matrices(t);
        const pb_model *m = pb_trainer_model(t);
        size_t elements = 0;
        for (int k = 0; k < m->n; k++) {
            const pb_param *p = &m->params[k];
            const bool matrix = p->trained && (p->kind == PB_KIND_MATRIX || p->kind == PB_KIND_ADAPTER);
            assert_true(p->by_rows == matrix);
            elements += matrix ? pb_param_n(p) : 0;
        }
        assert_int_equal(n.tensors, want[i].tensors);
        assert_int_equal(n.blocks, want[i].blocks);
        assert_int_equal(n.elements, elements);
        pb_trainer_close(t);
    }
}

/* Every row of every matrix is in exactly one block, and blocks do not overlap in the vector of updates. */
static void blocks_cover_all_rows_once(void **state)
{
    static const char *const models[] = {"tiny", "tiny-qwen3", "tiny-llama", "v4-tiny", "doge-tiny"};
    pb_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int heads = 0; heads < 2; heads++) {
            pb_train_config c = normuon(models[i], PB_FULL, PB_F32);
            c.model.index_loss = strncmp(models[i], "v4", 2) == 0 ? 0.1f : 0;
            c.normuon.per_head = heads;
            pb_trainer *t = open_trainer(ctx, &c);
            const pb_matrices *x = &t->matrices;
            pb_normuon_piece *p = test_fetch(ctx, x->piece_list, (size_t)x->blocks * sizeof *p);
            unsigned char *used = calloc(x->elements, 1);
            size_t sum = 0;
            assert_non_null(used);
            for (int k = 0; k < x->blocks; k++) {
                const size_t at = (size_t)((float *)p[k].u - (float *)x->u);
                for (size_t e = 0; e < p[k].n; e++) assert_int_equal(used[at + e]++, 0);
                sum += p[k].n;
                for (int other = 0; other < k; other++) assert_true(p[k].w != p[other].w);
            }
            assert_int_equal(sum, x->elements);
            free(used), free(p);
            pb_trainer_close(t);
        }
}

/* ---- one step ------------------------------------------------------------------------------------------------- */

/* On a CPU a and b must have equal bits. On a GPU the products of a single block and those of many blocks add in other
 * orders. */
static void assert_same_block(pb_ctx *ctx, const float *a, const float *b, size_t n)
{
    float *x = test_fetch(ctx, a, n * sizeof *x), *y = test_fetch(ctx, b, n * sizeof *y);
    const pb_diff d = pb_diff_arrays(x, y, n, PB_F32);
    if (ctx->id == PB_CPU) assert_memory_equal(x, y, n * sizeof *x);
    assert_true(d.rel <= 1e-4);
    free(x), free(y);
}

/* The rows of k in layer 1's qkv get the same update from a training step as from the NorMuon ops called on these rows
 * alone. */
static void a_block_is_trained_as_a_matrix_of_its_own(void **state)
{
    pb_ctx *ctx = *state;
    pb_train_config c = normuon("tiny", PB_FULL, PB_F32);
    pb_trainer *t = open_fixture(ctx, &c);
    const pb_model *m = pb_trainer_model(t);
    const pb_param *p = param_named(m, "layers.1.qkv");
    const size_t first = (size_t)m->g.H * (size_t)m->g.d, rows = (size_t)m->g.K * (size_t)m->g.d, n = rows * p->cols;
    float *was = test_fetch(ctx, (float *)p->w + first * p->cols, n * 4);
    run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_clip);
    pb_clip_state clip;
    CHECK_OK(pb_trainer_clip_states(t, &clip));
    float *w = test_on_device(ctx, was, n * 4), *v = test_on_device(ctx, NULL, rows * 4),
          *factor = test_on_device(ctx, NULL, rows * 4);
    float *mom = test_on_device(ctx, NULL, n * 4), *u = test_on_device(ctx, NULL, n * 4),
          *grad = test_on_device(ctx, NULL, n * 4);
    CHECK_OK(pb_copy(ctx, grad, p->sum + first * p->cols, n * 4));
    pb_clip_state *clips = test_on_device(ctx, &clip, sizeof clip);
    pb_adamw_state *lr = test_on_device(ctx, &(pb_adamw_state){.lr = c.lr}, sizeof *lr);
    CHECK_OK(pb_phase_optimizer(ctx, t));
    const pb_normuon_when when = {.clip = clips, .nclip = 1, .scale_gradients = true};
    const pb_normuon_piece piece = {.w = w,
                                    .grad = grad,
                                    .m = mom,
                                    .u = u,
                                    .factor = factor,
                                    .n = n,
                                    .rows = (int)rows,
                                    .cols = (int)p->cols,
                                    .decay = c.weight_decay};
    const pb_normuon_block block = {.u = u, .v = v, .factor = factor, .rows = (int)rows, .cols = (int)p->cols};
    pb_normuon_piece *pieces = test_on_device(ctx, &piece, sizeof piece);
    pb_normuon_block *blocks = test_on_device(ctx, &block, sizeof block);
    CHECK_OK(pb_normuon_momentum(
        ctx,
        &(pb_normuon_momentum_args){.list = pieces, .when = when, .elements = n, .n = 1, .mu = 0.95f, .keep = true}));
    CHECK_OK(pb_newton_schulz_run(ctx, &(pb_newton_schulz_run_args){.x = u,
                                                                    .y = u,
                                                                    .n = 1,
                                                                    .R = (int)rows,
                                                                    .C = (int)p->cols,
                                                                    .variant = PB_NS_POLAR_EXPRESS,
                                                                    .steps = 5,
                                                                    .eps = 1e-8f}));
    CHECK_OK(pb_normuon_rows(
        ctx,
        &(pb_normuon_rows_args){.list = blocks, .when = when, .elements = n, .rows = rows, .n = 1, .beta2 = 0.95f}));
    CHECK_OK(pb_normuon_apply(
        ctx, &(pb_normuon_apply_args){.list = pieces, .when = when, .state = lr, .elements = n, .n = 1, .rate = 10}));
    assert_same_block(ctx, (float *)p->w + first * p->cols, w, n);
    assert_same_block(ctx, (float *)p->v + first, v, rows);
    void *const all[] = {w, v, factor, mom, u, grad, clips, lr, pieces, blocks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) pb_release(ctx, all[i]);
    free(was);
    pb_trainer_close(t);
}

/* Tensors that NorMuon does not train get the step of AdamW, and all others another one. */
static void other_tensors_are_trained_by_adamw(void **state)
{
    pb_ctx *ctx = *state;
    pb_train_config c = normuon("tiny", PB_FULL, PB_F32);
    pb_trainer *a = open_fixture(ctx, &c);
    c.optimizer = PB_OPTIMIZER_ADAMW;
    pb_trainer *b = open_fixture(ctx, &c);
    CHECK_OK(pb_train_step(ctx, a));
    CHECK_OK(pb_train_step(ctx, b));
    const pb_model *m = pb_trainer_model(a), *other = pb_trainer_model(b);
    int same = 0;
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        float *x = test_fetch(ctx, p->w, pb_param_n(p) * 4),
              *y = test_fetch(ctx, other->params[i].w, pb_param_n(p) * 4);
        const bool equal = memcmp(x, y, pb_param_n(p) * 4) == 0;
        assert_true(equal == !p->by_rows);
        same += equal;
        free(x), free(y);
    }
    assert_int_equal(same, 1 + 2 * 3 + 1); /* embedding; two gains and the bias of each layer; the last gain */
    assert_true(m->moments.size < other->moments.size);
    pb_trainer_close(a), pb_trainer_close(b);
}

static float *three_steps(pb_ctx *ctx, const pb_train_config *c, bool graph, size_t *n)
{
    pb_trainer *t = open_fixture(ctx, c);
    pb_graph *g = NULL;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(pb_trainer_set_lr(t, 1e-3f * (float)(i + 1)));
        if (i == 1 && graph) CHECK_OK(pb_record(ctx, pb_train_step, t, &g));
        CHECK_OK(g ? pb_replay(ctx, g) : pb_train_step(ctx, t));
    }
    pb_graph_free(ctx, g);
    float *all = snapshot(t, false, n);
    pb_trainer_close(t);
    return all;
}

/* Also: the learning rate of a replayed step is that of its time, not that of the recording. */
static void a_replayed_step_has_the_bits_of_an_eager_one(void **state)
{
    for (int v = 0; v < PB_NNS; v++) {
        pb_train_config c = normuon("tiny", v ? PB_FULL : PB_LORA, v == 1 ? PB_BF16 : PB_F32);
        size_t n;
        c.normuon.variant = (pb_ns_variant)v;
        c.normuon.guard = v == 1;
        float *eager = three_steps(*state, &c, false, &n);
        assert_same(eager, three_steps(*state, &c, true, &n), n);
    }
}

static void training_lowers_the_loss(void **state)
{
    pb_ctx *ctx = *state;
    for (int v = 0; v < PB_NNS; v++) {
        pb_train_config c = normuon("tiny", PB_FULL, PB_F32);
        c.normuon.variant = (pb_ns_variant)v;
        pb_trainer *t = open_fixture(ctx, &c);
        CHECK_OK(pb_train_step(ctx, t));
        const double before = loss_of(t);
        for (int i = 0; i < 8; i++) CHECK_OK(pb_train_step(ctx, t));
        assert_true(loss_of(t) < 0.8 * before);
        pb_trainer_close(t);
    }
}

/* ---- the NaN guard ---------------------------------------------------------------------------------------------- */

/* Writes `value` into the momentum of layer 1's o, and returns the value that was there. */
static float poison(pb_trainer *t, float value)
{
    const pb_param *p = param_named(pb_trainer_model(t), "layers.1.o");
    float *was = test_fetch(t->ctx, (float *)p->m + 5, sizeof *was);
    const float x = *was;
    free(was);
    CHECK_OK(pb_upload(t->ctx, (float *)p->m + 5, &value, sizeof value));
    return x;
}

static pb_train_config guarded(pb_guard_momentum momentum)
{
    pb_train_config c = normuon("tiny", PB_FULL, PB_F32);
    c.normuon.guard = true;
    c.normuon.momentum = momentum;
    return c;
}

static void expect(pb_trainer *t, int steps, int skipped, int by_guard)
{
    pb_adamw_state s;
    CHECK_OK(pb_trainer_state(t, &s));
    assert_int_equal(s.step, steps);
    assert_int_equal(s.skipped, skipped);
    assert_int_equal(s.guarded, by_guard);
}

/* Copies weights and second moments (which 0) or momenta (1) of all trained tensors. */
static float *part(pb_trainer *t, int which, size_t *n)
{
    const pb_model *m = pb_trainer_model(t);
    float *all = calloc(m->trained * 2, sizeof *all), *at = all;
    assert_non_null(all);
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        const size_t v = which ? 0 : pb_param_v_n(p);
        if (!p->trained) continue;
        CHECK_OK(pb_download(m->ctx, at, which ? p->m : p->w, pb_param_n(p) * 4));
        CHECK_OK(pb_download(m->ctx, at + pb_param_n(p), p->v, v * 4));
        at += pb_param_n(p) + v;
    }
    *n = (size_t)(at - all);
    return all;
}

static void guard_off_lets_nan_propagate(void **state)
{
    static const float bad[] = {NAN, INFINITY};
    pb_ctx *ctx = *state;
    for (int i = 0; i < 2; i++) {
        pb_train_config c = normuon("tiny", PB_FULL, PB_F32);
        pb_trainer *t = open_fixture(ctx, &c);
        CHECK_OK(pb_train_step(ctx, t));
        poison(t, bad[i]);
        CHECK_OK(pb_train_step(ctx, t));
        const pb_param *p = param_named(pb_trainer_model(t), "layers.1.o");
        float *w = test_fetch(ctx, p->w, pb_param_n(p) * 4);
        int wild = 0;
        for (size_t k = 0; k < pb_param_n(p); k++) wild += !isfinite(w[k]);
        assert_true(wild > 0);
        expect(t, 2, 0, 0);
        free(w);
        pb_trainer_close(t);
    }
}

static void guard_on_skips_the_step(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    pb_ctx *ctx = *state;
    for (int i = 0; i < 3; i++)
        for (int graph = 0; graph < 2; graph++) {
            pb_train_config c = guarded(PB_GUARD_RESTORE);
            pb_trainer *t = open_fixture(ctx, &c);
            pb_graph *g = NULL;
            size_t n;
            CHECK_OK(pb_train_step(ctx, t));
            if (graph) CHECK_OK(pb_record(ctx, pb_train_step, t, &g));
            const float was = poison(t, bad[i]);
            float *before = part(t, 0, &n);
            CHECK_OK(g ? pb_replay(ctx, g) : pb_train_step(ctx, t));
            assert_same(before, part(t, 0, &n), n);
            expect(t, 1, 1, 1);
            poison(t, was); /* the fault was transient: the next step is taken */
            CHECK_OK(g ? pb_replay(ctx, g) : pb_train_step(ctx, t));
            expect(t, 2, 1, 1);
            pb_graph_free(ctx, g);
            pb_trainer_close(t);
        }
}

static void guard_on_does_not_block_a_normal_step(void **state)
{
    for (int momentum = 0; momentum < PB_NGUARDS; momentum++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            pb_train_config c = normuon("tiny", PB_FULL, bf16 ? PB_BF16 : PB_F32);
            c.normuon.nesterov = bf16;
            size_t n;
            float *off = three_steps(*state, &c, false, &n);
            c.normuon.guard = true;
            c.normuon.momentum = (pb_guard_momentum)momentum;
            assert_same(off, three_steps(*state, &c, false, &n), n);
        }
}

/* A skipped step whose fault is transient leaves no trace with `restore`: the run has the bits of one without it. With
 * `keep` the momentum has added the gradient. */
static void the_momentum_is_restored_or_kept(void **state)
{
    pb_ctx *ctx = *state;
    for (int momentum = 0; momentum < PB_NGUARDS; momentum++) {
        pb_train_config c = guarded((pb_guard_momentum)momentum);
        pb_trainer *t = open_fixture(ctx, &c);
        size_t n, changed = 0, wild = 0;
        CHECK_OK(pb_train_step(ctx, t));
        float *before = part(t, 1, &n);
        const float was = poison(t, NAN);
        CHECK_OK(pb_train_step(ctx, t));
        poison(t, was);
        float *after = part(t, 1, &n);
        for (size_t i = 0; i < n; i++) changed += before[i] != after[i], wild += !isfinite(after[i]);
        assert_int_equal(wild, 0);
        if (momentum == PB_GUARD_RESTORE) assert_int_equal(changed, 0);
        else assert_true(changed > pb_trainer_matrices(t).elements / 2);
        free(before), free(after);
        pb_trainer_close(t);
    }
}

/* Without clip states nothing else notices a gradient that is not finite. With `restore` it does not enter the
 * momentum, so training continues; with `keep` it does, and every later step is skipped. */
static void a_bad_gradient_stays_out_of_a_restored_momentum(void **state)
{
    pb_ctx *ctx = *state;
    for (int momentum = 0; momentum < PB_NGUARDS; momentum++) {
        pb_train_config c = guarded((pb_guard_momentum)momentum);
        c.clip = PB_CLIP_NONE;
        pb_trainer *t = open_fixture(ctx, &c);
        const float nan = NAN;
        CHECK_OK(pb_train_step(ctx, t));
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
        CHECK_OK(pb_upload(ctx, param_named(pb_trainer_model(t), "layers.0.down")->sum + 3, &nan, sizeof nan));
        run_phases(ctx, t, PB_PHASE_clip, PB_PHASE_optimizer);
        expect(t, 1, 1, 1);
        CHECK_OK(pb_train_step(ctx, t));
        if (momentum == PB_GUARD_RESTORE) expect(t, 2, 1, 1);
        else expect(t, 1, 2, 2);
        pb_trainer_close(t);
    }
}

/* A step that a bad norm skips is not counted as the guard's, and leaves the momentum in every case. */
static void a_bad_norm_is_not_the_guards(void **state)
{
    pb_ctx *ctx = *state;
    for (int guard = 0; guard < 2; guard++) {
        pb_train_config c = guarded(PB_GUARD_KEEP);
        c.normuon.guard = guard;
        pb_trainer *t = open_fixture(ctx, &c);
        size_t n;
        CHECK_OK(pb_train_step(ctx, t));
        float *before = snapshot(t, false, &n);
        CHECK_OK(pb_trainer_set_loss_scale(t, 3e38f));
        CHECK_OK(pb_train_step(ctx, t));
        expect(t, 1, 1, 0);
        assert_same(before, snapshot(t, false, &n), n);
        pb_trainer_close(t);
    }
}

static void the_guard_needs_no_host_sync(void **state)
{
    pb_ctx *ctx = *state;
    uint64_t launches[2];
    for (int guard = 0; guard < 2; guard++) {
        pb_train_config c = guarded(PB_GUARD_RESTORE);
        c.normuon.guard = guard;
        pb_trainer *t = open_fixture(ctx, &c);
        CHECK_OK(pb_train_step(ctx, t));
        const pb_counts before = ctx->counts;
        CHECK_OK(pb_phase_optimizer(ctx, t));
        assert_int_equal(ctx->counts.host_syncs, before.host_syncs);
        launches[guard] = ctx->counts.kernel_launches - before.kernel_launches;
        pb_trainer_close(t);
    }
    assert_true(launches[1] > launches[0]);
    if (ctx->id == PB_CPU) assert_int_equal(launches[1] - launches[0], 2); /* check and agree */
}

static void bad_settings_are_refused(void **state)
{
    pb_train_config c = normuon("tiny", PB_FULL, PB_F32);
    pb_trainer *t = NULL;
    c.normuon.mu = 1;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "momentum 1");
    c.normuon.mu = 0.9f, c.normuon.steps = 0;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "0 Newton-Schulz steps: need 1 to 10");
    c.normuon.steps = 5, c.normuon.rate = INFINITY;
    CHECK_FAILS(pb_trainer_open(*state, &c, &t), PB_EINVAL, "learning rate is inf times");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_layers_go_to_normuon),
        cmocka_unit_test(blocks_cover_all_rows_once),
        cmocka_unit_test(a_block_is_trained_as_a_matrix_of_its_own),
        cmocka_unit_test(other_tensors_are_trained_by_adamw),
        cmocka_unit_test(a_replayed_step_has_the_bits_of_an_eager_one),
        cmocka_unit_test(training_lowers_the_loss),
        cmocka_unit_test(guard_off_lets_nan_propagate),
        cmocka_unit_test(guard_on_skips_the_step),
        cmocka_unit_test(guard_on_does_not_block_a_normal_step),
        cmocka_unit_test(the_momentum_is_restored_or_kept),
        cmocka_unit_test(a_bad_gradient_stays_out_of_a_restored_momentum),
        cmocka_unit_test(a_bad_norm_is_not_the_guards),
        cmocka_unit_test(the_guard_needs_no_host_sync),
        cmocka_unit_test(bad_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
