/* own_input_test.c - tests of the user's model and data in training suites: their names in keys, and that a case reads
 * the rows and weights that `train` reads. */
#include <sys/stat.h>
#include <unistd.h>

#include "bench/suites/own_input.h"
#include "bench/suites/suites.h"
#include "tests/bench/suites/first_step.h"
#include "tests/test.h"
#include "trainer/step/trainer_impl.h"

#define FOLDER PB_SOURCE "/tests/fixtures/hf/qwen2"

enum { LONG_ONE = 3 }; /* not in the first batch of the order of seed 42 */
static char temporary[] = "/tmp/pb_own_XXXXXX";

static const char *in_temporary(const char *name)
{
    static char path[4][160];
    static int turn;
    snprintf(path[turn % 4], sizeof path[0], "%s/%s", temporary, name);
    return path[turn++ % 4];
}

/* Copies a file; the first `from` in it becomes `to`, which is as long. */
static void copy(const char *source, const char *name, const char *from, const char *to)
{
    static char text[1 << 20];
    FILE *f = fopen(source, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    char *at = from ? strstr(text, from) : NULL;
    assert_true(!from || at);
    if (from) memcpy(at, to, strlen(to));
    f = fopen(in_temporary(name), "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static pb_own_input open_names(const char *model, const pb_input_request *r)
{
    pb_own_input *own = NULL, names;
    CHECK_OK(pb_own_input_open(model, r, &own));
    names = *own;
    pb_own_input_close(own);
    return names;
}

/* Equal configurations and data have equal names in any folder; each change gives another name. */
static void names_follow_the_content(void **state)
{
    (void)state;
    pb_input_request r = {.tokenizer = "bytes"};
    char data[160], other[160], mine[160];
    assert_non_null(mkdtemp(temporary));
    copy(FOLDER "/config.json", "config.json", NULL, NULL);
    copy(PB_SOURCE "/data/corpus.jsonl", "same.jsonl", NULL, NULL);
    copy(PB_SOURCE "/data/corpus.jsonl", "other.jsonl", "timer", "tamer");
    snprintf(data, sizeof data, "%s", in_temporary("same.jsonl"));
    snprintf(other, sizeof other, "%s", in_temporary("other.jsonl"));
    snprintf(mine, sizeof mine, "%s", temporary);
    const pb_own_input a = open_names(FOLDER, &r);
    r.data = data;
    const pb_own_input b = open_names(mine, &r);
    assert_string_equal(a.model, b.model);
    assert_string_equal(a.data, b.data);
    copy(FOLDER "/config.json", "config.json", "1e-06", "2e-06");
    assert_string_not_equal(open_names(mine, &r).model, a.model);
    assert_string_equal(open_names("tiny", &r).model, "tiny");
    r.data = other;
    assert_string_not_equal(open_names(mine, &r).data, a.data);
    r.data = data, r.mask = "all";
    assert_string_not_equal(open_names(mine, &r).data, a.data);
    r.mask = "assistant";
    assert_string_equal(open_names(mine, &r).data, a.data);
    unlink(data), unlink(other), unlink(in_temporary("config.json"));
    assert_int_equal(rmdir(temporary), 0);
}

/* Twelve conversations of some 40 tokens, but one of more than 64. */
static const char *short_ones(void)
{
    static char path[] = "/tmp/pb_own_short.XXXXXX";
    static bool written;
    if (written) return path;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *f = fdopen(fd, "w");
    assert_non_null(f);
    for (int i = 0; i < 12; i++)
        fprintf(f,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"number %d\"},"
                "{\"role\":\"assistant\",\"content\":\"%s\"}]}\n",
                i, i == LONG_ONE ? "a much longer answer, which does not fit into sixty-four bytes at all" : "short");
    fclose(f);
    written = true;
    return path;
}

/* The case of a plan of suite throughput with the user's folder and these axes, on the CPU. */
static pb_plan plan_of(pb_ctx *ctx, const char *data, const char *pack, const char *accumulate)
{
    pb_plan plan;
    pb_plan_request r = {.input = {.tokenizer = "bytes", .data = data}, .no_ceilings = true};
    const pb_axis_values axes[] = {{"model", FOLDER}, {"tuning", "full"}, {"batch", "2"}, {"seq", "128"},
                                   {"mode", "eager"}, {"clip", "multi"},  {"pack", pack}, {"accumulate", accumulate}};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++)
        if (axes[i].values) r.axes.v[r.axes.n++] = axes[i];
    CHECK_OK(pb_plan_make(ctx, pb_suite_find("throughput"), &r, &plan));
    assert_int_equal(plan.n - plan.controls, 1);
    return plan;
}

/* A case has the rows, the row length and the weights of the first step of `train`; both are on the CPU. */
static void a_case_reads_what_train_reads(void **state)
{
    static const char *const packs[] = {"on", "off", "stream"};
    for (int i = 0; i < 3; i++) {
        pb_plan plan = plan_of(*state, i == 1 ? short_ones() : NULL, i ? packs[i] : NULL,
                               NULL); /* without the axis: "on", as in `train` */
        const pb_case *c = &plan.cases[0];
        char packed[32], data[64], model[] = "--model=" FOLDER;
        char *words[] = {model,       "--tokenizer=bytes", "--tuning=full", "--batch=2",
                         "--seq=128", "--quiet",           packed,          data};
        first_step want;
        pb_trainer *t;
        double loss;
        snprintf(packed, sizeof packed, "--pack=%s", packs[i]);
        snprintf(data, sizeof data, "--data=%s", short_ones());
        CHECK_OK(first_step_of_train(i == 1 ? 8 : 7, words, &want));
        assert_true(i == 2 ? !pb_case_get(c, "pack") : pb_case_is(c, "pack", packs[i]));
        assert_non_null(pb_case_get(c, "data"));
        CHECK_OK(pb_train_case_open(*state, c, &t));
        assert_int_equal(t->S, want.S);
        assert_int_equal(t->cfg.S, want.S);
        assert_int_equal(t->T, want.T);
        assert_int_equal(t->S, i == 1 ? 64 : 128);
        const void *const got[] = {t->ids, t->targets, t->mask, t->start, t->pos};
        for (int k = 0; k < (i == 2 ? 3 : 5); k++) assert_memory_equal(got[k], want.array[k], (size_t)t->T * 4);
        CHECK_OK(pb_phase_forward(*state, t));
        CHECK_OK(pb_phase_loss(*state, t));
        CHECK_OK(pb_trainer_loss(t, &loss));
        assert_true(loss == want.loss);
        first_step_free(&want);
        pb_trainer_close(t);
        pb_plan_free(&plan);
    }
}

/* All micro-batches of a case have one row length, that of the longest. */
static void micro_batches_have_one_length(void **state)
{
    pb_plan plan = plan_of(*state, short_ones(), "off", "3");
    pb_train_config one, cfg;
    CHECK_OK(pb_train_case_config(&plan.cases[0], &cfg));
    one = cfg;
    one.micro_batches = 1;
    CHECK_OK(pb_train_case_shape(&plan.cases[0], &cfg));
    CHECK_OK(pb_train_case_shape(&plan.cases[0], &one));
    assert_int_equal(one.S, 64);
    assert_int_equal(cfg.S, 128);
    pb_trainer *t;
    CHECK_OK(pb_train_case_trainer(*state, &plan.cases[0], &cfg, &t));
    for (size_t i = 0; i < 6; i++) {
        CHECK_OK(pb_train_case_micro_batch(&plan.cases[0], t, i / 3 * 3, 3, i % 3));
        assert_int_equal(t->S, cfg.S);
    }
    pb_trainer_close(t);
    pb_plan_free(&plan);
}

/* In bf16 the gradient is compared with that of an f32 model of the same, rounded weights. */
static void gradients_of_loaded_weights_are_checked(void **state)
{
    for (int tuning = 0; tuning < PB_NTUNINGS; tuning++) {
        pb_plan plan = plan_of(*state, NULL, NULL, NULL);
        pb_case c = plan.cases[0];
        static const char *const words[] = {"full", "lora", "qlora"};
        pb_trainer *t;
        double error;
        CHECK_OK(pb_case_set(&c, "dtype", "bf16"));
        CHECK_OK(pb_case_set(&c, "tuning", words[tuning]));
        CHECK_OK(pb_train_case_open(*state, &c, &t));
        CHECK_OK(pb_gradient_error(&c, t, &error));
        if (!(error <= pb_gradient_bound(PB_BF16))) fail_msg("%s: error %g", words[tuning], error);
        pb_trainer_close(t);
        pb_plan_free(&plan);
    }
}

/* Rows that were read are used again only for the same length and packing. */
static void rows_belong_to_their_length(void **state)
{
    pb_plan plan = plan_of(*state, NULL, NULL, NULL);
    pb_dataset_config d = {.long_ones = PB_LONG_SPLIT, .S = 64, .align = 1};
    pb_dataset *rows;
    CHECK_OK(pb_own_input_rows(plan.own, &d, &rows));
    const size_t half = pb_dataset_rows(rows);
    d.S = 128;
    CHECK_OK(pb_own_input_rows(plan.own, &d, &rows));
    assert_true(pb_dataset_rows(rows) < half);
    pb_plan_free(&plan);
    unlink(short_ones());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_follow_the_content),      cmocka_unit_test(a_case_reads_what_train_reads),
        cmocka_unit_test(micro_batches_have_one_length), cmocka_unit_test(gradients_of_loaded_weights_are_checked),
        cmocka_unit_test(rows_belong_to_their_length),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
