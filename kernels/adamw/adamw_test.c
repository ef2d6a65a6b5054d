/* adamw_test.c - compares the AdamW step with PyTorch's results, and with the formula of adamw.h over several steps.
 * Also tests weight decay, gradient scaling, skipped steps (which must change nothing) and errors. */
#include <math.h>
#include <string.h>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/adamw_8bit_fixtures.h"
#include "kernels/adamw/adamw_fixtures.h"
#include "kernels/adamw/moments.h"
#include "tests/test.h"

enum { N = 53 }; /* elements: some whole SIMD vectors and a tail */

typedef struct tensor {
    float w[N], grad[N], m[N], v[N];
    uint16_t w16[N];
    pb_adamw_entry entry; /* its pointers point into this struct */
} tensor;

static void init(tensor *t, bool bf16, uint64_t seed)
{
    *t = (tensor){0};
    for (size_t i = 0; i < N; i++) t->w[i] = (float)(2 * pb_uniform(seed, i) - 1);
    t->entry = (pb_adamw_entry){
        .w = t->w, .grad = t->grad, .m = t->m, .v = t->v, .n = N, .dtype = PB_F32, .clip = -1, .decay = 0.1f};
    if (bf16) t->entry.w = t->w16, t->entry.master = t->w, t->entry.dtype = PB_BF16;
}

static void next_gradient(tensor *t, uint64_t seed)
{
    for (size_t i = 0; i < N; i++) t->grad[i] = (float)(2 * pb_uniform(seed, i) - 1);
}

static pb_adamw_step_args args(const pb_adamw_entry *list, int n, pb_adamw_state *state)
{
    return (pb_adamw_step_args){.list = list, .state = state, .n = n, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};
}

static void three_steps_equal_pytorch(void **state)
{
    float w[8], m[8] = {0}, v[8] = {0};
    pb_adamw_state s = {0};
    memcpy(w, fixture_w0, sizeof w);
    for (int k = 0; k < 3; k++) {
        pb_adamw_entry e = {.w = w, .grad = fixture_grad[k], .m = m, .v = v, .n = 8, .clip = -1, .decay = 0.1f};
        pb_adamw_step_args a = args(&e, 1, &s);
        s.lr = fixture_lr[0][k];
        CHECK_OK(pb_adamw_step(*state, &a));
        assert_int_equal(s.step, k + 1);
    }
    for (int i = 0; i < 8; i++) {
        CHECK_NEAR(w[i], fixture_w[0][i], 3e-7 * fmax(fabs((double)fixture_w[0][i]), 1e-2));
        CHECK_NEAR(m[i], fixture_m[0][i], 5e-7 * fmax(fabs((double)fixture_m[0][i]), 1e-1));
        CHECK_NEAR(v[i], fixture_v[0][i], 5e-7 * fabs((double)fixture_v[0][i]));
    }
}

/* Compares five steps with changing lr with the formula of adamw.h in double precision, element by element. */
static void five_steps_match_the_formula(void **state)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        tensor t;
        double w[N], m[N] = {0}, v[N] = {0};
        pb_adamw_state s = {0};
        init(&t, bf16, 1);
        for (int i = 0; i < N; i++) w[i] = (double)t.w[i];
        for (int k = 1; k <= 5; k++) {
            pb_adamw_step_args a = args(&t.entry, 1, &s);
            s.lr = 0.01f * (float)k;
            next_gradient(&t, 10 + k);
            CHECK_OK(pb_adamw_step(*state, &a));
            for (int i = 0; i < N; i++) {
                double g = (double)t.grad[i], b1 = (double)0.9f, b2 = (double)0.95f, wd = (double)0.1f;
                m[i] = b1 * m[i] + (1 - b1) * g;
                v[i] = b2 * v[i] + (1 - b2) * g * g;
                double mh = m[i] / (1 - pow(b1, k)), vh = v[i] / (1 - pow(b2, k));
                w[i] -= (double)s.lr * (wd * w[i] + mh / (sqrt(vh) + (double)1e-8f));
                CHECK_NEAR(t.w[i], w[i], 4e-7 * k);
                CHECK_NEAR(t.m[i], m[i], 1e-7);
                CHECK_NEAR(t.v[i], v[i], 1e-7);
                if (bf16) assert_int_equal(t.w16[i], pb_f32_to_bf16(t.w[i]));
            }
        }
        assert_true(s.step == 5 && s.skipped == 0);
    }
}

