/* fingerprint.c - describes the machine from /proc, /sys, the compiler, the libraries and the GPU's driver. */
#define _GNU_SOURCE
#include "bench/machine/fingerprint.h"

#include <cblas.h>
#include <ctype.h>
#include <gnu/libc-version.h>
#include <math.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench/machine/build.h"
#include "bench/text/text.h"
#include "kernels/cpu/cpu.h"

/* ---- the processor -------------------------------------------------------------------------------- */

enum { MAX_CORES = 4096 };

typedef struct processor {
    char model[128];
    int sockets, cores;
} processor;

/* The value of a line "key : value" of /proc/cpuinfo. NULL: the line has another key. */
static const char *value_of(const char *line, const char *key)
{
    size_t n = strlen(key);
    if (strncmp(line, key, n) != 0 || !strchr("\t :", line[n])) return NULL;
    const char *colon = strchr(line, ':');
    return colon ? colon + 1 + strspn(colon + 1, " \t") : NULL;
}

/* The number of distinct values in v[0..n). */
static int distinct(const int *v, int n)
{
    int found = 0;
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int j = 0; j < i && !seen; j++) seen = v[j] == v[i];
        found += !seen;
    }
    return found;
}

/* Reads the model and counts all cores and sockets, including cores that this process may not use. */
static processor read_processor(void)
{
    int ids[MAX_CORES], sockets[MAX_CORES];
    processor p = {0};
    char line[1024];
    const char *v;
    int n = 0, socket = 0;
    struct utsname u;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!*p.model && ((v = value_of(line, "model name")) || (v = value_of(line, "CPU part"))))
            snprintf(p.model, sizeof p.model, "%s", v);
        if ((v = value_of(line, "physical id"))) socket = atoi(v);
        if ((v = value_of(line, "core id")) && n < MAX_CORES) {
            sockets[n] = socket;
            ids[n++] = socket << 16 | atoi(v);
        }
    }
    if (f) fclose(f);
    if (!*p.model) snprintf(p.model, sizeof p.model, "%s", uname(&u) == 0 ? u.machine : "unknown");
    p.sockets = n ? distinct(sockets, n) : 1;
    p.cores = n ? distinct(ids, n) : (int)sysconf(_SC_NPROCESSORS_CONF);
    return p;
}

/* The best instruction set for which kernels are compiled and that this processor has. */
static const char *isa(void)
{
    static const struct {
        const char *name;
        bool (*has)(void);
    } sets[] = {
#define X(name, can, ...) {#name, can},
        PB_ISA_MAP(X, )
#undef X
    };
    size_t i = 0;
    while (sets[i].has && !sets[i].has()) i++; /* the last set, omp, has no condition (NULL) */
    return sets[i].name;
}

/* Memory in GiB, rounded up to 1, 1.5, 2, 3, 4, 6, 8, 12, ...: rounded, because the kernel reserves a part of the
 * memory that differs between boots and versions. */
static double memory_class(void)
{
    struct sysinfo s;
    double gib = sysinfo(&s) == 0 ? (double)s.totalram * s.mem_unit / (double)(1 << 30) : 0, size = 1;
    while (size < gib) {
        if (size * 1.5 >= gib) return size * 1.5;
        size *= 2;
    }
    return size;
}

/* ---- the parts hard, soft and volatile --------------------------------------------------------------- */

static void put(json_t *o, const char *key, const char *text) { json_object_set_new(o, key, json_string(text)); }
static void put_int(json_t *o, const char *key, long v) { json_object_set_new(o, key, json_integer(v)); }
static void put_real(json_t *o, const char *key, double v) { json_object_set_new(o, key, json_real(v)); }

/* The hard part of the host. With a GPU it holds only the processor's model, on which the time of a kernel launch
 * depends. Cores and memory matter little then, and differ between virtual machines on one kind of host. */
static json_t *hard(pb_backend_id device)
{
    json_t *o = json_object();
    processor p = read_processor();
    put(o, "device", pb_backend_name(device));
    put(o, "cpu", p.model);
    if (device != PB_CPU) return o;
    put_int(o, "sockets", p.sockets);
    put_int(o, "cores", p.cores);
    put_real(o, "memory_gib", memory_class());
    put(o, "isa", isa());
    return o;
}

static void first_line(const char *path, char *out, size_t n)
{
    FILE *f = fopen(path, "r");
    if (!f || !fgets(out, (int)n, f)) snprintf(out, n, "unknown");
    out[strcspn(out, "\n")] = 0;
    if (f) fclose(f);
}

