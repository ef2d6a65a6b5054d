/* recompute_test.c - tests of activations that the backward pass computes again: no bit of a step changes, eagerly and
 * in graphs; only what the setting names is kept; and the plan backend predicts the memory exactly. */
#include "tests/trainer/blocks/v4_trainer.h"
#include "trainer/blocks/gqa.h"
#include "trainer/step/graphs.h"

enum { STEPS = 3, MICRO = 2, V4_ROW = 200 };

/* The results of a run. */
typedef struct outcome {
    double loss[STEPS];
    float *grads, *state; /* state: weights and moments */
    size_t ngrads, nstate;
} outcome;

static void set_batch(pb_trainer *t, int number)
{
    const pb_train_config *c = pb_trainer_config(t);
    const int V = pb_trainer_model(t)->g.V, n = c->B * c->S;
    text x = open_text(t);
    seeded(&x, 0, (uint64_t)number * (uint64_t)n, (size_t)n, V);
    for (int i = 0; c->packed && i < n; i++) { /* two conversations per row; the second begins at an aligned place */
        const int s = i % c->S, begin = c->S > 128 ? 128 : c->S / 2;
        x.start[i] = s < begin ? 0 : begin;
        x.pos[i] = s - x.start[i];
    }
    CHECK_OK(pb_trainer_set_batch(t, &(pb_batch){.ids = x.ids,
                                                 .targets = x.targets,
                                                 .mask = x.mask,
                                                 .count = n,
                                                 .start = c->packed ? x.start : NULL,
                                                 .pos = c->packed ? x.pos : NULL}));
    close_text(&x);
}

/* Trains STEPS steps of MICRO micro-batches. With graphs, step 0 is eager, step 1 records and step 2 replays. */
static outcome train(pb_ctx *ctx, pb_train_config c, pb_recompute recompute, bool graph)
{
    c.recompute = recompute;
    pb_trainer *t = open_trainer(ctx, &c);
    pb_graphs g = {0};
    outcome o = {0};
    for (int step = 0; step < STEPS; step++) {
        for (int micro = 0; micro < MICRO; micro++) {
            pb_trainer_accumulate(t, micro > 0);
            set_batch(t, MICRO * step + micro);
            CHECK_OK(graph ? pb_graphs_run(&g, ctx, t, pb_train_micro) : pb_train_micro(ctx, t));
            o.loss[step] += loss_of(t);
        }
        CHECK_OK(graph ? pb_graphs_run(&g, ctx, t, pb_train_finish) : pb_train_finish(ctx, t));
    }
    if (graph) assert_int_equal(g.recorded, 3);
    o.grads = snapshot(t, true, &o.ngrads);
    o.state = snapshot(t, false, &o.nstate);
    pb_graphs_free(&g, ctx);
    pb_trainer_close(t);
    return o;
}

static void free_outcome(outcome *o) { free(o->grads), free(o->state); }

static void assert_equal(const outcome *want, const outcome *got, const char *what, const char *how, bool graph)
{
    bool same = want->ngrads == got->ngrads && want->nstate == got->nstate;
    for (int i = 0; i < STEPS; i++) same = same && isfinite(want->loss[i]) && want->loss[i] == got->loss[i];
    same = same && memcmp(want->grads, got->grads, want->ngrads * sizeof(float)) == 0;
    same = same && memcmp(want->state, got->state, want->nstate * sizeof(float)) == 0;
    if (!same)
        fail_msg("%s, recompute %s, %s: loss %.9g and %.9g", what, how, graph ? "graph" : "eager",
                 want->loss[STEPS - 1], got->loss[STEPS - 1]);
}

static const char *const words[PB_NRECOMPUTES] = {
#define X(id, word, what) word,
    PB_RECOMPUTE_MAP(X)
#undef X
};

/* DeepSeek-V4 cannot keep apart what its attention computes. */
static bool exists(const pb_train_config *c, int recompute)
{
    return !c->model.geometry->v4 || recompute != PB_RECOMPUTE_PRODUCTS;
}

/* Compares every setting with eager steps that keep all activations. Graphs and eager steps take turns over the
 * settings, and with the next `number` the other way round. */
static void compare(pb_ctx *ctx, const pb_train_config *c, const char *what, int number)
{
    ctx->deterministic = true;
    outcome want = train(ctx, *c, PB_RECOMPUTE_NONE, false);
    for (int i = PB_RECOMPUTE_NONE + 1; i < PB_NRECOMPUTES; i++) {
        const bool graph = (i + number) % 2;
        if (!exists(c, i)) continue;
        outcome got = train(ctx, *c, (pb_recompute)i, graph);
        assert_equal(&want, &got, what, words[i], graph);
        free_outcome(&got);
    }
    free_outcome(&want);
    ctx->deterministic = false;
}

