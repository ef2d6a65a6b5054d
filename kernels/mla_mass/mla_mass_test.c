/* mla_mass_test.c - tests of mla_mass: the sum of all masses, masses of part of a list, and errors. indexer_test.c
 * compares with PyTorch's results. */
#include "kernels/mla_mass/mla_mass.h"
#include "kernels/sparse_mla/sparse_mla.h"
#include "tests/test.h"

enum { B = 2, S = 3, S_KV = 90, H = 70, D = 24, W = 80, N = B * S };

typedef struct problem {
    float *q, *kv, *sink, *o, lse[N * H];
    int32_t idx[N * W];
} problem;

/* Fills p: lists with masked slots, in which query 1 has no visible key, and the lse of sparse_mla_fwd. */
static void make(pb_ctx *ctx, problem *p)
{
    *p = (problem){test_values(N * H * D, PB_F32, 1), test_values(B * S_KV * D, PB_F32, 2), test_values(H, PB_F32, 3),
                   test_values(N * H * D, PB_F32, 4)};
    p->sink[0] = -INFINITY, p->sink[1] = 30;
    for (int i = 0; i < N * W; i++)
        p->idx[i] = i / W == 1 || i % 7 == 3 ? (i % 2 ? -1 : S_KV) : (i * 13 + i / W) % S_KV;
    CHECK_OK(pb_sparse_mla_fwd(ctx, &(pb_sparse_mla_fwd_args){.q = p->q,
                                                              .kv = p->kv,
                                                              .idx = p->idx,
                                                              .sink = p->sink,
                                                              .o = p->o,
                                                              .lse = p->lse,
                                                              .B = B,
                                                              .S = S,
                                                              .S_kv = S_KV,
                                                              .H = H,
                                                              .D = D,
                                                              .V = D,
                                                              .W = W,
                                                              .scale = 0.5f}));
}
static void drop(problem *p) { free(p->q), free(p->kv), free(p->sink), free(p->o); }

static pb_mla_mass_fwd_args args_of(const problem *p, int from, int n, float *mass)
{
    return (pb_mla_mass_fwd_args){.q = p->q,
                                  .kv = p->kv,
                                  .idx = p->idx,
                                  .lse = p->lse,
                                  .mass = mass,
                                  .B = B,
                                  .S = S,
                                  .S_kv = S_KV,
                                  .H = H,
                                  .D = D,
                                  .W = W,
                                  .from = from,
                                  .n = n,
                                  .scale = 0.5f};
}

/* The masses of all slots and the weights of the sinks sum to the number of heads. */
static void check_sums(pb_ctx *ctx)
{
    problem p;
    float mass[N * W], part[N * 33];
    make(ctx, &p);
    const pb_mla_mass_fwd_args all = args_of(&p, 0, W, mass), some = args_of(&p, 40, 33, part);
    CHECK_OK(pb_mla_mass_fwd(ctx, &all));
    CHECK_OK(pb_mla_mass_fwd(ctx, &some));
    for (int t = 0; t < N; t++) {
        double sum = 0;
        for (int w = 0; w < W; w++) {
            const int32_t r = p.idx[t * W + w];
            if (r < 0 || r >= S_KV) assert_true(mass[t * W + w] == 0);
            sum += (double)mass[t * W + w];
        }
        for (int h = 0; h < H; h++)
            sum += p.sink[h] == -INFINITY ? 0 : exp((double)p.sink[h] - (double)p.lse[t * H + h]);
        CHECK_NEAR(sum, t == 1 ? H - 1 : H, 1e-4); /* query 1 has no visible key, and its head 0 has no sink */
        for (int j = 0; j < 33; j++) CHECK_NEAR(part[t * 33 + j], mass[t * W + 40 + j], 1e-6);
    }
    drop(&p);
}

static void masses_and_sinks_sum_to_the_heads(void **state)
{
    pb_ctx *ctx = *state;
    for (const pb_impl *i = pb_mla_mass_fwd_cpu; i->name; i++) {
        if (i->available && !i->available()) continue;
        ctx->impl = i->name;
        check_sums(ctx);
    }
    ctx->impl = NULL;
}

static void bad_arguments_are_named(void **state)
{
    problem p;
    float mass[N * W];
    make(*state, &p);
    pb_mla_mass_fwd_args a = args_of(&p, 70, 11, mass);
    CHECK_FAILS(pb_mla_mass_fwd(*state, &a), PB_EINVAL, "from=70 n=11, need a range of slots within W=80");
    a.n = 10, a.scale = INFINITY;
    CHECK_FAILS(pb_mla_mass_fwd(*state, &a), PB_EINVAL, "scale");
    a.scale = 1, a.lse = NULL;
    CHECK_FAILS(pb_mla_mass_fwd(*state, &a), PB_EINVAL, "NULL");
    a.lse = p.lse, a.S_kv = 0;
    CHECK_FAILS(pb_mla_mass_fwd(*state, &a), PB_EINVAL, "S_kv=0");
    drop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masses_and_sinks_sum_to_the_heads),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
