/* fake_samples.c - PM sampling of the fake libcupti (fake_cupti.c): while sampling is on, there is a sample in each
 * interval; event k of sample i of an image has the value i + 100 k. A call in a wrong order fails. PB_FAKE_CUPTI
 * refuses or spoils:
 *     held      another tool holds the counters
 *     denied    only administrators may sample
 *     overflow  the GPU's buffer is full at the third decoding
 *     gap       every fourth sample is missing
 *     clock     samples have the times of another clock, an hour earlier
 *     silent    no sample is complete
 *     broken    decoding fails */
#include <cupti_profiler_host.h> /* order: it declares what the next header uses */

#include <cupti_pmsampling.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/trace/fake_samples.h"

enum { CAPACITY = 1024, GAP = 4, THIRD = 3 };
static const int64_t hour_ns = 3600000000000;

static enum { OFF, ENABLED, CONFIGURED, SIZED, EMPTY, STARTED } state;
static bool keeps_oldest; /* otherwise an overflow is not reported */
static bool empty;        /* the image was initialised after the last decoding */
static int64_t interval, next, stopped;
static int decodings;
static size_t n;
static struct {
    int64_t begin, end;
} sample[CAPACITY];

static bool is(const char *kind)
{
    const char *wanted = getenv("PB_FAKE_CUPTI");
    return wanted && strcmp(wanted, kind) == 0;
}

static int64_t now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static CUptiResult go(int from, int to)
{
    if ((int)state != from) return CUPTI_ERROR_INVALID_OPERATION;
    state = to;
    return CUPTI_SUCCESS;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
CUptiResult cuptiPmSamplingGetCounterAvailability(CUpti_PmSampling_GetCounterAvailability_Params *p)
{
    p->counterAvailabilityImageSize = 8;
    return is("denied") ? CUPTI_ERROR_INSUFFICIENT_PRIVILEGES : CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params *p)
{
    p->pPmSamplingObject = (CUpti_PmSampling_Object *)&state;
    return is("held") ? CUPTI_ERROR_HARDWARE_BUSY : go(OFF, ENABLED);
}

CUptiResult cuptiPmSamplingDisable(CUpti_PmSampling_Disable_Params *p)
{
    state = OFF;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingSetConfig(CUpti_PmSampling_SetConfig_Params *p)
{
    interval = (int64_t)p->samplingInterval;
    keeps_oldest = p->hwBufferAppendMode == CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST;
    const bool right = p->pConfig && p->configSize && p->hardwareBufferSize &&
                       p->triggerMode == CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL;
    return right ? go(ENABLED, CONFIGURED) : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiPmSamplingGetCounterDataSize(CUpti_PmSampling_GetCounterDataSize_Params *p)
{
    p->counterDataSize = 32;
    return p->maxSamples == CAPACITY ? go(CONFIGURED, SIZED) : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiPmSamplingCounterDataImageInitialize(CUpti_PmSampling_CounterDataImage_Initialize_Params *p)
{
    n = 0;
    empty = true;
    if (state == SIZED) state = EMPTY;
    return state >= EMPTY ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult cuptiPmSamplingStart(CUpti_PmSampling_Start_Params *p)
{
    next = now();
    stopped = 0;
    decodings = 0;
    return go(EMPTY, STARTED);
}

CUptiResult cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params *p)
{
    stopped = now();
    return go(STARTED, EMPTY);
}

CUptiResult cuptiPmSamplingDecodeData(CUpti_PmSampling_DecodeData_Params *p)
{
    const int64_t until = stopped ? stopped : now();
    if (state < EMPTY || !empty) return CUPTI_ERROR_INVALID_OPERATION;
    if (is("broken")) return CUPTI_ERROR_UNKNOWN;
    empty = false;
    p->overflow = is("overflow") && keeps_oldest && ++decodings >= THIRD;
    if (p->overflow) return CUPTI_ERROR_OUT_OF_MEMORY;
    for (int64_t i = 0; next + interval <= until && n < CAPACITY; next += interval, i++) {
        if (is("gap") && (next / interval) % GAP == 0) continue;
        sample[n].begin = next - (is("clock") ? hour_ns : 0);
        sample[n++].end = next + interval - (is("clock") ? hour_ns : 0);
    }
    p->decodeStopReason = n == CAPACITY ? CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL
                                        : CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingGetCounterDataInfo(CUpti_PmSampling_GetCounterDataInfo_Params *p)
{
    p->numTotalSamples = CAPACITY;
    p->numPopulatedSamples = n;
    p->numCompletedSamples = is("silent") ? 0 : n;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(CUpti_PmSampling_CounterData_GetSampleInfo_Params *p)
{
    if (p->sampleIndex >= n) return CUPTI_ERROR_INVALID_PARAMETER;
    p->startTimestamp = (uint64_t)sample[p->sampleIndex].begin;
    p->endTimestamp = (uint64_t)sample[p->sampleIndex].end;
    return CUPTI_SUCCESS;
}

bool pb_fake_sample(size_t index, size_t event, double *value)
{
    if (state < EMPTY) return false;
    *value = (double)index + 100 * (double)event;
    return true;
}