/* Grouped-query attention with biases, with QK-norm and with neither; every tuning; adapters on every projection. */
static void no_bit_of_a_step_changes(void **state)
{
    static const char *const models[] = {"tiny", "tiny-qwen3", "tiny-llama", "doge-tiny"};
    for (int i = 0; i < 4 * PB_NTUNINGS; i++) {
        pb_train_config c = config(models[i % 4], (pb_tuning)(i / 4));
        c.model.dtype = i / 4 == PB_LORA ? PB_BF16 : PB_F32;
        c.packed = i % 4 % 2;
        c.clip = i % 2 ? PB_CLIP_MULTI : PB_CLIP_FUSED;
        compare(*state, &c, models[i % 4], i);
    }
}

static void no_bit_of_a_step_changes_with_v4(void **state)
{
    static const char *const names[] = {"v4 auto", "v4 dense", "v4 sparse", "v4 with index loss"};
    for (int variant = PB_ATTENTION_DENSE; variant <= WITH_INDEX_LOSS; variant++) {
        pb_train_config c = v4_config(1, V4_ROW, variant);
        c.model.dtype = variant == PB_ATTENTION_DENSE ? PB_BF16 : PB_F32;
        c.packed = variant == PB_ATTENTION_SPARSE;
        c.kv_qat = variant == PB_ATTENTION_SPARSE ? PB_KV_QAT_UE8M0 : PB_KV_QAT_NONE;
        compare(*state, &c, names[variant], variant);
    }
}

/* The backward phase overwrites nothing that it needs, so a second run gives the same gradients. */
static void the_backward_phase_can_be_repeated(void **state)
{
    pb_ctx *ctx = *state;
    ctx->deterministic = true;
    for (int i = 0; i < 2 * PB_NRECOMPUTES; i++) {
        size_t n;
        pb_train_config c = i % 2 ? v4_config(1, V4_ROW, WITH_INDEX_LOSS) : config("tiny-qwen3", PB_LORA);
        c.recompute = (pb_recompute)(i / 2);
        if (!exists(&c, i / 2)) continue;
        pb_trainer *t = open_trainer(ctx, &c);
        set_batch(t, 0);
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
        float *first = snapshot(t, true, &n);
        CHECK_OK(pb_phase_backward(ctx, t));
        assert_same(first, snapshot(t, true, &n), n);
        pb_trainer_close(t);
    }
    ctx->deterministic = false;
}

/* With a loss chunk the loss phase comes before it each time, and must find what it reads. */
static void loss_and_backward_can_be_repeated(void **state)
{
    pb_ctx *ctx = *state;
    ctx->deterministic = true;
    for (int i = 0; i < 2 * PB_NRECOMPUTES; i++) {
        size_t n;
        pb_train_config c = i % 2 ? v4_config(1, V4_ROW, 0) : config("tiny-qwen3", PB_FULL);
        c.loss_chunk = 7;
        c.recompute = (pb_recompute)(i / 2);
        if (!exists(&c, i / 2)) continue;
        pb_trainer *t = open_trainer(ctx, &c);
        set_batch(t, 0);
        run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_backward);
        const double loss = loss_of(t);
        float *first = snapshot(t, true, &n);
        run_phases(ctx, t, PB_PHASE_loss, PB_PHASE_backward);
        assert_true(loss_of(t) == loss);
        assert_same(first, snapshot(t, true, &n), n);
        pb_trainer_close(t);
    }
    ctx->deterministic = false;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The bytes of a piece of T rows of n elements in an arena. */
static size_t piece(const pb_trainer *t, size_t n, size_t e)
{
    const size_t bytes = (size_t)t->T * n * e;
    return (bytes + PB_ARENA_ALIGN - 1) / PB_ARENA_ALIGN * PB_ARENA_ALIGN;
}

