/* fake_cuda.c - a libcuda.so.1 for tests on machines without a GPU. PB_FAKE_CUDA=none: a driver without devices;
 * old: a driver of CUDA 11.4. It implements what the CUDA runtime calls before it gives up; all other functions are
 * unsupported. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NO_DEVICE = 100, NOT_FOUND = 500, NOT_SUPPORTED = 801 }; /* values of CUresult */

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuGetExportTable(const void **table, const void *uuid);
int cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status);

int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    const char *kind = getenv("PB_FAKE_CUDA");
    *version = kind && strcmp(kind, "old") == 0 ? 11040 : 99000;
    return SUCCESS;
}

int cuGetExportTable(const void **table, const void *uuid)
{
    (void)uuid;
    *table = NULL;
    return NOT_FOUND;
}

static int refuse(void) { return NOT_SUPPORTED; }

int cuGetProcAddress_v2(const char *name, void **f, int version, uint64_t flags, int *status)
{
    (void)version, (void)flags;
    if (status) *status = 0;
    if (strcmp(name, "cuInit") == 0) *f = (void *)(uintptr_t)cuInit;
    else if (strcmp(name, "cuDriverGetVersion") == 0) *f = (void *)(uintptr_t)cuDriverGetVersion;
    else if (strcmp(name, "cuGetExportTable") == 0) *f = (void *)(uintptr_t)cuGetExportTable;
    else if (strcmp(name, "cuGetProcAddress") == 0) *f = (void *)(uintptr_t)cuGetProcAddress_v2;
    else *f = (void *)(uintptr_t)refuse;
    return SUCCESS;
}
