/* gpu.c - implements the part of gpu.h that needs no CUPTI. */
#include "trace/gpu.h"

#include <stdlib.h>
#include <string.h>

#include "trace/nodes.h"

static int by_begin(const void *x, const void *y)
{
    const pb_gpu_event *a = x, *b = y;
    return a->begin_ns < b->begin_ns ? -1 : a->begin_ns > b->begin_ns;
}

void pb_gpu_place(pb_gpu_window *w)
{
    w->replayed = w->unplaced = 0;
    for (size_t i = 0; i < w->n; i++) {
        pb_gpu_event *e = &w->events[i];
        if (!e->node) continue;
        e->place = pb_nodes_find(e->node);
        w->replayed++;
        w->unplaced += !e->place;
    }
    if (w->n) qsort(w->events, w->n, sizeof *w->events, by_begin);
}

bool pb_gpu_lacks_work(const pb_gpu_window *w)
{
    bool launched = false;
    for (size_t i = 0; i < w->n; i++) {
        const pb_gpu_event *e = &w->events[i];
        if (e->kind == PB_GPU_KERNEL || e->kind == PB_GPU_COPY || e->kind == PB_GPU_SET || e->kind == PB_GPU_GRAPH)
            return false;
        launched = launched || (e->kind == PB_GPU_CALL && strstr(e->name, "Launch"));
    }
    return launched;
}

void pb_gpu_free(pb_gpu_window *w)
{
    pb_gpu_samples_free(&w->samples);
    free(w->events);
    *w = (pb_gpu_window){0};
}
