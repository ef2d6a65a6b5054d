/* units_test.c - tests the division of a model's weights into units and slices: every weight has a place of its own in
 * the unit of its layer, and every byte of a unit is in one rank's slice, also where sizes do not divide by the
 * ranks. */
#include <stdlib.h>

#include "tests/test.h"
#include "trainer/parallel/units.h"
#include "trainer/step/trainer.h"

static size_t bytes_of(const pb_model *m, const pb_param *p)
{
    return p->trained ? pb_param_n(p) * pb_dtype_size(p->dtype) : pb_frozen_bytes(m, p);
}

/* Checks that the parameters of unit i do not overlap, and are inside it: frozen ones first. */
static void check_places(const pb_model *m, const pb_units *u, int i)
{
    const pb_unit *unit = &u->unit[i];
    unsigned char *taken = calloc(unit->size + 1, 1);
    assert_non_null(taken);
    for (int k = 0; k < m->n; k++) {
        const pb_param *p = &m->params[k];
        if (p->stage != i || pb_in_no_unit(m, p)) continue;
        const size_t at = u->place[k], end = at + bytes_of(m, p);
        assert_true(p->trained ? at >= unit->frozen : end <= unit->frozen);
        assert_true(end <= unit->size);
        assert_int_equal(at % (p->trained ? PB_FLAT_ALIGN * pb_dtype_size(p->dtype) : PB_UNIT_ALIGN), 0);
        for (size_t b = at; b < end; b++) assert_int_equal(taken[b]++, 0);
    }
    free(taken);
}

/* Checks the slices of unit i: they cover its frozen bytes, as evenly as blocks of PB_UNIT_ALIGN bytes allow. */
static void check_slices(const pb_units *u, int i)
{
    const size_t frozen = u->unit[i].frozen, ranks = (size_t)u->ranks;
    const size_t each = (frozen + ranks * PB_UNIT_ALIGN - 1) / (ranks * PB_UNIT_ALIGN) * PB_UNIT_ALIGN;
    assert_int_equal(frozen % PB_UNIT_ALIGN, 0);
    assert_int_equal(pb_unit_slice_at(u, i, u->ranks), frozen);
    for (int r = 0; r < u->ranks; r++) {
        const size_t at = pb_unit_slice_at(u, i, r), end = pb_unit_slice_at(u, i, r + 1);
        assert_int_equal(at, (size_t)r * each < frozen ? (size_t)r * each : frozen);
        assert_true(end - at <= each);
    }
}

/* Returns the bytes that rank r keeps of the units. */
static size_t check_rank(const pb_model *m, const pb_buckets *b, int ranks, int rank)
{
    pb_slices s;
    pb_units u;
    size_t own = 0, trained = 0;
    CHECK_OK(pb_slices_make(m, b, ranks, rank, false, &s));
    CHECK_OK(pb_units_make(m, b, &s, &u));
    assert_int_equal(u.n, m->g.L + 2);
    for (int i = 0; i < u.n; i++) {
        const pb_unit *unit = &u.unit[i];
        check_places(m, &u, i);
        check_slices(&u, i);
        assert_int_equal(unit->own, own);
        own += u.count[i * ranks + rank] * PB_UNIT_WORD;
        if (unit->bucket < 0) continue;
        assert_int_equal(b->bucket[unit->bucket].stage, i);
        assert_int_equal(s.own[unit->bucket], trained);
        trained += s.count[unit->bucket * ranks + rank];
    }
    assert_int_equal(u.own, own);
    assert_int_equal(u.trained, trained);
    const size_t bytes = own + trained * pb_dtype_size(m->cfg.dtype);
    pb_units_free(&u);
    pb_slices_free(&s);
    return bytes;
}

static void every_weight_is_in_one_slice(void **state)
{
    static const char *const names[] = {"tiny", "tiny-llama", "tiny-qwen3"};
    for (int k = 0; k < 3 * PB_NTUNINGS * 2; k++) {
        const pb_geometry *g;
        pb_model m;
        pb_buckets b;
        CHECK_OK(pb_geometry_find(names[k % 3], &g));
        pb_model_config c = pb_train_defaults(g).model;
        c.tuning = (pb_tuning)(k / 3 % PB_NTUNINGS);
        c.dtype = k / 3 / PB_NTUNINGS ? PB_BF16 : PB_F32;
        CHECK_OK(pb_model_open(*state, &c, &m));
        CHECK_OK(pb_buckets_make(&m, 5000, PB_ENDS_AFTER_EVERY_STAGE, &b));
        for (int ranks = 1; ranks <= 7; ranks += 3) {
            size_t all = 0, want = m.wide * pb_dtype_size(m.cfg.dtype);
            for (int r = 0; r < ranks; r++) all += check_rank(&m, &b, ranks, r);
            for (int i = 0; i < m.n; i++)
                if (!m.params[i].trained) want += pb_frozen_bytes(&m, &m.params[i]);
            assert_int_equal(all, want);
        }
        free(b.bucket);
        pb_model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_weight_is_in_one_slice)};
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
