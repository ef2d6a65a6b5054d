/* buckets_test.c - tests the order of a model's gradients, and their division into buckets and slices: every gradient
 * is in one bucket and one slice, a bucket is complete when its last gradient is, a tied embedding is complete last,
 * and slices end between partial sums of the norm; with NorMuon no block is cut, and costs are balanced. */

#include <math.h>
#include <stdlib.h>

#include "kernels/clip/clip.h"
#include "tests/test.h"
#include "trainer/parallel/matrix_cuts.h"
#include "trainer/parallel/slices.h"
#include "trainer/step/trainer.h"

static void open_model(pb_ctx *ctx, const char *name, pb_tuning tuning, pb_dtype dtype, pb_model *m)
{
    const pb_geometry *g;
    CHECK_OK(pb_geometry_find(name, &g));
    pb_model_config c = pb_train_defaults(g).model;
    c.tuning = tuning;
    c.dtype = dtype;
    CHECK_OK(pb_model_open(ctx, &c, m));
}

/* The bucket of a tied embedding, which the first and the last stage write. */
static bool is_tied(const pb_model *m, const pb_param *p) { return m->g.tied && p == m->outer[PB_P_embed]; }

static void check_buckets(const pb_model *m, size_t least, pb_bucket_ends ends)
{
    const bool whole = ends != PB_ENDS_AFTER_TENSORS;
    pb_buckets b;
    size_t at = 0;
    int next = 0, before = -1;
    CHECK_OK(pb_buckets_make(m, least, ends, &b));
    for (int i = 0; i < b.n; i++) {
        const pb_bucket *x = &b.bucket[i];
        int stage = 0;
        size_t last = 0;
        assert_int_equal(x->at, at);
        for (; next < m->ordered && m->order[next]->at < x->at + x->n; next++) {
            const pb_param *p = m->order[next];
            assert_true(p->at >= x->at && p->at + pb_param_n(p) <= x->at + x->n);
            assert_true((p->at < m->wide) == (x->at < m->wide));
            assert_true(!whole || p->at >= m->wide || p->stage > before);
            if (whole && is_tied(m, p)) assert_true(p->at == x->at && x->n >= pb_param_n(p) && x->stage == p->stage);
            assert_true(ends != PB_ENDS_AFTER_EVERY_STAGE || p->at >= m->wide || !stage || p->stage == stage);
            if (p->stage > stage) stage = p->stage;
            last = p->at;
        }
        assert_int_equal(x->stage, stage);
        if (!whole) assert_true(last - x->at < least); /* it had fewer elements before its last tensor */
        if (x->at < m->wide) before = stage;
        at += x->n;
    }
    assert_int_equal(at, m->vector);
    assert_int_equal(next, m->ordered);
    free(b.bucket);
}

static void every_gradient_is_in_one_bucket(void **state)
{
    static const char *const names[] = {"tiny", "tiny-llama", "v4-tiny"};
    for (size_t i = 0; i < 3; i++)
        for (int tuning = 0; tuning < PB_NTUNINGS; tuning++)
            for (int narrow = 0; narrow < 2; narrow++) {
                pb_model m;
                open_model(*state, names[i], (pb_tuning)tuning, narrow ? PB_BF16 : PB_F32, &m);
                for (int ends = 0; ends <= PB_ENDS_AFTER_EVERY_STAGE; ends++) {
                    check_buckets(&m, 1, (pb_bucket_ends)ends);
                    check_buckets(&m, 5000, (pb_bucket_ends)ends);
                    check_buckets(&m, SIZE_MAX, (pb_bucket_ends)ends);
                }
                pb_model_close(&m);
            }
}

