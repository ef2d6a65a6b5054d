/* dynmask_chain_test.c - dynamic-mask attention as a layer runs it: bias from the values, key lists, attention, and
 * back to the values, the dt projection and A. The loss is compared with its definition in double precision, which
 * selects by sorting, and every gradient with central differences of that definition. Runs with every
 * implementation. */
#include "kernels/dynmask_attention/dynmask_attention.h"
#include "kernels/dynmask_bias/dynmask_bias.h"
#include "kernels/dynmask_keys/dynmask_keys.h"
#include "tests/kernels/dynmask_oracle.h"
#include "tests/test.h"

enum { B = 2, S = 44, H = 4, K = 2, D = 10, KEEP = 9, N = K * D, QUERIES = B * S * H * D, KEYS = B * S * N };

/* The inputs of the layer that have gradients, in the order of the enumeration, and where each begins. */
enum input { Q, KEY, V, W, DT, A, INPUTS };
static const char *const names[INPUTS] = {"dq", "dk", "dv", "dw", "ddt", "da"};
static const int begin[INPUTS + 1] = {0,
                                      QUERIES,
                                      QUERIES + KEYS,
                                      QUERIES + 2 * KEYS,
                                      QUERIES + 2 * KEYS + K *N,
                                      QUERIES + 2 * KEYS + K *N + K,
                                      QUERIES + 2 * KEYS + K *N + 2 * K};
enum { TOTAL = QUERIES + 2 * KEYS + K * N + 2 * K };

typedef struct layer {
    bool exponential, exact, packed;
    float x[TOTAL], grad[TOTAL], dO[QUERIES];
    int32_t start[B * S];
    double wide[TOTAL];
} layer;

static const float scale = 0.7f;

static layer *make(int form)
{
    layer *y = calloc(1, sizeof *y);
    assert_non_null(y);
    y->exponential = form & 1, y->exact = form & 2, y->packed = form & 4;
    for (int i = 0; i < TOTAL; i++) {
        const double half = i < begin[W] ? 1 : i < begin[DT] ? 0.6 : i < begin[A] ? 2 : 0.9;
        y->x[i] = (float)(half * (2 * pb_uniform(31, (uint64_t)i) - 1)), y->wide[i] = (double)y->x[i];
        y->grad[i] = NAN;
    }
    for (int i = 0; i < QUERIES; i++) y->dO[i] = (float)(2 * pb_uniform(32, (uint64_t)i) - 1);
    for (int t = 0; t < B * S; t++) y->start[t] = t % S >= 17 + t / S ? 17 + t / S : 0;
    return y;
}

/* ---- the definition ------------------------------------------------------------------------------------------ */

static void definition_bias(const layer *y, double *bias)
{
    const double *v = y->wide + begin[V], *w = y->wide + begin[W];
    for (int b = 0; b < B; b++)
        for (int k = 0; k < K; k++)
            for (int j = 0; j < S; j++) {
                double u = y->wide[begin[DT] + k];
                for (int e = 0; e < N; e++) u += v[(b * S + j) * N + e] * w[k * N + e];
                const double x = y->wide[begin[A] + k] * log(1 + exp(u));
                bias[(b * K + k) * S + j] = y->exponential ? exp(x) : x;
            }
}

/* Returns the loss, the sum of do o, and fills the mask [B,K,S,S]. */
static double definition(const layer *y, bool *mask)
{
    static double bias[B * K * S], o[QUERIES], lse[B * H * S];
    ranked room[S];
    double loss = 0;
    definition_bias(y, bias);
    for (int r = 0; r < B * K; r++)
        oracle_select(bias + r * S, y->packed ? y->start + r / K * S : NULL, S, KEEP, y->exact, mask + r * S * S, room);
    oracle_run(&(oracle){.B = B,
                         .S = S,
                         .S_kv = S,
                         .H = H,
                         .K = K,
                         .D = D,
                         .scale = (double)scale,
                         .q = y->wide + begin[Q],
                         .k = y->wide + begin[KEY],
                         .v = y->wide + begin[V],
                         .bias = bias,
                         .mask = mask,
                         .o = o,
                         .lse = lse});
    for (int i = 0; i < QUERIES; i++) loss += o[i] * (double)y->dO[i];
    return loss;
}

/* ---- the ops --------------------------------------------------------------------------------------------------- */

typedef struct between {
    float u[B * K * S], bias[B * K * S], dbias[B * K * S], o[QUERIES], lse[B * H * S];
    int32_t list[B * K * S], until[B * K * S];
} between;

static void forward(pb_ctx *ctx, layer *y, between *m)
{
    CHECK_OK(pb_dynmask_bias_fwd(ctx, &(pb_dynmask_bias_fwd_args){.v = y->x + begin[V],
                                                                  .w = y->x + begin[W],
                                                                  .dt = y->x + begin[DT],
                                                                  .a = y->x + begin[A],
                                                                  .u = m->u,
                                                                  .bias = m->bias,
                                                                  .B = B,
                                                                  .S = S,
                                                                  .K = K,
                                                                  .D = D,
                                                                  .ldv = N,
                                                                  .exponential = y->exponential}));
    CHECK_OK(pb_dynmask_keys_build(ctx, &(pb_dynmask_keys_build_args){.bias = m->bias,
                                                                      .start = y->packed ? y->start : NULL,
                                                                      .list = m->list,
                                                                      .until = m->until,
                                                                      .B = B,
                                                                      .S = S,
                                                                      .K = K,
                                                                      .L = S,
                                                                      .keep = KEEP,
                                                                      .exact = y->exact}));
}

