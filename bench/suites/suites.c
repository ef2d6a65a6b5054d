/* suites.c - the table of all suites. It is alone in its file, so that a test program can link a table of its own. */
#include "bench/suites/suite.h"

const pb_suite *const pb_suites[] = {
#define SUITE(name) &pb_suite_##name,
#include "bench/suites/suites.def"
#undef SUITE
    NULL,
};
