/* ranges_none.c - used when the NVTX headers are not installed: no profiler is ever attached. */
#include "profiles/ranges.h"

bool pb_ranges_on;

void pb_ranges_start(void) {}
void pb_range_begin(const char *name) { (void)name; }
void pb_range_finish(void) {}
