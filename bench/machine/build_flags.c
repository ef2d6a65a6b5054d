/* build_flags.c - the compiler's flags, which CMake puts into PB_FLAGS. */
#include "bench/machine/build.h"

const char *pb_build_flags(void) { return PB_FLAGS; }