/* The order in which backward.c computes the gradients. */
static void gradients_are_ordered_by_the_backward_pass(void **state)
{
    pb_model m;
    open_model(*state, "tiny", PB_FULL, PB_F32, &m);
    assert_string_equal(m.order[0]->name, "norm");
    assert_string_equal(m.order[m.ordered - 1]->name, "embed"); /* tied: the head's part, then the rows of the tokens */
    assert_int_equal(m.order[m.ordered - 1]->stage, m.g.L + 1);
    for (int i = 1; i < m.ordered; i++) {
        assert_true(m.order[i - 1]->stage <= m.order[i]->stage);
        assert_true(m.order[i - 1]->layer < 0 || m.order[i]->layer <= m.order[i - 1]->layer);
        assert_true(m.order[i]->at >= m.order[i - 1]->at + pb_param_n(m.order[i - 1]));
        assert_int_equal(m.order[i]->at % PB_FLAT_ALIGN, 0);
        assert_ptr_equal(m.order[i]->grad, m.order[0]->grad + m.order[i]->at);
    }
    pb_model_close(&m);
    open_model(*state, "tiny-llama", PB_FULL, PB_BF16, &m);
    assert_string_equal(m.order[0]->name, "head");
    for (int i = 0; i < m.ordered; i++) assert_true((m.order[i]->dtype == PB_BF16) == (m.order[i]->at < m.wide));
    pb_model_close(&m);
}

/* Checks the pieces of one rank, and marks their elements in seen[m->vector], if it is not NULL. */
static void check_pieces(const pb_model *m, const pb_slices *s, unsigned char *seen)
{
    size_t own = 0;
    for (int i = 0; i < s->n; i++) {
        const pb_piece *x = &s->piece[i];
        const size_t n = pb_param_n(x->p), run = pb_clip_run(n);
        assert_true(x->n > 0 && x->first + x->n <= n);
        assert_int_equal(x->first % run, 0);
        assert_true(x->first + x->n == n || (x->first + x->n) % run == 0);
        if (x->p->moments == PB_ADAMW_8BIT) assert_int_equal(x->first % PB_ADAMW_BLOCK, 0);
        assert_true(x->own >= own && x->own + x->n <= s->total);
        own = x->own + x->n;
        for (size_t k = 0; seen && k < x->n; k++) assert_int_equal(seen[x->p->at + x->first + k]++, 0);
    }
    (void)m;
}

static void check_slices(const pb_model *m, size_t least, int ranks)
{
    pb_buckets b;
    unsigned char *seen = calloc(m->vector, 1);
    size_t all = 0, marked = 0, run = 0;
    assert_non_null(seen);
    CHECK_OK(pb_buckets_make(m, least, PB_ENDS_AFTER_TENSORS, &b));
    for (int r = 0; r < ranks; r++) {
        pb_slices s;
        CHECK_OK(pb_slices_make(m, &b, ranks, r, false, &s));
        check_pieces(m, &s, seen);
        all += s.total;
        for (int i = 0; i < b.n; i++) {
            assert_int_equal(pb_slice_at(&s, i, ranks), b.bucket[i].n);
            for (int k = 0; k < m->ordered; k++)
                if (pb_cut_run(m->order[k]) > run) run = pb_cut_run(m->order[k]);
            const size_t even = b.bucket[i].n / (size_t)ranks, own = s.count[i * ranks + r];
            assert_true(own <= even + run + 1 && even <= own + run + 1); /* as equal as the partial sums allow */
        }
        pb_slices_free(&s);
    }
    assert_int_equal(all, m->vector);
    for (size_t i = 0; i < m->vector; i++) marked += seen[i];
    assert_int_equal(marked, m->trained);
    free(b.bucket);
    free(seen);
}

static void every_element_is_in_one_slice(void **state)
{
    for (int tuning = 0; tuning < PB_NTUNINGS; tuning++)
        for (int ranks = 1; ranks <= 7; ranks += 2) {
            pb_model m;
            open_model(*state, "tiny", (pb_tuning)tuning, PB_BF16, &m);
            check_slices(&m, 5000, ranks);
            check_slices(&m, SIZE_MAX, ranks);
            pb_model_close(&m);
        }
}

