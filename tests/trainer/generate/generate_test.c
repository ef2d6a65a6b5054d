/* generate_test.c - tests of generation: the greedy tokens of transformers for every family, with and without an
 * adapter (scripts/fixtures/generate_fixtures.py); why a text ends; draws that depend on the seed alone. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"
#include "trainer/generate/generate.h"
#include "trainer/hf/hf_config.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/peft.h"

enum { MOST = 64 };

typedef struct text { /* what a generation wrote */
    int32_t id[MOST];
    int n;
    bool refuse; /* each() fails at the third token */
} text;

static pb_status take(void *self, int32_t id)
{
    text *t = self;
    assert_true(t->n < MOST);
    t->id[t->n++] = id;
    return t->refuse && t->n == 3 ? pb_fail(PB_EIO, "the reader is full") : PB_OK;
}

typedef struct model {
    pb_hf_config hf;
    pb_trainer *t;
} model;

static const char *path(const char *folder, const char *name)
{
    static char p[1024];
    snprintf(p, sizeof p, PB_FIXTURES "/%s/%s", folder, name);
    return p;
}

/* Opens a model of tests/fixtures/hf, with an adapter unless it is NULL. */
static void open_model(pb_ctx *ctx, model *m, const char *name, const char *adapter, int positions)
{
    CHECK_OK(pb_hf_config_open(path("hf", name), &m->hf));
    pb_train_config c = pb_train_defaults(&m->hf.g);
    c.model.tuning = PB_FULL;
    c.model.blank = true;
    if (adapter) {
        pb_peft_config p;
        CHECK_OK(pb_peft_config_open(path("generate", adapter), &p));
        c.model.tuning = PB_LORA, c.model.rank = p.rank, c.model.alpha = p.alpha, c.model.targets = p.targets;
    }
    pb_generate_configure(&c, positions);
    CHECK_OK(pb_trainer_open(ctx, &c, &m->t));
    CHECK_OK(pb_model_load_hf(pb_trainer_model(m->t), path("hf", name), NULL));
    if (adapter) CHECK_OK(pb_peft_load(pb_trainer_model(m->t), path("generate", adapter)));
}

static int ids_of(json_t *list, int32_t *id)
{
    json_t *v;
    size_t i;
    json_array_foreach(list, i, v) id[i] = (int32_t)json_integer_value(v);
    return (int)json_array_size(list);
}

/* Compares one text of the fixture. The token that ends a text is counted, but not given to `each`. */
static void check_text(pb_ctx *ctx, json_t *one)
{
    const char *name = json_string_value(json_object_get(one, "model"));
    const char *adapter = json_string_value(json_object_get(one, "adapter"));
    int32_t prompt[MOST] = {0}, want[MOST] = {0}, stop[MOST] = {0};
    text got = {.id = {0}};
    pb_generated done;
    model m;
    const int n = ids_of(json_object_get(one, "ids"), want);
    pb_generation g = {.prompt = prompt, .most = 24, .sampling = {0, 1}, .stop = stop, .each = take, .self = &got};
    g.n = ids_of(json_object_get(one, "prompt"), prompt);
    g.nstop = ids_of(json_object_get(one, "stop"), stop);
    open_model(ctx, &m, name, adapter, g.n + g.most - 1);
    CHECK_OK(pb_generate(ctx, m.t, &g, &done));
    pb_trainer_close(m.t);
    assert_int_equal(done.ended, g.nstop ? PB_ENDED_STOP : PB_ENDED_MOST);
    assert_int_equal(done.tokens, n);
    assert_int_equal(got.n, g.nstop ? n - 1 : n);
    for (int i = 0; i < got.n; i++)
        if (got.id[i] != want[i])
            fail_msg("%s, %s: token %d is %d, transformers has %d", name, adapter ? adapter : "no adapter", i,
                     got.id[i], want[i]);
}

static void greedy_tokens_are_those_of_transformers(void **state)
{
    json_error_t e;
    json_t *root = json_load_file(PB_FIXTURES "/generate/expected.json", 0, &e), *one;
    size_t i;
    assert_non_null(root);
    assert_int_equal(json_array_size(root), 24);
    json_array_foreach(root, i, one) check_text(*state, one);
    json_decref(root);
}

static void a_text_ends_where_it_must(void **state)
{
    const int32_t prompt[] = {5, 9, 200};
    model m;
    text got = {.n = 0}, first;
    pb_generated done;
    pb_generation g = {.prompt = prompt, .n = 3, .most = MOST, .sampling = {0, 1}, .each = take, .self = &got};
    open_model(*state, &m, "llama", NULL, 12);
    CHECK_OK(pb_generate(*state, m.t, &g, &done)); /* 12 positions: the tokens 4 to 12, and one after the last */
    assert_int_equal(done.ended, PB_ENDED_POSITIONS);
    assert_int_equal(done.tokens, 10);
    first = got;
    got.n = 0, g.most = 1;
    CHECK_OK(pb_generate(*state, m.t, &g, &done));
    assert_int_equal(done.ended, PB_ENDED_MOST);
    assert_int_equal(got.n, 1);
    assert_int_equal(got.id[0], first.id[0]);
    got = (text){.refuse = true}, g.most = MOST;
    CHECK_FAILS(pb_generate(*state, m.t, &g, &done), PB_EIO, "reader is full");
    assert_int_equal(got.n, 3);
    g.n = 0;
    CHECK_FAILS(pb_generate(*state, m.t, &g, &done), PB_EINVAL, "a prompt of 0 tokens");
    g.n = 13;
    CHECK_FAILS(pb_generate(*state, m.t, &g, &done), PB_EINVAL, "need 1 to 12");
    g.n = 3, g.most = 0;
    CHECK_FAILS(pb_generate(*state, m.t, &g, &done), PB_EINVAL, "0 tokens to generate");
    g.most = 5, g.sampling.top_p = 2;
    CHECK_FAILS(pb_generate(*state, m.t, &g, &done), PB_EINVAL, "top-p 2");
    pb_trainer_close(m.t);
}

static text drawn(pb_ctx *ctx, pb_trainer *t, double temperature, double top_p, uint64_t seed)
{
    const int32_t prompt[] = {5, 9, 200};
    text got = {.n = 0};
    pb_generated done;
    CHECK_OK(pb_generate(ctx, t,
                         &(pb_generation){.prompt = prompt,
                                          .n = 3,
                                          .most = 20,
                                          .sampling = {temperature, top_p},
                                          .seed = seed,
                                          .each = take,
                                          .self = &got},
                         &done));
    assert_int_equal(got.n, 20);
    return got;
}

static void draws_depend_on_the_seed_alone(void **state)
{
    model m;
    open_model(*state, &m, "qwen3", NULL, 40);
    const text greedy = drawn(*state, m.t, 0, 1, 1), a = drawn(*state, m.t, 1.5, 1, 1),
               b = drawn(*state, m.t, 1.5, 1, 2);
    const text again = drawn(*state, m.t, 1.5, 1, 1), narrow = drawn(*state, m.t, 1.5, 1e-6, 3);
    assert_memory_equal(&a, &again, sizeof a);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &greedy, sizeof a);
    assert_memory_equal(&narrow, &greedy, sizeof a); /* the nucleus is one token */
    pb_trainer_close(m.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_tokens_are_those_of_transformers),
        cmocka_unit_test(a_text_ends_where_it_must),
        cmocka_unit_test(draws_depend_on_the_seed_alone),
    };
    return cmocka_run_group_tests(tests, test_open_device, test_close);
}
