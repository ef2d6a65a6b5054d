/* attach_cupti.c - attaches CUPTI, which a fake library stands for (fake_cupti.c), and prints the status and
 * the message; attach_cupti_test.sh runs it. Without a refusal it records a window, which is empty. */
#include <stdio.h>
#include <string.h>

#include "trace/gpu.h"

static pb_status window(void)
{
    pb_gpu_window w;
    PB_TRY(pb_gpu_open(0, PB_GPU_GRAPHS_GRAPH));
    PB_TRY(pb_gpu_begin());
    PB_TRY(pb_gpu_end());
    PB_TRY(pb_gpu_read(&w));
    printf("%zu records\n", w.n);
    pb_gpu_free(&w);
    return PB_OK;
}

int main(void)
{
    const pb_status s = window();
    if (s != PB_OK) printf("%s: %s\n", s == PB_EUNSUPPORTED ? "unsupported" : "device", pb_error());
    return s == PB_OK ? 0 : 3;
}