/* The cost of the blocks in rows from..to-1 of a matrix, which must not cut a block. *part: the largest cost of blocks
 * that no slice may end between. */
static uint64_t cost_of_rows(const pb_model *m, const pb_param *p, bool per_head, size_t from, size_t to,
                             uint64_t *part)
{
    pb_matrix_cut c[PB_MATRIX_CUTS];
    const size_t run = pb_clip_run(pb_param_n(p));
    size_t row = 0;
    uint64_t sum = 0, here = 0;
    bool begins = false, ends = false;
    pb_matrix_cuts(m, p, per_head, c);
    for (int i = 0; i < PB_MATRIX_CUTS; i++)
        for (size_t k = 0; c[i].rows && k < c[i].times; k++) {
            const uint64_t cost = pb_matrix_cost(c[i].rows, p->cols);
            begins = begins || row == from;
            if (row >= from && row < to) sum += cost;
            row += c[i].rows;
            ends = ends || row == to;
            here += cost;
            if (here > *part) *part = here;
            if (row * p->cols % run == 0) here = 0;
        }
    assert_int_equal(row, p->rows);
    assert_true(begins && ends);
    return sum;
}

/* Adds up the costs of a rank's pieces. */
static uint64_t load_of(const pb_model *m, const pb_slices *s, bool per_head, uint64_t *part)
{
    uint64_t sum = 0;
    for (int i = 0; i < s->n; i++) {
        const pb_piece *x = &s->piece[i];
        const uint64_t run = PB_ADAMW_COST * (uint64_t)pb_clip_run(pb_param_n(x->p));
        if (!x->p->by_rows) {
            sum += PB_ADAMW_COST * (uint64_t)x->n;
            if (run > *part) *part = run;
            continue;
        }
        assert_int_equal(x->first % x->p->cols, 0);
        assert_int_equal(x->n % x->p->cols, 0);
        sum += cost_of_rows(m, x->p, per_head, x->first / x->p->cols, (x->first + x->n) / x->p->cols, part);
    }
    return sum;
}

/* Returns the largest cost of a rank divided by the mean, and in *size the largest own vector divided by the mean.
 * seen: see check_pieces. */
static double check_costs(const pb_model *m, const pb_buckets *b, int ranks, bool per_head, unsigned char *seen,
                          double *size)
{
    uint64_t most = 0, all = 0, part = 0;
    *size = 0;
    for (int r = 0; r < ranks; r++) {
        pb_slices s;
        CHECK_OK(pb_slices_make(m, b, ranks, r, per_head, &s));
        check_pieces(m, &s, seen);
        const uint64_t load = load_of(m, &s, per_head, &part);
        if (load > most) most = load;
        *size = fmax(*size, (double)s.total * ranks / (double)m->vector);
        all += load;
        for (int i = 0; i < b->n; i++) assert_int_equal(pb_slice_at(&s, i, ranks), b->bucket[i].n);
        pb_slices_free(&s);
    }
    assert_true(most <= all / (uint64_t)ranks + part);
    return (double)most * ranks / (double)all;
}

static void check_owners(const pb_model *m, size_t least, pb_bucket_ends ends, int ranks, bool per_head)
{
    pb_buckets b;
    unsigned char *seen = calloc(m->vector, 1);
    size_t marked = 0;
    double size;
    assert_non_null(seen);
    CHECK_OK(pb_buckets_make(m, least, ends, &b));
    (void)check_costs(m, &b, ranks, per_head, seen, &size);
    for (size_t i = 0; i < m->vector; i++) marked += seen[i];
    assert_int_equal(marked, m->trained);
    free(b.bucket);
    free(seen);
}

