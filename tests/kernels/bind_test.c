/* bind_test.c - that the guards of large tensors notice a change of any input (kernels/engine/bind.h). */
#include "kernels/engine/bind.h"
#include "tests/test.h"

/* The checksum of an input is made of blocks of 1 MiB: a change in any of them is noticed, and so are two blocks that
 * change places. */
static void a_change_anywhere_in_an_input_is_noticed(void **state)
{
    enum { BLOCK = 1 << 18, N = 3 * BLOCK + 5 }; /* f32: three blocks and a part */
    static const int places[] = {0, BLOCK - 1, BLOCK, 2 * BLOCK + 7, N - 1};
    pb_binder b = {.ctx = *state, .dtype = PB_F32, .seed = 1};
    float *x = (float *)pb_in(&b, "x", PB_F32, N);
    CHECK_OK(b.status);
    CHECK_OK(pb_check_guards(&b));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const float was = x[places[i]];
        x[places[i]] += 1;
        CHECK_FAILS(pb_check_guards(&b), PB_EWRONG, "x: the op changed an input");
        x[places[i]] = was;
    }
    CHECK_OK(pb_check_guards(&b));
    for (int i = 0; i < BLOCK; i++) {
        const float was = x[i];
        x[i] = x[BLOCK + i], x[BLOCK + i] = was;
    }
    CHECK_FAILS(pb_check_guards(&b), PB_EWRONG, "x: the op changed an input");
    pb_unbind(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_change_anywhere_in_an_input_is_noticed)};
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