/* Writes a CUDA version: 13000 is "13.0". */
static void put_version(json_t *o, const char *key, int v)
{
    char text[32];
    snprintf(text, sizeof text, "%d.%d", v / 1000, v % 1000 / 10);
    put(o, key, text);
}

void pb_fingerprint_gpu(json_t *hard, json_t *soft, const pb_device_facts *f)
{
    put(hard, "gpu", f->name);
    put_int(hard, "multiprocessors", f->multiprocessors);
    put_int(hard, "capability", f->capability);
    put_int(hard, "gpu_memory_gib", (long)((f->memory + ((size_t)1 << 29)) >> 30));
    put_version(soft, "cuda_driver", f->driver);
    put_version(soft, "cuda_runtime", f->runtime);
    put_real(soft, "gpu_clock_hz", f->clock_hz);
    put_real(soft, "gpu_memory_clock_hz", f->memory_clock_hz);
    put_int(soft, "gpu_l2", (long)f->l2);
    if (f->blas) put_int(soft, "cublaslt", (long)f->blas);
    if (*f->compiler) put(soft, "nvcc", f->compiler);
}

static void put_known(json_t *o, const char *key, double v)
{
    if (!isnan(v)) put_real(o, key, v);
}

static void put_switch(json_t *o, const char *key, double v)
{
    if (!isnan(v)) json_object_set_new(o, key, json_boolean(v > 0));
}

void pb_fingerprint_gpu_state(json_t *fingerprint, const pb_gpu_state *g)
{
    json_t *hard = json_object_get(fingerprint, "hard"), *soft = json_object_get(fingerprint, "soft");
    json_t *changing = json_object_get(fingerprint, "volatile");
    if (g->mig > 0) put_switch(hard, "mig", g->mig); /* only if on, so that machine_ids without MIG do not change */
    put_known(soft, "gpu_power_limit_w", g->power_limit_w);
    put_known(soft, "gpu_application_clock_hz", g->application_clock_hz);
    put_switch(soft, "gpu_ecc", g->ecc);
    put_switch(soft, "gpu_persistence", g->persistence);
    if (*g->driver) put(soft, "driver_version", g->driver);
    if (*g->uuid) put(changing, "gpu_uuid", g->uuid);
    put_known(changing, "gpu_temperature_c", g->temperature_c);
    if (g->processes >= 0) put_int(changing, "gpu_processes", g->processes);
}

/* Finds a line key="value" or key=value in a file and copies the value. False: no such line. */
static bool assigned(const char *path, const char *key, char *out, size_t n)
{
    char line[512];
    bool found = false;
    const size_t len = strlen(key);
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, len) != 0 || line[len] != '=') continue;
        const char *value = line + len + 1 + (line[len + 1] == '"');
        snprintf(out, n, "%.*s", (int)strcspn(value, "\"\n"), value);
        found = true;
    }
    if (f) fclose(f);
    return found;
}

static void put_os(json_t *o)
{
    char name[160];
    if (assigned("/etc/os-release", "PRETTY_NAME", name, sizeof name)) put(o, "os", name);
}

/* Records the kind of container; with podman also its image, which docker does not tell. */
static void put_container(json_t *o)
{
    char image[256];
    const char *kind = access("/run/.containerenv", F_OK) == 0 ? "podman" : "docker";
    if (access("/run/.containerenv", F_OK) != 0 && access("/.dockerenv", F_OK) != 0) return;
    put(o, "container", kind);
    if (assigned("/run/.containerenv", "image", image, sizeof image)) put(o, "container_image", image);
}

static json_t *soft(long threads)
{
    json_t *o = json_object();
    struct utsname u;
    cpu_set_t usable;
    char governor[64];
    if (uname(&u) == 0) put(o, "kernel", u.release);
    put(o, "compiler", PB_COMPILER);
    put(o, "flags", pb_build_flags());
    put(o, "openblas", openblas_get_config());
    put_int(o, "threads", threads > 0 ? threads : omp_get_max_threads());
    if (sched_getaffinity(0, sizeof usable, &usable) == 0) put_int(o, "usable_cpus", CPU_COUNT(&usable));
    first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor, sizeof governor);
    put(o, "governor", governor);
    put(o, "libc", gnu_get_libc_version());
    put_os(o);
    put_container(o);
    return o;
}

