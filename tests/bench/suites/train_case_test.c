/* train_case_test.c - tests that the batches of the training suites never change: equal shape, seed and index must give
 * the same batch in every version, because losses are compared with those of stored baselines. */
#include "bench/suites/train_case.h"
#include "tests/sha256.h"
#include "tests/test.h"
#include "trainer/step/trainer_impl.h"

typedef struct batch {
    int B, S;
    size_t index;
    uint64_t seed;
    const char *digest; /* SHA-256 of ids, targets and mask */
} batch;

/* Expected digests of batches: those of the shapes in the grids, of the shortest rows, of later batches, of batches
 * that reach the end of the text and continue with its first row, and of another seed. */
static const batch batches[] = {
    {1, 1, 77, 42, "283b7ea5c84d562dd299964969831401a3b2459d7cbcd85852ad6a4d2d85bc60"},
    {1, 16, 0, 42, "c066a412c20d565a6dffecbcc8891589f9ba8a5ff4d42f58b1e61c25e57d07e1"},
    {4, 64, 1, 42, "92a3bd95b52fe414690ecbfc1289c6c4d83e8de1fea442b863ccd643bcc2401c"},
    {1, 128, 0, 42, "1f7c5e60bfa555c22d1525f8bd48e430acd212e936a9df3c96df2b4accec258d"},
    {1, 128, 1, 42, "3a33fdcbaac8f726ce4b68c9c7d7abda9a1a8d430d38a1c46e510743faf1993e"},
    {4, 128, 1999, 42, "4c67c8a67c96f42f426ead09714c95e32fa2543112c9090cc7e34d8c3dbad801"},
    {2, 192, 19, 42, "5ad579875da1b0ab7bb27637c09854cb4e061450d3ef1853ae552fa725139186"},
    {4, 256, 1000000, 42, "362ae397f703bbddf1f6dd56b2dd8d3c36438d34540e6303fb2811da0c04e945"},
    {4, 512, 0, 42, "ef230162487ff6434ff30c6dff7f13dfd5a0f8455f41b2df05ca959e8ded2370"},
    {3, 1000, 5, 7, "eb9399ae82f25c347480343a0099cc21af2538361e92baa92ab14acdf108cf9c"},
    {8, 2048, 0, 42, "af1afe70c59aabe466364fb5e77947f2f37f10a8da476f9caea385981b38cc64"},
    {1, 8192, 0, 42, "830e6b8b909c46b14dbd01881e12377b7f70adc8d2c38dbe16a77f47eb51a28f"},
    {4, 16384, 3, 42, "a5cf4af6b2ef5a500779eb44c70265d34a58b8840c2531f2f42b9f21f6ab93cf"},
};

/* Computes the digest of the batch that a trainer of this shape gets. */
static void digest_of(pb_ctx *ctx, const batch *x, char hex[65])
{
    const pb_geometry *tiny;
    pb_trainer *t = NULL;
    CHECK_OK(pb_geometry_find("tiny", &tiny));
    pb_geometry g = *tiny;
    g.max_pos = x->S > g.max_pos ? x->S : g.max_pos;
    pb_train_config c = pb_train_defaults(&g);
    c.model.layers = 1;
    c.model.seed = x->seed;
    c.B = x->B;
    c.S = x->S;
    CHECK_OK(pb_trainer_open(ctx, &c, &t));
    CHECK_OK(pb_train_case_batch(&(pb_case){.n = 0}, t, x->index));
    const size_t n = (size_t)t->T;
    int32_t *all = malloc(3 * n * sizeof *all); /* the mask has elements of 4 bytes, too */
    assert_non_null(all);
    const void *const parts[] = {t->ids, t->targets, t->mask};
    for (size_t i = 0; i < 3; i++) CHECK_OK(pb_download(ctx, all + i * n, parts[i], n * sizeof *all));
    sha256_hex(all, 3 * n * sizeof *all, hex);
    free(all);
    pb_trainer_close(t);
}

static void batches_are_those_of_the_baselines(void **state)
{
    int wrong = 0;
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        const batch *x = &batches[i];
        char hex[65];
        digest_of(*state, x, hex);
        if (strcmp(hex, x->digest) == 0) continue;
        print_error("batch %zu of %d rows of %d, seed %d: %s\n", x->index, x->B, x->S, (int)x->seed, hex);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

/* Sets the configuration of a case of `tiny` with these axes, "name=value" separated by spaces; returns its status. */
static pb_status config_of(const char *axes, pb_train_config *out)
{
    char text[200], *at, *word;
    pb_case c = {.suite = "optimizer", .name = "step"};
    snprintf(text, sizeof text,
             "batch=1 clip=multi dtype=f32 layers=0 mode=eager model=tiny rank=16 seq=8 targets=q %s", axes);
    for (word = strtok_r(text, " ", &at); word; word = strtok_r(NULL, " ", &at)) {
        char *value = strchr(word, '=');
        *value++ = 0;
        CHECK_OK(pb_case_set(&c, word, value));
    }
    pb_case_finish(&c);
    return pb_train_case_config(&c, out);
}

static void the_axes_of_the_optimizer_are_read(void **state)
{
    pb_train_config c;
    (void)state;
    CHECK_OK(config_of("tuning=full", &c));
    assert_int_equal(c.optimizer, PB_OPTIMIZER_ADAMW);
    CHECK_OK(config_of("tuning=full optimizer=normuon", &c));
    assert_int_equal(c.optimizer, PB_OPTIMIZER_NORMUON);
    assert_int_equal(c.normuon.variant, PB_NS_POLAR_EXPRESS);
    assert_false(c.normuon.guard);
    CHECK_OK(config_of("tuning=full optimizer=normuon iteration=gram guard=on", &c));
    assert_int_equal(c.normuon.variant, PB_NS_GRAM);
    assert_true(c.normuon.guard);
    CHECK_FAILS(config_of("tuning=full guard=on", &c), PB_EINVAL, "axis guard needs optimizer=normuon");
    CHECK_FAILS(config_of("tuning=full optimizer=adamw iteration=gram", &c), PB_EINVAL, "axis iteration needs");
    CHECK_FAILS(config_of("tuning=full optimizer=normuon guard=1", &c), PB_EINVAL, "axis guard: '1'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(batches_are_those_of_the_baselines),
                                       cmocka_unit_test(the_axes_of_the_optimizer_are_read)};
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
