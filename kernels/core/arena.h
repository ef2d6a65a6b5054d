/* arena.h - device memory by lifetime: reserve once, carve, release as a whole.
 *
 * Sizing and carving are the same code run twice: pb_arena_begin starts a measuring pass in which
 * pb_carve returns NULL and adds up; pb_arena_commit allocates the sum and starts the carving pass. */
#ifndef PB_ARENA_H
#define PB_ARENA_H
#include "kernels/core/ctx.h"
#ifdef __cplusplus
extern "C" {
#endif
enum { PB_ARENA_ALIGN = 256 };
typedef struct pb_arena {
    pb_ctx *ctx;
    unsigned char *base; /* NULL while measuring */
    size_t used, size;
} pb_arena;

void pb_arena_begin(pb_arena *a, pb_ctx *ctx);
pb_status pb_arena_commit(pb_arena *a);           /* zero-filled; ENOMEM names the bytes */
void *pb_carve(pb_arena *a, size_t bytes);        /* NULL while measuring, and for 0 bytes */
void *pb_carve_packed(pb_arena *a, size_t bytes); /* follows the last piece without padding */
void pb_arena_free(pb_arena *a);
#ifdef __cplusplus
}
#endif
#endif
