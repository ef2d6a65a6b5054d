/* nvtx_tool.c - a minimal profiler: NVTX loads it through NVTX_INJECTION64_PATH, and it writes each start and end of
 * a range to the file that PB_RANGES_LOG names. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;

static nvtxDomainHandle_t NVTX_API create(const char *name)
{
    fprintf(out, "domain %s\n", name);
    return (nvtxDomainHandle_t)(void *)out;
}

static nvtxStringHandle_t NVTX_API intern(nvtxDomainHandle_t domain, const char *name)
{
    (void)domain;
    fprintf(out, "string %s\n", name);
    return (nvtxStringHandle_t)(const void *)name;
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a)
{
    (void)domain;
    return fprintf(out, "push %s\n", (const char *)(const void *)a->message.registered);
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
    (void)domain;
    return fprintf(out, "pop\n");
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const char *path = getenv("PB_RANGES_LOG");
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned n = 0;
    if (!path || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &n)) return 0;
    out = fopen(path, "w");
    if (!out || n <= NVTX_CBID_CORE2_DomainRegisterStringA) return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)intern;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
