/* sample_test.c - tests of the choice of tokens: greedy with ties, the nucleus against a plain computation, the share
 * of each token in many draws, and what is refused. */
#include "kernels/engine/bind.h"
#include "tests/test.h"
#include "trainer/generate/sample.h"

enum { V = 50, DRAWS = 20000 };

static int32_t choose(const float *z, int n, double temperature, double top_p, double u)
{
    const pb_sampling s = {temperature, top_p};
    pb_choice scratch[V];
    int32_t id = -1;
    CHECK_OK(pb_sampling_check(&s));
    CHECK_OK(pb_sample(z, n, &s, u, scratch, &id));
    return id;
}

static void greedy_takes_the_largest_and_of_equals_the_first(void **state)
{
    (void)state;
    assert_int_equal(choose((float[]){1, 3, 2}, 3, 0, 1, 0.99), 1);
    assert_int_equal(choose((float[]){1, 3, 3}, 3, 0, 1, 0.99), 1);
    assert_int_equal(choose((float[]){-INFINITY, -5, -INFINITY}, 3, 0, 1, 0), 1);
    assert_int_equal(choose((float[]){7}, 1, 0, 1, 0), 0);
}

/* Numbers made by hand: probabilities 0.5, 0.25, 0.125, 0.125 of the ids 2, 0, 1, 3. */
static void a_draw_follows_the_order_of_probabilities(void **state)
{
    (void)state;
    const float z[] = {logf(2), 0, logf(4), 0};
    const struct {
        double top_p, u;
        int32_t id;
    } of[] = {{1, 0, 2},       {1, 0.49, 2},      {1, 0.51, 0},   {1, 0.74, 0},     {1, 0.76, 1},
              {1, 0.874, 1},   {1, 0.876, 3},     {1, 0.9999, 3}, {0.5, 0.9999, 2}, {0.51, 0.65, 2},
              {0.51, 0.68, 0}, {0.74, 0.9999, 0}, {0.8, 0.99, 1}, {0.9, 0.99, 3},   {1e-9, 0.9, 2}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (choose(z, 4, 1, of[i].top_p, of[i].u) != of[i].id)
            fail_msg("top-p %g, u %g: token %d, want %d", of[i].top_p, of[i].u, choose(z, 4, 1, of[i].top_p, of[i].u),
                     of[i].id);
}

/* softmax(z/t) over the nucleus, in the plainest way: a token is in it if more probable ones sum to less than top_p. */
static void shares(const float *z, double t, double top_p, double *p)
{
    double sum = 0, all = 0;
    double q[V];
    for (int i = 0; i < V; i++) sum += q[i] = exp((double)z[i] / t);
    for (int i = 0; i < V; i++) {
        double before = 0;
        for (int k = 0; k < V; k++)
            if (z[k] > z[i] || (k < i && z[k] == z[i])) before += q[k] / sum;
        p[i] = before < top_p ? q[i] / sum : 0;
        all += p[i];
    }
    for (int i = 0; i < V; i++) p[i] /= all;
}

static void draws_have_the_shares_of_the_nucleus(void **state)
{
    (void)state;
    static const double cases[][2] = {{1, 1}, {0.5, 1}, {2, 0.9}, {1, 0.3}, {0.01, 1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float z[V];
        double p[V];
        int count[V] = {0};
        for (int i = 0; i < V; i++) z[i] = (float)(6 * pb_uniform(3, (uint64_t)i) - 3);
        shares(z, cases[c][0], cases[c][1], p);
        for (int i = 0; i < DRAWS; i++) count[choose(z, V, cases[c][0], cases[c][1], (i + 0.5) / DRAWS)]++;
        for (int i = 0; i < V; i++)
            if (!(fabs((double)count[i] / DRAWS - p[i]) <= 1.5 / DRAWS))
                fail_msg("case %zu: token %d has share %g, want %g", c, i, (double)count[i] / DRAWS, p[i]);
    }
}

static void what_cannot_be_chosen_from_is_refused(void **state)
{
    (void)state;
    const pb_sampling greedy = {0, 1}, draw = {1, 1};
    pb_choice scratch[V];
    int32_t id;
    CHECK_FAILS(pb_sample((float[]){1, NAN}, 2, &greedy, 0, scratch, &id), PB_EWRONG, "logit of token 1 is");
    CHECK_FAILS(pb_sample((float[]){NAN, 1}, 2, &draw, 0, scratch, &id), PB_EWRONG, "logit of token 0");
    CHECK_FAILS(pb_sample((float[]){1, INFINITY}, 2, &greedy, 0, scratch, &id), PB_EWRONG, "token 1 is inf");
    CHECK_FAILS(pb_sample((float[]){-INFINITY, -INFINITY}, 2, &draw, 0, scratch, &id), PB_EWRONG, "all 2 tokens");
    CHECK_FAILS(pb_sampling_check(&(pb_sampling){-1, 1}), PB_EINVAL, "temperature -1");
    CHECK_FAILS(pb_sampling_check(&(pb_sampling){(double)NAN, 1}), PB_EINVAL, "temperature");
    CHECK_FAILS(pb_sampling_check(&(pb_sampling){1, 0}), PB_EINVAL, "top-p 0");
    CHECK_FAILS(pb_sampling_check(&(pb_sampling){1, 1.1}), PB_EINVAL, "top-p 1.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_takes_the_largest_and_of_equals_the_first),
        cmocka_unit_test(a_draw_follows_the_order_of_probabilities),
        cmocka_unit_test(draws_have_the_shares_of_the_nucleus),
        cmocka_unit_test(what_cannot_be_chosen_from_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