/* Records the CPUs that this process may use, in the kernel's form "0-3,8". */
static void put_affinity(json_t *o)
{
    char line[4096];
    const char *list;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if ((list = value_of(line, "Cpus_allowed_list"))) put(o, "affinity", list);
    }
    if (f) fclose(f);
}

static json_t *changing(void)
{
    json_t *o = json_object();
    char aslr[16];
    struct sysinfo s;
    char host[256] = "unknown";
    double load[1];
    gethostname(host, sizeof host - 1);
    put(o, "hostname", host);
    if (getloadavg(load, 1) == 1) put_real(o, "load", load[0]);
    if (sysinfo(&s) == 0) put_int(o, "uptime_s", s.uptime);
    put_affinity(o);
    first_line("/proc/sys/kernel/randomize_va_space", aslr, sizeof aslr);
    put(o, "aslr", aslr);
    return o;
}

static json_t *environment(void)
{
    static const char *const recorded[] = {
#define VARIABLE(name) #name,
#include "bench/machine/environment.def"
#undef VARIABLE
    };
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        const char *value = getenv(recorded[i]);
        if (value) json_object_set_new(o, recorded[i], pb_json_word(value));
    }
    return o;
}

/* ---- the machine id ---------------------------------------------------------------------------------- */

/* Hashes the hard part of the fingerprint, written as JSON with sorted keys. */
static unsigned digest(const json_t *part)
{
    char *text = json_dumps(part, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(6));
    const unsigned h = pb_text_hash(text ? text : "");
    free(text);
    return h;
}

/* Makes a name such as "amd-epyc-9554" from a model's text: at most `words` words of letters and digits, in lower case,
 * without words such as "(R)" and "Processor". */
static void slug(const char *text, int words, char *out, size_t n)
{
    static const char *const ornaments[] = {"r", "tm", "cpu", "processor"};
    char word[32];
    size_t len = 0;
    *out = 0;
    while (*text && words) {
        size_t w = 0;
        while (*text && !isalnum((unsigned char)*text)) text++;
        for (; isalnum((unsigned char)*text); text++)
            if (w < sizeof word - 1) word[w++] = (char)tolower((unsigned char)*text);
        word[w] = 0;
        bool skip = !w;
        for (size_t i = 0; i < sizeof ornaments / sizeof *ornaments; i++) skip |= strcmp(word, ornaments[i]) == 0;
        if (skip || len + w + 2 > n) continue;
        len += (size_t)snprintf(out + len, n - len, "%s%s", len ? "-" : "", word);
        words--;
    }
}

void pb_machine_id(const json_t *fingerprint, char out[PB_MACHINE_TEXT])
{
    const json_t *h = json_object_get(fingerprint, "hard");
    const char *cpu = json_string_value(json_object_get(h, "cpu")), *gpu = json_string_value(json_object_get(h, "gpu"));
    const char *name = gpu ? gpu : cpu ? cpu : "unknown";
    char model[48];
    slug(name, 4, model, sizeof model);
    snprintf(out, PB_MACHINE_TEXT, "%s-%s-%d%s-%08x", json_string_value(json_object_get(h, "device")), model,
             (int)json_integer_value(json_object_get(h, gpu ? "multiprocessors" : "cores")), gpu ? "sm" : "c",
             digest(h));
}

json_t *pb_fingerprint(pb_backend_id device, long threads)
{
    char id[PB_MACHINE_TEXT];
    char driver[160];
    pb_device_facts facts;
    pb_nvml *nvml;
    json_t *o = json_pack("{s:o,s:o,s:o,s:o}", "hard", hard(device), "soft", soft(threads), "volatile", changing(),
                          "environment", environment());
    if (!o) {
        pb_fail(PB_ENOMEM, "no memory for the machine's fingerprint");
        return NULL;
    }
    if (pb_backend_facts(device, 0, &facts) == PB_OK)
        pb_fingerprint_gpu(json_object_get(o, "hard"), json_object_get(o, "soft"), &facts);
    if (pb_nvml_concerns(device) && pb_nvml_open(device, &nvml) == PB_OK) {
        const pb_gpu_state state = pb_nvml_read(nvml);
        pb_fingerprint_gpu_state(o, &state);
        pb_nvml_close(nvml);
    }
    first_line("/proc/driver/nvidia/version", driver, sizeof driver);
    if (device != PB_CPU) put(json_object_get(o, "soft"), "driver", driver);
    pb_machine_id(o, id);
    put(o, "machine_id", id);
    return o;
}
