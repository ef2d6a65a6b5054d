/* suites.c - every suite of suites.def. It stands alone, so that a test program can bring its own table. */
#include "bench/suites/suite.h"

const pb_suite *const pb_suites[] = {
#define SUITE(name, what) &pb_suite_##name,
#include "bench/suites/suites.def"
#undef SUITE
    NULL,
};