/* Bytes of a layer's activations that the setting does not keep. */
static size_t not_kept(const pb_trainer *t, pb_recompute recompute)
{
    const pb_geometry *g = &t->model.g;
    const size_t e = pb_dtype_size(t->model.cfg.dtype), D = (size_t)g->D, heads = (size_t)(g->H + g->K);
    const size_t norm = piece(t, D, e) + piece(t, 1, 4), adapter = piece(t, (size_t)t->model.cfg.rank, e);
    const size_t attended = piece(t, (size_t)(g->H * g->d), e) + piece(t, (size_t)g->H, 4);
    const size_t block = piece(t, (size_t)pb_qkv_width(g), e) + piece(t, heads * (size_t)g->d, e) +
                         piece(t, (size_t)g->H, 4) + piece(t, (size_t)g->K, 4) + attended;
    const size_t attention = norm + block + 4 * adapter, mlp = norm + piece(t, 2 * (size_t)g->I, e) + 3 * adapter;
    const size_t layer = attention + mlp + piece(t, D, e); /* hm */
    const size_t less[PB_NRECOMPUTES] = {0, 2 * piece(t, D, e), attention, mlp, layer - attended, layer};
    return less[recompute];
}

/* The bytes by which the buffers that layers share differ from those of PB_RECOMPUTE_NONE: gu, if it is computed again,
 * is where its gradient is; if the whole layer is, the buffers of attention's backward pass are over hm and n2, else
 * over those of the MLP. */
static size_t shared_less(const pb_trainer *t, pb_recompute recompute)
{
    const pb_geometry *g = &t->model.g;
    const size_t e = pb_dtype_size(t->model.cfg.dtype), D = (size_t)g->D, heads = (size_t)g->H * (size_t)g->d;
    const size_t gu = piece(t, 2 * (size_t)g->I, e), mlp = gu + 2 * piece(t, (size_t)g->I, e);
    const size_t scratch = piece(t, (size_t)pb_qkv_width(g), e) + (heads > D ? piece(t, heads, e) : 0);
    const size_t stream = 2 * piece(t, D, e), both = mlp > scratch ? mlp : scratch;
    if (recompute == PB_RECOMPUTE_MLP) return gu;
    return recompute >= PB_RECOMPUTE_PRODUCTS ? gu + (both - mlp) - (scratch > stream ? scratch - stream : 0) : 0;
}

static void only_what_the_setting_names_is_kept(void **state)
{
    for (int dtype = 0; dtype < PB_NFLOAT; dtype++) {
        size_t all = 0;
        for (int i = 0; i < PB_NRECOMPUTES; i++) {
            pb_train_config c = config("tiny-qwen3", PB_LORA);
            c.model.dtype = (pb_dtype)dtype;
            c.recompute = (pb_recompute)i;
            pb_trainer *t = open_trainer(*state, &c);
            const size_t bytes = pb_trainer_memory(t).activations, less = not_kept(t, c.recompute);
            if (i == PB_RECOMPUTE_NONE) all = bytes;
            /* one set remains */
            assert_int_equal(bytes, all - (size_t)(t->model.g.L - 1) * less - shared_less(t, c.recompute));
            pb_trainer_close(t);
        }
    }
}

/* The peak of a real context that runs eager and recorded steps is the peak of the plan, to the byte. */
static void the_plan_is_exact(void **state)
{
    const pb_backend_id id = ((pb_ctx *)*state)->id;
    for (int i = 0; i < 3 * PB_NRECOMPUTES; i++) {
        pb_ctx plan, real;
        pb_trainer *t;
        pb_graph *g = NULL;
        pb_train_config c = i % 3 ? config("tiny", i % 3 == 1 ? PB_QLORA : PB_FULL) : v4_config(1, V4_ROW, 0);
        c.recompute = (pb_recompute)(i / 3);
        if (!exists(&c, i / 3)) continue;
        c.model.moments = (pb_adamw_format)(i / 3 % PB_NADAMW_FORMATS);
        c.model.nf4_double = c.model.tuning == PB_QLORA && i / 3 % 2;
        CHECK_OK(pb_ctx_open_plan(&plan, id));
        t = open_trainer(&plan, &c);
        CHECK_OK(pb_trainer_reserve(t, c.S));
        pb_trainer_close(t);
        CHECK_OK(pb_ctx_open(&real, id, 0));
        t = open_trainer(&real, &c);
        const size_t held = real.held, scratch = real.scratch_bytes;
        CHECK_OK(pb_trainer_reserve(t, c.S)); /* one block, if the scratch grows */
        assert_int_equal(real.held - held, real.scratch_bytes > scratch ? real.scratch_bytes : 0);
        for (int step = 0; step < 2; step++) {
            set_batch(t, step);
            CHECK_OK(pb_train_step(&real, t));
        }
        CHECK_OK(pb_record(&real, pb_train_step, t, &g));
        CHECK_OK(pb_replay(&real, g));
        assert_int_equal(real.held_peak, pb_plan_peak(&plan));
        pb_graph_free(&real, g);
        pb_trainer_close(t);
        pb_ctx_close(&real);
        pb_ctx_close(&plan);
    }
}

