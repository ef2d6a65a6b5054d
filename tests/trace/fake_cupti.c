/* fake_cupti.c - a libcupti.so.13 for tests on machines without a GPU: it refuses what the variable PB_FAKE_CUPTI says.
 *     held      another profiler is attached
 *     denied    the driver does not permit profiling
 *     broken    a call fails for another reason
 *     (unset)   everything succeeds, and nothing is recorded */
#include <cupti.h>
#include <stdlib.h>
#include <string.h>

static CUptiResult unless(const char *kind, CUptiResult refusal)
{
    const char *wanted = getenv("PB_FAKE_CUPTI");
    return wanted && strcmp(wanted, kind) == 0 ? refusal : CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *s, CUpti_CallbackFunc f, void *user)
{
    (void)f, (void)user;
    *s = NULL;
    return unless("held", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    (void)kind;
    const CUptiResult r = unless("denied", CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    return r != CUPTI_SUCCESS ? r : unless("broken", CUPTI_ERROR_UNKNOWN);
}

CUptiResult cuptiGetResultString(CUptiResult r, const char **text)
{
    *text = r == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t n, CUpti_Activity **record)
{
    (void)buffer, (void)n, (void)record;
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *n)
{
    (void)context, (void)stream;
    *n = 0;
    return CUPTI_SUCCESS;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
CUptiResult cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle s, CUpti_CallbackDomain d, CUpti_CallbackId id)
{
    return CUPTI_SUCCESS;
}
CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) { return CUPTI_ERROR_INVALID_PARAMETER; }
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain d, uint32_t id, const char **name) { return CUPTI_SUCCESS; }
CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute a, size_t *n, void *value) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc want,
                                           CUpti_BuffersCallbackCompleteFunc take)
{
    return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t on) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t on) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityFlushAll(uint32_t flag) { return CUPTI_SUCCESS; }