/* Decay acts on the weights directly, not through the moments: with zero gradients w shrinks
 * by the factor 1 - lr wd. */
static void decay_is_decoupled(void **state)
{
    tensor t[2], before;
    pb_adamw_state s = {.lr = 0.5f, .step = 7};
    init(&t[0], false, 1), init(&t[1], false, 1);
    before = t[0];
    t[1].entry.decay = 0;
    pb_adamw_step_args a = args((pb_adamw_entry[]){t[0].entry, {.clip = -1}, t[1].entry}, 3, &s);
    CHECK_OK(pb_adamw_step(*state, &a));
    for (int i = 0; i < N; i++) {
        CHECK_NEAR(t[0].w[i], (double)before.w[i] * 0.95, 1e-7);
        assert_true(t[1].w[i] == before.w[i] && t[0].m[i] == 0 && t[0].v[i] == 0);
    }
    assert_int_equal(s.step, 8);
}

/* Scaling gradients in the step gives the same bits as scaling them in place before it, because the scale is a power of
 * two. */
static void clip_scale_applies_only_when_asked(void **state)
{
    tensor t, u;
    const pb_clip_state clip[2] = {{.scale = 1}, {.scale = 0.25f}};
    for (int asked = 0; asked < 2; asked++) {
        pb_adamw_state s = {.lr = 0.01f}, r = s;
        init(&t, false, 1), init(&u, false, 1);
        next_gradient(&t, 5), next_gradient(&u, 5);
        t.entry.clip = 1;
        for (int i = 0; asked && i < N; i++) u.grad[i] *= 0.25f;
        pb_adamw_step_args a = args(&t.entry, 1, &s), b = args(&u.entry, 1, &r);
        a.clip = clip, a.nclip = 2, a.scale_gradients = asked;
        CHECK_OK(pb_adamw_step(*state, &a));
        CHECK_OK(pb_adamw_step(*state, &b));
        assert_memory_equal(t.w, u.w, sizeof t.w);
        assert_memory_equal(t.v, u.v, sizeof t.v);
    }
}

/* Gradients without a clip state are divided by the loss scale in the step. A clip state's scale
 * already includes this division. */
static void the_loss_scale_is_divided_out_once(void **state)
{
    const float scale = 4096;
    const pb_clip_state clip = {.scale = 0.25f / scale};
    for (int clipped = 0; clipped < 2; clipped++) {
        tensor t, u;
        pb_adamw_state s = {.lr = 0.01f}, r = s;
        init(&t, false, 1), init(&u, false, 1);
        next_gradient(&t, 5), next_gradient(&u, 5);
        for (int i = 0; i < N; i++) t.grad[i] *= scale, u.grad[i] *= clipped ? 0.25f : 1;
        t.entry.clip = clipped - 1;
        pb_adamw_step_args a = args(&t.entry, 1, &s), b = args(&u.entry, 1, &r);
        a.clip = &clip, a.nclip = 1, a.scale_gradients = true, a.loss_scale = &scale;
        CHECK_OK(pb_adamw_step(*state, &a));
        CHECK_OK(pb_adamw_step(*state, &b));
        assert_memory_equal(t.w, u.w, sizeof t.w);
        assert_memory_equal(t.m, u.m, sizeof t.m);
        assert_memory_equal(t.v, u.v, sizeof t.v);
    }
}

