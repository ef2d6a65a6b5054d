/* listen.h - what ranges.c calls: the two listeners. Private to profiles. */
#ifndef PB_PROFILES_LISTEN_H
#define PB_PROFILES_LISTEN_H
#include <stdbool.h>

#include "profiles/ranges.h"

/* nvtx.c or nvtx_none.c. pb_nvtx_start: true if a tool is attached. */
extern const bool pb_nvtx_built;
bool pb_nvtx_start(void);
void pb_nvtx_begin(pb_range_kind kind, const char *name, int64_t value);
void pb_nvtx_finish(void);

/* ring.c */
void pb_ring_begin(pb_range_kind kind, const char *name, int64_t value);
void pb_ring_finish(void);
void pb_ring_work(int64_t flops, int64_t bytes);
void pb_ring_collective(const pb_range_collective *c);
#endif
