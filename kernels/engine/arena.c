/* arena.c - allocates pieces of one block of device memory one after the other (bump allocation). */
#include "kernels/engine/arena.h"

void pb_arena_begin(pb_arena *a, pb_ctx *ctx) { pb_arena_begin_in(a, ctx, NULL); }
void pb_arena_begin_in(pb_arena *a, pb_ctx *ctx, const pb_memory_source *source)
{
    *a = (pb_arena){.ctx = ctx, .source = source};
}

pb_status pb_arena_commit(pb_arena *a)
{
    void *base = NULL;
    if (a->used) {
        PB_TRY(pb_alloc_from(a->ctx, a->source, a->used, &base));
        pb_status s = pb_zero(a->ctx, base, a->used);
        if (s != PB_OK) {
            pb_release(a->ctx, base);
            return s;
        }
    }
    a->base = base;
    a->size = a->used;
    a->used = 0;
    return PB_OK;
}

static void *carve(pb_arena *a, size_t bytes, size_t align)
{
    size_t at = (a->used + align - 1) / align * align;
    if (!bytes) return NULL;
    a->used = at + bytes;
    return a->base && a->used <= a->size ? a->base + at : NULL;
}

void *pb_carve(pb_arena *a, size_t bytes) { return carve(a, bytes, PB_ARENA_ALIGN); }
void *pb_carve_packed(pb_arena *a, size_t bytes) { return carve(a, bytes, 1); }

pb_overlay pb_overlay_begin(const pb_arena *a) { return (pb_overlay){a->used, a->used}; }

void pb_overlay_next(pb_arena *a, pb_overlay *o)
{
    if (a->used > o->end) o->end = a->used;
    a->used = o->from;
}

void pb_overlay_end(pb_arena *a, pb_overlay *o)
{
    pb_overlay_next(a, o);
    a->used = o->end;
}

void pb_arena_free(pb_arena *a)
{
    pb_release(a->ctx, a->base);
    *a = (pb_arena){.ctx = a->ctx};
}
