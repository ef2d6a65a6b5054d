/* normuon_pytorch_ranks_test.c - compares NorMuon over several ranks with PyTorch in double precision over two
 * processes (scripts/fixtures/normuon_fixtures.py): losses of three steps, and the change of every trained tensor.
 *
 * The bounds. A step in f32 has gradients with relative errors of about 1e-6. The orthogonal factor multiplies what
 * lies in the direction of small singular values by up to 700 (the product of the first factors of the five steps), and
 * AdamW divides by the size of each gradient, which does the same to elements whose gradients nearly cancel. Changes
 * must agree to 1e-4 of their norm; on the CPU the largest difference was 2.7e-5. */
#include "tests/trainer/parallel/rank_runs.h"

enum { MICRO = 6 }; /* micro-batches of a step, of B rows each */

/* Trains the steps of the fixture; *change is the change of all weights, in pb_model.order. */
static pb_trainer *train_fixture(group *w, const char *model, pb_tuning tuning, pb_shard shard, double *loss,
                                 float **change)
{
    pb_train_config c = config(model, tuning);
    size_t n;
    c.clip = PB_CLIP_MULTI;
    c.max_norm = 0.05f;
    c.comm = w->comm;
    c.shard = shard;
    c.bucket_bytes = 30000;
    c.micro_batches = MICRO / w->ranks;
    c.ordered = true;
    c.optimizer = PB_OPTIMIZER_NORMUON;
    c.normuon.variant = PB_NS_QUINTIC;
    c.normuon.rate = 10;
    c.normuon.nesterov = true;
    c.normuon.guard = true;
    pb_trainer *t = open_trainer(&w->ctx, &c);
    double count = 0, part[RANKS_MOST];
    bool stop;
    for (int i = 0; i < MICRO * T; i++) count += pb_uniform(3, (uint64_t)i) < 0.7;
    CHECK_OK(pb_trainer_shard(t));
    float *before = everything(w, t, &n);
    for (int s = 0; s < STEPS; s++) {
        loss[s] = 0;
        for (int k = 0; k < c.micro_batches; k++) {
            fixture_batch(t, (k * w->ranks + w->rank) * B, B, count);
            pb_trainer_accumulate(t, k > 0);
            pb_trainer_reduce(t, k + 1 == c.micro_batches);
            CHECK_OK(pb_train_micro(&w->ctx, t));
            CHECK_OK(pb_trainer_losses(t, part, &stop));
            for (int r = 0; r < w->ranks; r++) loss[s] += part[r];
        }
        CHECK_OK(pb_train_finish(&w->ctx, t));
    }
    *change = everything(w, t, &n);
    for (size_t i = 0; i < n / 3; i++) (*change)[i] -= before[i];
    free(before);
    return t;
}

/* AdamW divides a gradient by its own magnitude. Where an element's gradient is near 0, its rounding, which depends on
 * the processor's instruction set, is therefore a larger part of the step than in a matrix of NorMuon. */
static void check_change(const pb_param *p, const float *change, double norm, double product)
{
    const double bound = (p->by_rows ? 1e-4 : 1e-3) * norm;
    double sum = 0, dot = 0;
    for (size_t i = 0; i < pb_param_n(p); i++) {
        const double x = (double)change[p->at + i];
        sum += x * x;
        dot += x * (2 * pb_uniform(99, i) - 1);
    }
    if (!(fabs(sqrt(sum) - norm) <= bound) || !(fabs(dot - product) <= bound))
        fail_msg("%s: |change| %.9g and <change,fixed> %.9g, PyTorch has %.9g and %.9g", p->name, sqrt(sum), dot, norm,
                 product);
}

static void compare(group *w, pb_shard shard)
{
    char line[256], model[32], tuning[8], what[48], as[48], open_as[48] = "";
    double norm, product, loss[STEPS];
    pb_trainer *t = NULL;
    float *change = NULL;
    int checked = 0;
    FILE *f = fopen(PB_FIXTURES "/normuon.csv", "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%31[^,],%7[^,],%47[^,],%lf,%lf", model, tuning, what, &norm, &product) != 5)
            fail_msg("%s", line);
        snprintf(as, sizeof as, "%s/%s", model, tuning);
        if (!t || strcmp(as, open_as) != 0) {
            pb_trainer_close(t);
            free(change);
            t = train_fixture(w, model, strcmp(tuning, "full") == 0 ? PB_FULL : PB_LORA, shard, loss, &change);
            memcpy(open_as, as, sizeof as);
        }
        if (strncmp(what, "loss", 4) == 0) CHECK_NEAR(loss[what[4] - '0'], norm, 2e-5);
        else check_change(param_named(&t->model, what), change, norm, product);
        checked++;
    }
    fclose(f);
    pb_trainer_close(t);
    free(change);
    assert_true(checked > 150);
}

static void every_shard_matches_pytorch(void **state)
{
    for (int shard = 0; shard < PB_NSHARDS; shard++) compare(*state, (pb_shard)shard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_shard_matches_pytorch)};
    return cmocka_run_group_tests(tests, open_group, close_group);
}
