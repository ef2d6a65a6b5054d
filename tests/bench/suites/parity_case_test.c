/* parity_case_test.c - tests of the case `parity` of suite backward: its four requirements pass on correct code, and
 * each fails on the fault that it is there for. Only the tested trainer has the faults, not the oracle. */
#include "bench/rows/read.h"
#include "bench/rows/series.h"
#include "bench/suites/parity.h"
#include "bench/suites/train_case.h"
#include "tests/bench/emitter.h"
#include "trainer/step/trainer_impl.h"

enum { ROWS = 4 };
static const char *const ids[ROWS] = {"PARITY-LOSS?", "PARITY-FUSED?", "PARITY-LOGITS?", "PARITY-NORM-ROWS?"};

/* The faults of a trainer. */
typedef enum fault { NONE, OTHER_GAINS, OTHER_MASK, OTHER_EPS, NAN_WEIGHT } fault;
static fault now;

/* The final norm precedes the head, so scaling its gains scales all logits. */
static void scale_gains(pb_trainer *t, float factor)
{
    const pb_param *p = t->model.outer[PB_P_norm];
    float *w = test_fetch(t->ctx, p->w, pb_param_n(p) * sizeof *w);
    for (size_t i = 0; i < pb_param_n(p); i++) w[i] *= factor;
    CHECK_OK(pb_upload(t->ctx, p->w, w, pb_param_n(p) * sizeof *w));
    free(w);
}

static void spoil(pb_trainer *t)
{
    if (now == OTHER_GAINS) scale_gains(t, 8);
    if (now == NAN_WEIGHT) scale_gains(t, NAN);
    if (now == OTHER_EPS) t->model.g.eps = 0.3f;
    if (now == OTHER_MASK) {
        float *x = test_fetch(t->ctx, t->mask, (size_t)t->T * sizeof *x);
        for (int i = 0; i < t->T; i++) x[i] *= 0.9f;
        CHECK_OK(pb_upload(t->ctx, t->mask, x, (size_t)t->T * sizeof *x));
        free(x);
    }
}

/* Only the oracle's context prefers an implementation, the reference. */
pb_status __real_pb_train_case_open_all(pb_ctx *ctx, const pb_case *c, pb_trainer **out);
pb_status __wrap_pb_train_case_open_all(pb_ctx *ctx, const pb_case *c, pb_trainer **out);
pb_status __wrap_pb_train_case_open_all(pb_ctx *ctx, const pb_case *c, pb_trainer **out)
{
    const pb_status s = __real_pb_train_case_open_all(ctx, c, out);
    if (s == PB_OK && !ctx->prefer) spoil(*out);
    return s;
}

/* Runs the case, and writes "P" (pass), "F" (fail), "U" (unsupported) or "-" (no row) for each requirement to out. */
static void run(pb_ctx *ctx, const char *key, fault with, char out[ROWS + 1])
{
    pb_emitter e;
    pb_table t;
    pb_case c;
    CHECK_OK(pb_case_parse(key, &c));
    open_emitter(&e);
    now = with;
    CHECK_OK(pb_parity(ctx, &c, &e));
    now = NONE;
    CHECK_OK(pb_table_read(dir, &t));
    for (int i = 0; i < ROWS; i++) {
        out[i] = '-';
        for (size_t k = 0; k < t.n; k++) {
            if (!strstr(t.rows[k].key, ids[i])) continue;
            assert_int_equal(out[i], '-');
            out[i] = t.rows[k].status == PB_ROW_PASS ? 'P' : t.rows[k].status == PB_ROW_FAIL ? 'F' : 'U';
            if (with == NONE) assert_true(t.rows[k].value >= 0 && t.rows[k].value < 1e-4);
        }
    }
    out[ROWS] = 0;
    pb_table_free(&t);
    close_emitter(&e);
}

#define KEY(model, tuning)                                                                                             \
    "backward/parity?batch=2&clip=fused&dtype=f32&layers=0&mode=eager&model=" model                                    \
    "&rank=16&seq=16&targets=q+v&tuning"                                                                               \
    "=" tuning

static void each_requirement_fails_on_its_fault(void **state)
{
    static const struct {
        fault with;
        const char *rows;
    } want[] = {{NONE, "PPPP"}, {OTHER_GAINS, "FPFF"}, {OTHER_MASK, "PFPP"}, {OTHER_EPS, "PPFF"}, {NAN_WEIGHT, "FFFF"}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char got[ROWS + 1];
        run(*state, KEY("tiny", "qlora"), want[i].with, got);
        if (strcmp(got, want[i].rows) != 0) fail_msg("fault %d: %s, want %s", (int)want[i].with, got, want[i].rows);
    }
}

static void every_family_passes(void **state)
{
    static const char *const keys[] = {KEY("tiny-qwen3", "lora"), KEY("tiny-llama", "full"), KEY("doge-tiny", "full"),
                                       KEY("v4-tiny", "full")};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char got[ROWS + 1];
        run(*state, keys[i], NONE, got);
        if (strcmp(got, "PPPP") != 0) fail_msg("%s: %s", keys[i], got);
    }
}

static void other_cases_are_refused(void **state)
{
    static const char *const bad[] = {"backward/parity?batch=1&clip=sync&mode=eager&seq=8",
                                      "backward/parity?batch=1&clip=fused&mode=graph&seq=8",
                                      "backward/parity?batch=1&clip=fused&loss-chunk=64&mode=eager&seq=8",
                                      "backward/parity?batch=1&clip=fused&mode=eager&recompute=layer&seq=8",
                                      "backward/parity?accumulate=2&batch=1&clip=fused&mode=eager&seq=8"};
    pb_case c;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_OK(pb_case_parse(bad[i], &c));
        CHECK_FAILS(pb_parity_check(&c), PB_EINVAL, "case parity needs mode=eager, clip=fused");
    }
    CHECK_OK(pb_case_parse(KEY("tiny", "lora"), &c));
    CHECK_OK(pb_parity_check(&c)); /* 32 tokens */
    CHECK_OK(pb_case_parse("backward/parity?batch=1&clip=fused&mode=eager&seq=33", &c));
    CHECK_FAILS(pb_parity_check(&c), PB_EINVAL, "batch=1 and seq=33 are more than 32 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_requirement_fails_on_its_fault),
        cmocka_unit_test(every_family_passes),
        cmocka_unit_test(other_cases_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
