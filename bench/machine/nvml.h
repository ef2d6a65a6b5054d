/* nvml.h - what the NVIDIA driver says of a GPU, and locking its clocks. libnvidia-ml.so.1 comes with the driver: it is
 * opened when asked for and never linked, so that every program starts on a machine without one. */
#ifndef PB_NVML_H
#define PB_NVML_H
#include <jansson.h>

#include "kernels/core/op.h"

/* Figures in SI units; NaN: the driver does not say. */
typedef struct pb_gpu_state {
#define READING(name, ...) double name;
#include "bench/machine/gpu_readings.def"
#undef READING
    double busy;                         /* 0 to 1, of the driver's last sampling period */
    int processes;                       /* other than this one, with a context on the device; -1: not known */
    char name[96], uuid[96], driver[96]; /* "": not known */
} pb_gpu_state;

/* Why a clock is lower than asked for, as bits of throttle_bits: X(enumerator, bit, name, it spoils a launch) */
#define PB_THROTTLE_MAP(X)                                                                                             \
    X(IDLE, 0x1, "idle", false)                                                                                        \
    X(APPLICATION_CLOCKS, 0x2, "application_clocks", false)                                                            \
    X(POWER_CAP, 0x4, "power_cap", false)                                                                              \
    X(HW_SLOWDOWN, 0x8, "hw_slowdown", true)                                                                           \
    X(SYNC_BOOST, 0x10, "sync_boost", false)                                                                           \
    X(SW_THERMAL, 0x20, "sw_thermal", true)                                                                            \
    X(HW_THERMAL, 0x40, "hw_thermal", true)                                                                            \
    X(HW_POWER_BRAKE, 0x80, "hw_power_brake", true)                                                                    \
    X(DISPLAY_CLOCKS, 0x100, "display_clocks", false)
#define X(id, bit, name, spoils) PB_THROTTLE_##id = (bit),
enum { PB_THROTTLE_MAP(X) };
#undef X

typedef struct pb_nvml pb_nvml;

/* Whether NVML has to do with what this backend measures. */
bool pb_nvml_concerns(pb_backend_id device);
/* The GPU on which launches run; in a program without CUDA, which cannot ask for it, the driver's first. EUNSUPPORTED:
 * there is no such library, or one that lacks what cannot be done without; EDEVICE: it finds no such device. */
pb_status pb_nvml_open(pb_backend_id device, pb_nvml **out);
void pb_nvml_close(pb_nvml *n); /* NULL is fine */
pb_gpu_state pb_nvml_read(const pb_nvml *n);
/* Only what changes in a launch, for a sampling thread: the rest is not known. */
pb_gpu_state pb_nvml_sample(const pb_nvml *n);

/* "base" (what the power limit always allows), "max" or a number of MHz. EINVAL: neither. EDEVICE with one line: the
 * driver refuses, as it does to everyone but root. */
pb_status pb_nvml_check_clocks(const char *what);
pb_status pb_nvml_lock_clocks(pb_nvml *n, const char *what);
pb_status pb_nvml_reset_clocks(pb_nvml *n);

/* Of throttle_bits; 0 where they are not known. */
unsigned pb_throttle_spoils(double bits);
/* Their names, a comma between; "" for none. */
void pb_throttle_text(unsigned bits, char *out, size_t n);
json_t *pb_throttle_names(unsigned bits);
/* The readings, null for what is not known. The caller frees it; NULL: no memory. */
json_t *pb_gpu_state_json(const pb_gpu_state *s);
#endif
