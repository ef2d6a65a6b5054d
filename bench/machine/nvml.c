/* nvml.c - opens the driver's library with dlopen(), and calls its functions (nvml.def) for the values of
 * gpu_readings.def. */
#include "bench/machine/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_SUPPORTED = 3, NO_PERMISSION = 4, INSUFFICIENT_SIZE = 7, MOST_PROCESSES = 256 };
/* A special value that the driver accepts in place of MHz: lock to the base clock. */
static const unsigned base_clock = 0xffffff01u;

/* These two structs have the layout of nvmlUtilization_t and nvmlProcessInfo_v2_t. */
typedef struct pb_nvml_rates {
    unsigned gpu, memory; /* percent */
} pb_nvml_rates;
typedef struct pb_nvml_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} pb_nvml_process;

struct pb_nvml {
    void *library, *device;
#define NVML(name, ...) int (*name)(__VA_ARGS__);
#include "bench/machine/nvml.def"
#undef NVML
};

/* ---- opening the driver's library ------------------------------------------------------------------------------- */

static void load(pb_nvml *n)
{
    const struct {
        const char *name;
        size_t place;
    } functions[] = {
#define NVML(name, ...) {"nvml" #name, offsetof(pb_nvml, name)},
#include "bench/machine/nvml.def"
#undef NVML
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *f = dlsym(n->library, functions[i].name);
        memcpy((char *)n + functions[i].place, &f, sizeof f); /* ISO C has no cast from data to function pointers */
    }
}

static pb_status find_device(pb_nvml *n, const char *bus)
{
    if (!n->Init_v2 || !n->Shutdown || !n->DeviceGetHandleByIndex_v2 || !n->DeviceGetHandleByPciBusId_v2)
        return pb_fail(PB_EUNSUPPORTED, "libnvidia-ml.so.1 lacks a required function; the driver may be too old");
    const int began = n->Init_v2();
    if (began != 0) return pb_fail(PB_EDEVICE, "NVML does not start (error %d): is the driver loaded?", began);
    const int found =
        *bus ? n->DeviceGetHandleByPciBusId_v2(bus, &n->device) : n->DeviceGetHandleByIndex_v2(0, &n->device);
    if (found == 0) return PB_OK;
    n->Shutdown();
    return pb_fail(PB_EDEVICE, "NVML finds no device %s (error %d)", *bus ? bus : "0", found);
}

bool pb_nvml_concerns(pb_backend_id device) { return device == PB_CUDA; }

pb_status pb_nvml_open(pb_backend_id device, pb_nvml **out)
{
    pb_device_facts facts = {0};
    pb_nvml *n = calloc(1, sizeof *n);
    if (pb_backend_facts(device, 0, &facts) != PB_OK) *facts.bus = 0;
    if (!n) return pb_fail(PB_ENOMEM, "no memory for NVML");
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!n->library) {
        free(n);
        return pb_fail(PB_EUNSUPPORTED, "NVML is not available: the NVIDIA driver's libnvidia-ml.so.1 was not found");
    }
    load(n);
    const pb_status s = find_device(n, facts.bus);
    if (s == PB_OK) {
        *out = n;
        return PB_OK;
    }
    dlclose(n->library);
    free(n);
    return s;
}

void pb_nvml_close(pb_nvml *n)
{
    if (!n) return;
    n->Shutdown();
    dlclose(n->library);
    free(n);
}

/* ---- reading the state of the GPU ------------------------------------------------------------------------------- */

/* The number of other processes that use the device for computing. -1: not known. */
static int others_on(const pb_nvml *n)
{
    pb_nvml_process p[MOST_PROCESSES];
    unsigned found = MOST_PROCESSES;
    int others = 0;
    const int s = n->DeviceGetComputeRunningProcesses_v3 ? n->DeviceGetComputeRunningProcesses_v3(n->device, &found, p)
                                                         : NOT_SUPPORTED;
    if (s == INSUFFICIENT_SIZE) return MOST_PROCESSES;
    for (unsigned i = 0; s == 0 && i < found; i++) others += p[i].pid != (unsigned)getpid();
    return s == 0 ? others : -1;
}

/* Reads the values of gpu_readings.def: all, or only those that change while a process measures. */
static pb_gpu_state ask(const pb_nvml *n, bool all)
{
    pb_gpu_state s = {.processes = -1, .busy = (double)NAN};
#define READING(reading, changes, type, scale, function, ...)                                                          \
    {                                                                                                                  \
        type v = 0, w = 0;                                                                                             \
        (void)w;                                                                                                       \
        const bool said = (all || (changes)) && n->function && n->function(n->device, __VA_ARGS__) == 0;               \
        s.reading = said ? (scale) * (double)v : (double)NAN;                                                          \
    }
#include "bench/machine/gpu_readings.def"
#undef READING
    return s;
}

pb_gpu_state pb_nvml_sample(const pb_nvml *n) { return ask(n, false); }

