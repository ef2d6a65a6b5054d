/* fake_driver.c - a libcuda.so.1 for tests on machines without a GPU: the calling thread has a context of device 0. */
#include <stddef.h>

int cuCtxGetCurrent(void **context);
int cuCtxGetDevice(int *device);

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