static void a_slice_begins_with_a_block_of_8_bit_moments(void **state)
{
    const pb_geometry *g;
    bool odd = false;
    CHECK_OK(pb_geometry_find("tiny-llama", &g));
    pb_model_config c = pb_train_defaults(g).model;
    c.rank = 18;
    c.targets = (1u << PB_NTARGETS) - 1;
    c.moments = PB_ADAMW_8BIT;
    for (int ranks = 2; ranks <= 7; ranks++) {
        pb_model m;
        CHECK_OK(pb_model_open(*state, &c, &m));
        check_slices(&m, 5000, ranks);
        check_slices(&m, SIZE_MAX, ranks);
        for (int i = 0; i < m.ordered; i++) odd |= pb_cut_run(m.order[i]) != pb_clip_run(pb_param_n(m.order[i]));
        pb_model_close(&m);
    }
    assert_true(odd); /* otherwise every partial sum would end at a block */
}

static void a_block_has_one_owner_and_costs_are_balanced(void **state)
{
    static const char *const names[] = {"tiny", "tiny-llama", "v4-tiny"};
    for (size_t i = 0; i < 3; i++)
        for (int tuning = 0; tuning < PB_NTUNINGS; tuning++)
            for (int ranks = 1; ranks <= 8; ranks++) {
                const pb_geometry *g;
                pb_model m;
                CHECK_OK(pb_geometry_find(names[i], &g));
                pb_model_config c = pb_train_defaults(g).model;
                c.tuning = (pb_tuning)tuning;
                c.dtype = ranks % 2 ? PB_BF16 : PB_F32;
                c.row_moments = true;
                CHECK_OK(pb_model_open(*state, &c, &m));
                check_owners(&m, 5000, PB_ENDS_AFTER_TENSORS, ranks, ranks % 3);
                check_owners(&m, SIZE_MAX, PB_ENDS_AFTER_STAGES, ranks, false);
                check_owners(&m, 5000, PB_ENDS_AFTER_EVERY_STAGE, ranks, ranks % 3);
                pb_model_close(&m);
            }
}

/* A model of 24 layers, which the plan backend opens without memory. */
static void costs_of_a_large_model_are_nearly_equal(void **state)
{
    pb_ctx plan;
    pb_model m;
    const pb_geometry *g;
    (void)state;
    CHECK_OK(pb_ctx_open_plan(&plan, PB_CPU));
    CHECK_OK(pb_geometry_find("qwen2.5-0.5b", &g));
    pb_model_config c = pb_train_defaults(g).model;
    c.tuning = PB_FULL;
    c.row_moments = true;
    CHECK_OK(pb_model_open(&plan, &c, &m));
    for (int ends = 0; ends <= PB_ENDS_AFTER_EVERY_STAGE; ends++) {
        pb_buckets b;
        CHECK_OK(pb_buckets_make(&m, PB_BUCKET_BYTES / sizeof(float), (pb_bucket_ends)ends, &b));
        for (int ranks = 2; ranks <= 8; ranks *= 2) {
            double size;
            assert_true(check_costs(&m, &b, ranks, ranks == 4, NULL, &size) <= 1.03);
            assert_true(size <= 1.45);
        }
        free(b.bucket);
    }
    /* Each tensor is a bucket, so that q, k and v are divided: between partial sums, which no head is a multiple of. */
    pb_buckets b;
    double size;
    CHECK_OK(pb_buckets_make(&m, 1, PB_ENDS_AFTER_TENSORS, &b));
    for (int ranks = 2; ranks <= 4; ranks++) (void)check_costs(&m, &b, ranks, true, NULL, &size);
    free(b.bucket);
    pb_model_close(&m);
    pb_ctx_close(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gradient_is_in_one_bucket),
        cmocka_unit_test(every_element_is_in_one_slice),
        cmocka_unit_test(a_slice_begins_with_a_block_of_8_bit_moments),
        cmocka_unit_test(a_block_has_one_owner_and_costs_are_balanced),
        cmocka_unit_test(costs_of_a_large_model_are_nearly_equal),
        cmocka_unit_test(gradients_are_ordered_by_the_backward_pass),
    };
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
