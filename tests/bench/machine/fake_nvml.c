/* fake_nvml.c - a libnvidia-ml.so.1 for tests: one GPU whose answers are set by environment variables.
 *
 * PB_FAKE_NVML_THROTTLE  throttle reasons after each start of the library, as hexadecimal masks ("0,8,0"); the last
 *                        mask holds for all later starts
 * PB_FAKE_NVML_SECOND    bits that are added only to the second reading after a start
 * PB_FAKE_NVML_STATE     a file that counts the starts
 * PB_FAKE_NVML_LACKS     names of functions that answer "not supported"
 * PB_FAKE_NVML_ROOT=no   the caller may not change settings
 * PB_FAKE_NVML_LOG       a file that gets one line per change of the clocks
 * PB_FAKE_NVML_DEAD      the library fails to start */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINE = 0, UNINITIALIZED = 1, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6 }; /* values of nvmlReturn_t */

typedef struct rates {
    unsigned gpu, memory;
} rates;
typedef struct process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process;

/* Defines a function of the library, with its prototype. */
#define NVML(name, ...)                                                                                                \
    int nvml##name(__VA_ARGS__);                                                                                       \
    int nvml##name(__VA_ARGS__)

static unsigned long long mask; /* throttle reasons since the last start of the library */
static int asked;               /* readings of the mask since then */

static const char *setting(const char *name)
{
    const char *v = getenv(name);
    return v ? v : "";
}

static int lacks(const char *name) { return strstr(setting("PB_FAKE_NVML_LACKS"), name) ? NOT_SUPPORTED : FINE; }

static int give(const char *name, unsigned *out, unsigned v)
{
    const int s = lacks(name);
    if (s == FINE) *out = v;
    return s;
}

static int note(const char *what, unsigned a, unsigned b)
{
    if (strcmp(setting("PB_FAKE_NVML_ROOT"), "no") == 0) return NO_PERMISSION;
    FILE *f = fopen(setting("PB_FAKE_NVML_LOG"), "a");
    if (!f) return UNINITIALIZED;
    fprintf(f, "%s %x %x\n", what, a, b);
    fclose(f);
    return FINE;
}

/* Appends to the state file and returns the number of earlier starts. */
static int starts(void)
{
    FILE *f = fopen(setting("PB_FAKE_NVML_STATE"), "a");
    if (!f) return 0;
    const int n = (int)ftell(f);
    fputc('.', f);
    fclose(f);
    return n;
}

NVML(Init_v2, void)
{
    const char *word = setting("PB_FAKE_NVML_THROTTLE");
    if (*setting("PB_FAKE_NVML_DEAD")) return UNINITIALIZED;
    for (int skip = starts(); skip > 0 && strchr(word, ','); skip--) word = strchr(word, ',') + 1;
    mask = strtoull(word, NULL, 16);
    asked = 0;
    return FINE;
}
NVML(Shutdown, void) { return FINE; }
NVML(DeviceGetHandleByIndex_v2, unsigned index, void **device)
{
    *device = &mask;
    return index ? NOT_FOUND : FINE;
}
NVML(DeviceGetHandleByPciBusId_v2, const char *bus, void **device)
{
    *device = &mask;
    return *bus ? FINE : NOT_FOUND;
}
NVML(SystemGetDriverVersion, char *out, unsigned room) { return snprintf(out, room, "999.1") > 0 ? FINE : NOT_FOUND; }
NVML(DeviceGetName, void *device, char *out, unsigned room)
{
    return device && snprintf(out, room, "NVIDIA Paper") > 0 ? FINE : NOT_FOUND;
}
NVML(DeviceGetUUID, void *device, char *out, unsigned room)
{
    return device && snprintf(out, room, "GPU-0-1-2") > 0 ? FINE : NOT_FOUND;
}
NVML(DeviceGetClockInfo, void *device, int domain, unsigned *mhz)
{
    return give(device ? "DeviceGetClockInfo" : "", mhz, domain == 2 ? 2600 : 1700);
}
NVML(DeviceGetMaxClockInfo, void *device, int domain, unsigned *mhz)
{
    return give(device ? "DeviceGetMaxClockInfo" : "", mhz, domain == 2 ? 2600 : 1980);
}
NVML(DeviceGetCurrentClocksThrottleReasons, void *device, unsigned long long *bits)
{
    const int s = lacks("DeviceGetCurrentClocksThrottleReasons");
    if (s == FINE && device) *bits = ++asked == 2 ? mask | strtoull(setting("PB_FAKE_NVML_SECOND"), NULL, 16) : mask;
    return s;
}
NVML(DeviceGetPowerUsage, void *device, unsigned *mw) { return give(device ? "DeviceGetPowerUsage" : "", mw, 350000); }
NVML(DeviceGetEnforcedPowerLimit, void *device, unsigned *mw)
{
    return give(device ? "DeviceGetEnforcedPowerLimit" : "", mw, 500000);
}
NVML(DeviceGetPowerManagementDefaultLimit, void *device, unsigned *mw)
{
    return give(device ? "DeviceGetPowerManagementDefaultLimit" : "", mw, 700000);
}
NVML(DeviceGetTemperature, void *device, int sensor, unsigned *celsius)
{
    return give(device && sensor == 0 ? "DeviceGetTemperature" : "", celsius, 61);
}
NVML(DeviceGetTemperatureThreshold, void *device, int threshold, unsigned *celsius)
{
    return give(device && threshold == 1 ? "DeviceGetTemperatureThreshold" : "", celsius, 87);
}
NVML(DeviceGetPersistenceMode, void *device, int *mode)
{
    *mode = device != NULL;
    return lacks("DeviceGetPersistenceMode");
}
NVML(DeviceGetEccMode, void *device, int *mode, int *pending)
{
    *mode = *pending = device != NULL;
    return lacks("DeviceGetEccMode");
}
NVML(DeviceGetUtilizationRates, void *device, rates *out)
{
    *out = (rates){0, 0};
    return device ? lacks("DeviceGetUtilizationRates") : NOT_FOUND;
}
NVML(DeviceGetComputeRunningProcesses_v3, void *device, unsigned *n, process *out)
{
    *n = device ? 1 : 0;
    out[0] = (process){.pid = 1};
    return lacks("DeviceGetComputeRunningProcesses_v3");
}
NVML(DeviceSetGpuLockedClocks, void *device, unsigned least, unsigned most)
{
    return device && lacks("DeviceSetGpuLockedClocks") == FINE ? note("lock", least, most) : NOT_SUPPORTED;
}
NVML(DeviceResetGpuLockedClocks, void *device)
{
    return device && lacks("DeviceResetGpuLockedClocks") == FINE ? note("reset", 0, 0) : NOT_SUPPORTED;
}
