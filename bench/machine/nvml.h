/* nvml.h - reads the state of a GPU from the NVIDIA driver, and locks its clocks. The driver's library,
 * libnvidia-ml.so.1, is opened at run time and not linked, so that the programs also start on machines without it. */
#ifndef PB_NVML_H
#define PB_NVML_H
#include <jansson.h>

#include "kernels/engine/op.h"

/* Numbers are in SI units; NaN: the driver does not report the value. */
typedef struct pb_gpu_state {
#define READING(name, ...) double name;
#include "bench/machine/gpu_readings.def"
#undef READING
    double busy;                         /* utilisation in the driver's last sampling period, 0 to 1 */
    int processes;                       /* other processes that use the device for computing; -1: not known */
    char name[96], uuid[96], driver[96]; /* "": not known */
} pb_gpu_state;

/* Reasons why clocks are lower than requested, the bits of throttle_bits: X(reason, bit, name, spoils). spoils true:
 * the reason makes the values of a process unusable, and its rows are marked throttled. */
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

/* True if NVML can read the device of this backend, that is, for CUDA. */
bool pb_nvml_concerns(pb_backend_id device);
/* Opens NVML for CUDA device 0, on which the measuring processes run. A program built without CUDA cannot know that
 * device, and takes the driver's first GPU. Close it with pb_nvml_close(). EUNSUPPORTED: the library is missing or
 * lacks a required function; EDEVICE: NVML does not start or does not find the device. */
pb_status pb_nvml_open(pb_backend_id device, pb_nvml **out);
void pb_nvml_close(pb_nvml *n); /* NULL is fine */
/* Reads all values. */
pb_gpu_state pb_nvml_read(const pb_nvml *n);
/* Reads only the values that change while a process measures; all others are not known. For a sampling thread. */
pb_gpu_state pb_nvml_sample(const pb_nvml *n);

/* Check, lock and reset the GPU's clocks. what: "base" (the clock that the power limit always allows), "max" or a
 * number of MHz; EINVAL: another text. EDEVICE: the driver refuses; only root may lock and reset clocks. */
pb_status pb_nvml_check_clocks(const char *what);
pb_status pb_nvml_lock_clocks(pb_nvml *n, const char *what);
pb_status pb_nvml_reset_clocks(pb_nvml *n);

/* The bits of throttle_bits whose reasons spoil a measurement (column `spoils` above). 0 if throttle_bits is NaN. */
unsigned pb_throttle_spoils(double bits);
/* The names of throttle reasons: as text, separated by commas ("" for no bits), and as a JSON array, which the caller
 * decrefs. */
void pb_throttle_text(unsigned bits, char *out, size_t n);
json_t *pb_throttle_names(unsigned bits);
/* The state as JSON, with null for values that are not known. The caller decrefs it. NULL: out of memory. */
json_t *pb_gpu_state_json(const pb_gpu_state *s);
#endif
