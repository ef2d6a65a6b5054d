/* arena.h - allocates all pieces of device memory that have the same lifetime as one block, which is freed as a whole.
 *
 * Run the same pb_carve calls twice. The first pass, after pb_arena_begin, measures: pb_carve returns NULL and adds up
 * the sizes. pb_arena_commit allocates the sum. The second pass returns the addresses. */
#ifndef PB_ARENA_H
#define PB_ARENA_H
#include "kernels/engine/ctx.h"
#ifdef __cplusplus
extern "C" {
#endif
enum { PB_ARENA_ALIGN = 256 };
typedef struct pb_arena {
    pb_ctx *ctx;
    unsigned char *base; /* NULL in the measuring pass */
    size_t used, size;
    const pb_memory_source *source; /* where the block comes from; NULL: the backend */
} pb_arena;

void pb_arena_begin(pb_arena *a, pb_ctx *ctx);
/* The same for a block from another source, which must outlive the arena; NULL: as pb_arena_begin. */
void pb_arena_begin_in(pb_arena *a, pb_ctx *ctx, const pb_memory_source *source);
pb_status pb_arena_commit(pb_arena *a);           /* fills the block with zeros; ENOMEM: the message gives its size */
void *pb_carve(pb_arena *a, size_t bytes);        /* aligned to PB_ARENA_ALIGN; NULL: first pass, or 0 bytes */
void *pb_carve_packed(pb_arena *a, size_t bytes); /* like pb_carve, but directly after the previous piece, unaligned */
void pb_arena_free(pb_arena *a);

/* Pieces that are never in use at the same time share memory. Carve the first alternative after begin, each other one
 * after next, and what is separate again after end:
 *     pb_overlay o = pb_overlay_begin(a); x = pb_carve(a, n);
 *     pb_overlay_next(a, &o);             y = pb_carve(a, m);     x and y begin at the same address
 *     pb_overlay_end(a, &o); */
typedef struct pb_overlay {
    size_t from, end; /* bytes of the arena: where each alternative begins, and where the longest ends */
} pb_overlay;
pb_overlay pb_overlay_begin(const pb_arena *a);
void pb_overlay_next(pb_arena *a, pb_overlay *o);
void pb_overlay_end(pb_arena *a, pb_overlay *o);
#ifdef __cplusplus
}
#endif
#endif