/* If one clip state says skip, only state->skipped changes. The next step without a skip then works as usual. */
static void a_skipped_step_changes_nothing(void **state)
{
    tensor t, before;
    pb_clip_state clip[2] = {{.scale = 1}, {.scale = 1, .skip = 1}};
    pb_adamw_state s = {.lr = 0.01f, .step = 3, .skipped = 1};
    init(&t, true, 1);
    next_gradient(&t, 5);
    before = t;
    pb_adamw_step_args a = args(&t.entry, 1, &s);
    a.clip = clip, a.nclip = 2;
    CHECK_OK(pb_adamw_step(*state, &a));
    assert_memory_equal(&t, &before, sizeof t);
    assert_true(s.step == 3 && s.skipped == 2 && s.lr == 0.01f);
    clip[1].skip = 0;
    CHECK_OK(pb_adamw_step(*state, &a));
    assert_true(s.step == 4 && s.skipped == 2 && t.w[0] != before.w[0]);
}

/* Codes and scales of the moments after four steps are those of bitsandbytes, with its maps. */
static void four_steps_of_8_bits_equal_bitsandbytes(void **state)
{
    enum { E = sizeof bnb_w0 / sizeof *bnb_w0, BLOCKS = (E + PB_ADAMW_BLOCK - 1) / PB_ADAMW_BLOCK };
    enum { BYTES = (E + 3) / 4 * 4 + 4 * BLOCKS }; /* codes, and absmax after them */
    float maps[2][256], w[E];
    _Alignas(4) uint8_t m[BYTES] = {0}, v[BYTES] = {0};
    const float *m_absmax = pb_adamw_absmax(m, E), *v_absmax = pb_adamw_absmax(v, E);
    assert_int_equal(pb_adamw_moment_bytes(PB_ADAMW_8BIT, E), sizeof m);
    pb_adamw_state s = {.lr = 0.01f};
    pb_adamw_maps(maps);
    assert_memory_equal(maps[0], bnb_map_m, sizeof maps[0]);
    assert_memory_equal(maps[1], bnb_map_v, sizeof maps[1]);
    memcpy(w, bnb_w0, sizeof w);
    for (int k = 0; k < 4; k++) {
        const pb_adamw_entry e = {.w = w,
                                  .grad = bnb_grad + k * E,
                                  .m = m,
                                  .v = v,
                                  .n = E,
                                  .format = PB_ADAMW_8BIT,
                                  .clip = -1,
                                  .decay = 0.1f};
        pb_adamw_step_args a = args(&e, 1, &s);
        a.beta2 = 0.999f, a.narrow = true, a.maps = maps[0];
        CHECK_OK(pb_adamw_step(*state, &a));
    }
    assert_memory_equal(m, bnb_m, sizeof bnb_m);
    assert_memory_equal(v, bnb_v, sizeof bnb_v);
    for (int i = 0; i < BLOCKS; i++) {
        CHECK_NEAR(m_absmax[i], bnb_m_absmax[i], 3e-7 * (double)bnb_m_absmax[i]);
        CHECK_NEAR(v_absmax[i], bnb_v_absmax[i], 3e-7 * (double)bnb_v_absmax[i]);
    }
    for (int i = 0; i < E; i++) CHECK_NEAR(w[i], bnb_w[i], 1e-6 * fmax(fabs((double)bnb_w[i]), 1));
}

/* v after many equal gradients tends to their square, and m to the gradient. Rounded to the nearest bf16, v would stop
 * where a step adds less than half the distance of two bf16 numbers. */