#define SHARED(y, m)                                                                                                   \
    .q = (y)->x + begin[Q], .k = (y)->x + begin[KEY], .v = (y)->x + begin[V], .bias = (m)->bias, .list = (m)->list,    \
    .until = (m)->until, .o = (m)->o, .lse = (m)->lse, .B = B, .S = S, .S_kv = S, .H = H, .K = K, .D = D, .L = S,      \
    .keep = KEEP, .ldq = H * D, .ldo = H * D, .ldk = N, .ldv = N, .scale = scale

/* Runs attention forward and backward, then dynmask_bias_bwd. The bias is computed from v, so the latter adds to the dv
 * that dynmask_attention_bwd has written. */
static void attend(pb_ctx *ctx, layer *y, between *m)
{
    CHECK_OK(pb_dynmask_attention_fwd(ctx, &(pb_dynmask_attention_fwd_args){SHARED(y, m)}));
    CHECK_OK(pb_dynmask_attention_bwd(
        ctx, &(pb_dynmask_attention_bwd_args){SHARED(y, m), .dO = y->dO, .dq = y->grad + begin[Q],
                                              .dk = y->grad + begin[KEY], .dv = y->grad + begin[V], .dbias = m->dbias,
                                              .lddo = H * D, .lddq = H * D, .lddk = N, .lddv = N}));
    CHECK_OK(pb_dynmask_bias_bwd(ctx, &(pb_dynmask_bias_bwd_args){.dbias = m->dbias,
                                                                  .v = y->x + begin[V],
                                                                  .w = y->x + begin[W],
                                                                  .a = y->x + begin[A],
                                                                  .u = m->u,
                                                                  .dv = y->grad + begin[V],
                                                                  .dw = y->grad + begin[W],
                                                                  .ddt = y->grad + begin[DT],
                                                                  .da = y->grad + begin[A],
                                                                  .B = B,
                                                                  .S = S,
                                                                  .K = K,
                                                                  .D = D,
                                                                  .ldv = N,
                                                                  .lddv = N,
                                                                  .exponential = y->exponential}));
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static void check_lists(const between *m, const bool *mask)
{
    static bool seen[B * K * S * S];
    memset(seen, 0, sizeof seen);
    for (int r = 0; r < B * K; r++)
        for (int l = 0; l < S; l++)
            for (int i = m->list[r * S + l]; i >= 0 && i < m->until[r * S + l]; i++)
                seen[(r * S + i) * S + m->list[r * S + l]] = true;
    assert_memory_equal(seen, mask, sizeof seen);
}

/* Compares 20 elements of the gradient of an input, or all, with central differences. */
static void check_gradient(layer *y, enum input in)
{
    static bool mask[B * K * S * S];
    const int n = begin[in + 1] - begin[in], step = n > 20 ? n / 20 : 1;
    const double h = 1e-6;
    double diff = 0, norm = 0;
    for (int i = begin[in] + step / 2; i < begin[in + 1]; i += step) {
        const double x = y->wide[i];
        y->wide[i] = x + h;
        const double up = definition(y, mask);
        y->wide[i] = x - h;
        const double want = (up - definition(y, mask)) / (2 * h), got = (double)y->grad[i];
        y->wide[i] = x;
        diff += (got - want) * (got - want), norm += want * want;
    }
    const double rel = sqrt(diff / norm);
    if (!(norm > 1e-4) || !(rel <= 2e-5)) fail_msg("%s: rel %g of norm %g", names[in], rel, sqrt(norm));
}

static void check_layer(pb_ctx *ctx, int form)
{
    static bool mask[B * K * S * S];
    layer *y = make(form);
    between *m = malloc(sizeof *m);
    double loss = 0;
    assert_non_null(m);
    memset(m, 0xff, sizeof *m); /* NaN */
    forward(ctx, y, m);
    const double want = definition(y, mask);
    check_lists(m, mask);
    attend(ctx, y, m);
    for (int i = 0; i < QUERIES; i++) loss += (double)m->o[i] * (double)y->dO[i];
    CHECK_NEAR(loss, want, 1e-5 * (1 + fabs(want)));
    for (int in = 0; in < INPUTS; in++) check_gradient(y, (enum input)in);
    free(m), free(y);
}

static void the_kernel_packages_form_in_exact_mode(void **state) { check_layer(*state, 2); }
static void the_form_of_doge_in_exact_mode(void **state) { check_layer(*state, 3); }
static void both_forms_in_union_mode(void **state)
{
    check_layer(*state, 0);
    check_layer(*state, 1);
}
static void packed_rows(void **state)
{
    check_layer(*state, 7);
    check_layer(*state, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_packages_form_in_exact_mode),
        cmocka_unit_test(the_form_of_doge_in_exact_mode),
        cmocka_unit_test(both_forms_in_union_mode),
        cmocka_unit_test(packed_rows),
    };
    return test_every_impl(&pb_op_dynmask_attention_fwd, tests, sizeof tests / sizeof *tests);
}
