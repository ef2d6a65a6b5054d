/* fill_device.c - allocates all memory of GPU 0, prints "full", and holds the memory until standard input ends.
 * Helper process of tests/programs/gpu_memory_test.sh. */
#include <stdio.h>

#include "kernels/engine/ctx.h"

int main(void)
{
    pb_ctx ctx;
    void *p;
    if (pb_ctx_open(&ctx, PB_CUDA, 0) != PB_OK) {
        fprintf(stderr, "fill_device: %s\n", pb_error());
        return 125;
    }
    for (size_t piece = (size_t)1 << 38; piece >= (size_t)1 << 20; piece /= 2)
        while (pb_alloc(&ctx, piece, &p) == PB_OK) continue;
    printf("full: %.1f GB\n", 1e-9 * (double)ctx.held);
    fflush(stdout);
    while (getchar() != EOF) continue;
    pb_ctx_close(&ctx);
    return 0;
}
