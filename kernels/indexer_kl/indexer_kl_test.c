/* indexer_kl_test.c - what comparison with the reference cannot show. */
#include "kernels/indexer_kl/indexer_kl.h"
#include "tests/test.h"
static void nothing(void **state) { (void)state; }
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing)};
    return cmocka_run_group_tests(tests, test_open_cpu, test_close);
}
