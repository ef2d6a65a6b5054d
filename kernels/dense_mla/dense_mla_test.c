/* dense_mla_test.c - x. */
#include "tests/test.h"
int main(void) { return 1; }