pb_gpu_state pb_nvml_read(const pb_nvml *n)
{
    pb_gpu_state s = ask(n, true);
    pb_nvml_rates rates;
    s.processes = others_on(n);
    if (n->DeviceGetUtilizationRates && n->DeviceGetUtilizationRates(n->device, &rates) == 0) s.busy = 0.01 * rates.gpu;
    if (n->DeviceGetName) n->DeviceGetName(n->device, s.name, sizeof s.name);
    if (n->DeviceGetUUID) n->DeviceGetUUID(n->device, s.uuid, sizeof s.uuid);
    if (n->SystemGetDriverVersion) n->SystemGetDriverVersion(s.driver, sizeof s.driver);
    return s;
}

/* ---- checking and locking the clocks ---------------------------------------------------------------------------- */

/* Converts the clock's name to *mhz. For "max" it only sets *most, because the value depends on the device. */
static pb_status clock_of(const char *what, bool *most, unsigned *mhz)
{
    char *end;
    *most = strcmp(what, "max") == 0;
    *mhz = base_clock;
    if (*most || strcmp(what, "base") == 0) return PB_OK;
    const unsigned long v = strtoul(what, &end, 10);
    if (*what < '0' || *what > '9' || *end || v < 100 || v > 10000)
        return pb_fail(PB_EINVAL, "--lock-gpu-clocks %.40s: need base, max or 100 to 10000 MHz", what);
    *mhz = (unsigned)v;
    return PB_OK;
}

pb_status pb_nvml_check_clocks(const char *what)
{
    bool most;
    unsigned mhz;
    return clock_of(what, &most, &mhz);
}

static pb_status refused(const char *verb, int why)
{
    return pb_fail(PB_EDEVICE, "the GPU's clocks cannot be %s: %s (NVML error %d)", verb,
                   why == NO_PERMISSION   ? "only root may"
                   : why == NOT_SUPPORTED ? "this GPU or driver does not support it"
                                          : "the driver refuses",
                   why);
}

pb_status pb_nvml_lock_clocks(pb_nvml *n, const char *what)
{
    bool most;
    unsigned mhz;
    PB_TRY(clock_of(what, &most, &mhz));
    if (!n->DeviceSetGpuLockedClocks || !n->DeviceResetGpuLockedClocks) return refused("locked", NOT_SUPPORTED);
    if (most && (!n->DeviceGetMaxClockInfo || n->DeviceGetMaxClockInfo(n->device, 1, &mhz) != 0))
        return refused("locked", NOT_SUPPORTED);
    const int s = n->DeviceSetGpuLockedClocks(n->device, mhz, mhz);
    return s == 0 ? PB_OK : refused("locked", s);
}

pb_status pb_nvml_reset_clocks(pb_nvml *n)
{
    const int s = n->DeviceResetGpuLockedClocks ? n->DeviceResetGpuLockedClocks(n->device) : NOT_SUPPORTED;
    return s == 0 ? PB_OK : refused("reset (try nvidia-smi -rgc)", s);
}

/* ---- the state as text and as JSON ------------------------------------------------------------------------------ */

static const struct {
    unsigned bit;
    const char *name;
    bool spoils;
} reasons[] = {
#define X(id, bit, name, spoils) {bit, name, spoils},
    PB_THROTTLE_MAP(X)
#undef X
};
enum { REASONS = sizeof reasons / sizeof *reasons };

unsigned pb_throttle_spoils(double bits)
{
    unsigned spoiling = 0;
    for (int i = 0; i < REASONS; i++) spoiling |= reasons[i].spoils ? reasons[i].bit : 0;
    return bits >= 0 ? (unsigned)bits & spoiling : 0;
}

void pb_throttle_text(unsigned bits, char *out, size_t n)
{
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < REASONS; i++)
        if (bits & reasons[i].bit && used < n)
            used += (size_t)snprintf(out + used, n - used, "%s%s", used ? ", " : "", reasons[i].name);
}

json_t *pb_throttle_names(unsigned bits)
{
    json_t *a = json_array();
    for (int i = 0; i < REASONS; i++)
        if (bits & reasons[i].bit) json_array_append_new(a, json_string(reasons[i].name));
    return a;
}

json_t *pb_gpu_state_json(const pb_gpu_state *s)
{
    json_t *o = json_object();

#define READING(name, ...) json_object_set_new(o, #name, isfinite(s->name) ? json_real(s->name) : json_null());
#include "bench/machine/gpu_readings.def"
#undef READING
    json_object_set_new(o, "busy", isfinite(s->busy) ? json_real(s->busy) : json_null());
    json_object_set_new(o, "processes", s->processes >= 0 ? json_integer(s->processes) : json_null());
    json_object_set_new(o, "throttle",
                        isfinite(s->throttle_bits) ? pb_throttle_names((unsigned)s->throttle_bits) : json_null());
    return o;
}