static void moments_in_bf16_have_the_mean_of_f32(void **state)
{
    enum { E = 1024, STEPS = 3000 };
    static float w[E], grad[E];
    static uint16_t m[E], v[E];
    double mean_m = 0, mean_v = 0, expected_v = 1 - pow((double)0.999f, STEPS);
    pb_adamw_state s = {.lr = 0};
    memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    for (int i = 0; i < E; i++) grad[i] = 1;
    const pb_adamw_entry e = {.w = w, .grad = grad, .m = m, .v = v, .n = E, .format = PB_ADAMW_BF16, .clip = -1};
    pb_adamw_step_args a = args(&e, 1, &s);
    a.beta2 = 0.999f, a.narrow = true;
    for (int k = 0; k < STEPS; k++) CHECK_OK(pb_adamw_step(*state, &a));
    for (int i = 0; i < E; i++) mean_m += (double)pb_bf16_to_f32(m[i]) / E, mean_v += (double)pb_bf16_to_f32(v[i]) / E;
    CHECK_NEAR(mean_m, 1, 2e-3);
    CHECK_NEAR(mean_v, expected_v, 2e-3); /* to the nearest: 0.25 at most */
}

/* The random bits depend on the step and on the index in the vector of all tensors only: two halves give the bits of
 * the whole. */
static void slices_in_bf16_have_the_bits_of_the_whole(void **state)
{
    enum { E = 700, CUT = 256 };
    static float w[2][E], grad[E];
    static uint16_t m[2][E], v[2][E];
    memset(w, 0, sizeof w), memset(m, 0, sizeof m), memset(v, 0, sizeof v);
    for (int k = 0; k < 5; k++) {
        pb_adamw_entry e[3] = {{.n = E, .first = 7}, {.n = CUT, .first = 7}, {.n = E - CUT, .first = 7 + CUT}};
        for (int i = 0; i < E; i++) grad[i] = (float)(2 * pb_uniform(20 + (uint64_t)k, (size_t)i) - 1);
        for (int i = 0; i < 3; i++) {
            const int at = i == 2 ? CUT : 0, which = i > 0;
            e[i].w = w[which] + at, e[i].grad = grad + at, e[i].m = m[which] + at, e[i].v = v[which] + at;
            e[i].format = PB_ADAMW_BF16, e[i].clip = -1;
        }
        pb_adamw_state s[2] = {{.lr = 0.01f, .step = k}, {.lr = 0.01f, .step = k}};
        pb_adamw_step_args a = args(e, 1, &s[0]), b = args(e + 1, 2, &s[1]);
        a.narrow = b.narrow = true;
        CHECK_OK(pb_adamw_step(*state, &a));
        CHECK_OK(pb_adamw_step(*state, &b));
    }
    assert_memory_equal(m[0], m[1], sizeof m[0]);
    assert_memory_equal(v[0], v[1], sizeof v[0]);
    assert_memory_equal(w[0], w[1], sizeof w[0]);
}

static void bad_arguments_are_named(void **state)
{
    pb_adamw_state s = {0};
    pb_adamw_step_args a = args(NULL, 0, &s);
    a.nclip = 1;
    CHECK_FAILS(pb_adamw_step(*state, &a), PB_EINVAL, "nclip=1");
    a.nclip = 0, a.beta2 = 1;
    CHECK_FAILS(pb_adamw_step(*state, &a), PB_EINVAL, "beta1=0.9 beta2=1");
    a.beta2 = 0.95f, a.eps = 0;
    CHECK_FAILS(pb_adamw_step(*state, &a), PB_EINVAL, "eps=0");
    a.eps = 1e-8f, a.maps = bnb_map_m;
    CHECK_FAILS(pb_adamw_step(*state, &a), PB_EINVAL, "narrow is false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_steps_equal_pytorch),
        cmocka_unit_test(five_steps_match_the_formula),
        cmocka_unit_test(decay_is_decoupled),
        cmocka_unit_test(clip_scale_applies_only_when_asked),
        cmocka_unit_test(the_loss_scale_is_divided_out_once),
        cmocka_unit_test(a_skipped_step_changes_nothing),
        cmocka_unit_test(four_steps_of_8_bits_equal_bitsandbytes),
        cmocka_unit_test(moments_in_bf16_have_the_mean_of_f32),
        cmocka_unit_test(slices_in_bf16_have_the_bits_of_the_whole),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return test_every_impl(&pb_op_adamw_step, tests, sizeof tests / sizeof *tests);
}
