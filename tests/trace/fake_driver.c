/* fake_driver.c - a libcuda.so.1 for tests on machines without a GPU: the calling thread has a context of device 0. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int cuCtxGetCurrent(void **context);
int cuCtxGetDevice(int *device);
int cuCtxSynchronize(void);

int cuCtxGetCurrent(void **context)
{
    static int it;
    *context = &it;
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

/* CUDA_ERROR_ILLEGAL_ADDRESS if PB_FAKE_CUPTI is `fault`. */
int cuCtxSynchronize(void)
{
    const char *wanted = getenv("PB_FAKE_CUPTI");
    return wanted && strcmp(wanted, "fault") == 0 ? 700 : 0;
}