/* ---- what is computed -------------------------------------------------------------------------------------------- */

/* Repeated work is counted as work of the hardware, and not as work that the model needs. */
static void recomputed_work_is_counted_apart(void **state)
{
    pb_flops f[PB_NRECOMPUTES];
    pb_train_config c = config("tiny-llama", PB_FULL);
    const pb_geometry *g = c.model.geometry;
    const double T_ = B * S, D = g->D, heads = (double)g->H * g->d, L = g->L;
    const double qkv = 2 * T_ * D * (double)pb_qkv_width(g) * L, o = 2 * T_ * heads * D * L;
    const double gate_up = 4 * T_ * D * g->I * L, scores = 2 * T_ * S * heads * L;
    const double again[PB_NRECOMPUTES] = {0, 0, qkv + scores, gate_up, qkv + o + gate_up, qkv + scores + o + gate_up};
    for (int i = 0; i < PB_NRECOMPUTES; i++) {
        c.recompute = (pb_recompute)i;
        pb_trainer *t = open_trainer(*state, &c);
        f[i] = pb_trainer_flops(t);
        pb_trainer_close(t);
        assert_true(f[i].forward == f[0].forward);
        CHECK_NEAR(f[i].again - f[0].again, again[i], 1e-9 * f[0].forward);
        CHECK_NEAR(f[i].backward - f[i].again, f[0].backward - f[0].again, 1e-9 * f[0].forward);
    }
}

static pb_status ignore(void *self, const pb_tensor *x)
{
    (void)self, (void)x;
    return PB_OK;
}

/* With norms, a norm is computed again where the backward pass of a product reads its output, or an observer does. With
 * none, only an observer needs it: the output of the second norm is not kept if no product reads it. */
static void only_norms_that_are_read_are_computed_again(void **state)
{
    pb_ctx *ctx = *state;
    static const struct {
        pb_tuning tuning;
        unsigned targets;
        int norms; /* of a layer */
        bool observed;
        int norms_with_none; /* computed again without --recompute */
    } of[] = {{PB_FULL, 0, 2, false},
              {PB_QLORA, 1u << PB_TARGET_Q | 1u << PB_TARGET_V, 1, false},
              {PB_LORA, 1u << PB_TARGET_K | 1u << PB_TARGET_UP, 2, false},
              {PB_LORA, 1u << PB_TARGET_GATE, 1, false},
              {PB_LORA, 1u << PB_TARGET_O | 1u << PB_TARGET_DOWN, 0, false},
              {PB_LORA, 1u << PB_TARGET_O, 2, true, 1}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        uint64_t launches[3]; /* of the backward pass: all norms kept; none; norms */
        pb_train_config c = config("tiny-llama", of[i].tuning);
        if (of[i].tuning != PB_FULL) c.model.targets = of[i].targets;
        for (int n = 0; n < 3; n++) {
            c.recompute = n == 2 ? PB_RECOMPUTE_NORMS : PB_RECOMPUTE_NONE;
            c.keep_unread = n == 0;
            pb_trainer *t = open_trainer(ctx, &c);
            set_batch(t, 0);
            if (of[i].observed) pb_trainer_observe(t, ignore, NULL, false);
            run_phases(ctx, t, PB_PHASE_forward, PB_PHASE_loss);
            const uint64_t before = ctx->counts.kernel_launches;
            CHECK_OK(pb_phase_backward(ctx, t));
            launches[n] = ctx->counts.kernel_launches - before;
            pb_trainer_close(t);
        }
        assert_int_equal(launches[1] - launches[0], of[i].norms_with_none * c.model.geometry->L);
        assert_int_equal(launches[2] - launches[0], of[i].norms * c.model.geometry->L);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bit_of_a_step_changes),
        cmocka_unit_test(no_bit_of_a_step_changes_with_v4),
        cmocka_unit_test(the_backward_phase_can_be_repeated),
        cmocka_unit_test(loss_and_backward_can_be_repeated),
        cmocka_unit_test(only_what_the_setting_names_is_kept),
        cmocka_unit_test(the_plan_is_exact),
        cmocka_unit_test(recomputed_work_is_counted_apart),
        cmocka_unit_test(only_norms_that_are_read_are_computed_again),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
