/* nvtx_none.c - used when the NVTX headers are not installed: no tool is ever attached. */
#include "profiles/listen.h"

const bool pb_nvtx_built = false;
bool pb_nvtx_start(void) { return false; }
void pb_nvtx_begin(pb_range_kind kind, const char *name, int64_t value) { (void)kind, (void)name, (void)value; }
void pb_nvtx_finish(void) {}
