/* machine_test.c - reading the host's state from prepared files, the checks of `bench doctor`, machine ids of stored
 * baselines, and retries of throttled processes. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/machine/disturbance.h"
#include "bench/machine/doctor.h"
#include "bench/machine/fingerprint.h"
#include "bench/run/throttle.h"
#include "tests/folder_test.h"

/* ---- reading the host's state from files ---------------------------------------------------------------- */

/* Writes a file in the test folder and creates its parent folders. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", test_folder, path);
    for (char *p = full + strlen(test_folder) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0777);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) fail_msg("%.9g, want %.9g", got, want);
}

#define CPU "/sys/devices/system/cpu/"

static void the_host_state_is_read_from_its_files(void **state)
{
    (void)state;
    const pb_host_state none = pb_host_read(in_folder("nowhere"));
    assert_true(isnan(none.load) && isnan(none.steal_total_s) && isnan(none.turbo) && isnan(none.quota_cpus));
    assert_true(isnan(none.throttle_total) && isnan(none.swap_used) && isnan(none.nodes) && !*none.governor);
    put("/proc/loadavg", "1.50 0.7 0.3 1/100 7\n");
    put("/proc/stat", "cpu  100 0 200 900 0 0 0 300 0 0\ncpu0 10 0 20 0 0 0 0 30 0 0\ncpu2 1 2 3 9 9 4 5 6 7 8\n"
                      "cpu3 9 9 9 9 9 9 9 9 9 9\nintr 9\n");
    put("/proc/meminfo", "MemTotal: 9 kB\nSwapTotal:    4096 kB\nSwapFree: 1024 kB\n");
    put("/proc/vmstat", "pswpin 3\npswpout 4\n");
    put("/proc/cpuinfo", "flags\t\t: fpu hypervisor avx\n");
    put("/proc/self/cgroup", "0::/box\n");
    put("/proc/self/status", "Cpus_allowed_list:\t0-2\nMems_allowed_list:\t0-1\n");
    put("/sys/fs/cgroup/box/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/box/cpu.stat", "usage_usec 9\nthrottled_usec 2500000\n");
    put("/sys/devices/system/node/online", "0-1\n");
    put(CPU "online", "0-1,3\n");
    put(CPU "cpu0/cpufreq/scaling_cur_freq", "2400000\n");
    put(CPU "cpu1/cpufreq/scaling_cur_freq", "3600000\n");
    put(CPU "cpu0/cpufreq/scaling_governor", "powersave\n");
    put(CPU "cpu0/thermal_throttle/core_throttle_count", "2\n");
    put(CPU "cpu1/thermal_throttle/package_throttle_count", "5\n");
    put(CPU "intel_pstate/no_turbo", "1\n");
    put(CPU "smt/active", "1\n");
    put("/proc/sys/kernel/randomize_va_space", "0\n");
    put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "kvm-clock\n");
    const pb_host_state s = pb_host_read(test_folder);
    const double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    near(s.load, 1.5), near(s.steal_total_s, 300 * tick), near(s.busy_total_s, 600 * tick);
    near(s.usable_steal_total_s, 36 * tick), near(s.usable_busy_total_s, 81 * tick); /* CPUs 0 to 2 */
    near(s.swap_used, 3072 * 1024), near(s.swap_moves_total, 7), near(s.quota_cpus, 1.5);
    near(s.quota_throttled_total_s, 2.5), near(s.nodes, 2), near(s.cpus, 3), near(s.usable_cpus, 3);
    near(s.cpu_hz_least, 2.4e9), near(s.cpu_hz_most, 3.6e9), near(s.throttle_total, 7);
    assert_true(s.turbo == 0 && s.smt == 1 && s.aslr == 0 && s.virtual == 1 && !s.bound);
    assert_string_equal(s.governor, "powersave");
    assert_string_equal(s.clocksource, "kvm-clock");
    put("/sys/fs/cgroup/box/cpu.max", "max 100000\n");
    put("/proc/self/numa_maps", "55d000 bind:0 file=/bin/x\n");
    const pb_host_state free_host = pb_host_read(test_folder);
    assert_true(isinf(free_host.quota_cpus) && free_host.bound);
    put(CPU "cpu0/cpufreq/scaling_cur_freq", ""); /* without cpufreq, /proc/cpuinfo has the clocks */
    put(CPU "cpu1/cpufreq/scaling_cur_freq", "");
    put("/proc/cpuinfo", "cpu MHz\t\t: 2500.500\ncache size\t: 1 KB\ncpu MHz\t\t: 2100.000\n");
    const pb_host_state virtual_host = pb_host_read(test_folder);
    near(virtual_host.cpu_hz_least, 2.1e9), near(virtual_host.cpu_hz_most, 2.5005e9);
}

/* ---- other work --------------------------------------------------------------------------------------------- */

/* The reason for a process of `seconds` that used `own` CPU seconds, while the machine used `busy` and lost `steal`. */
static const char *disturbed_by(double seconds, double own, double busy, double steal, double cpus, long threads)
{
    static char why[100];
    const pb_cpu_use before = {.seconds = 100,
                               .own_total_s = 50,
                               .host = {.usable_busy_total_s = 1000, .usable_steal_total_s = 10, .usable_cpus = cpus}};
    pb_cpu_use after = before;
    after.seconds += seconds, after.own_total_s += own;
    after.host.usable_busy_total_s += busy, after.host.usable_steal_total_s += steal;
    pb_disturbance(&before, &after, threads, why, sizeof why);
    return why;
}

static void other_work_counts_when_it_takes_cpu_time(void **state)
{
    const double none = (double)NAN;
    (void)state;
    assert_string_equal(disturbed_by(10, 16, 19.9, 0, 2, 2), "");
    assert_string_equal(disturbed_by(10, 16, 20.1, 0, 2, 2), "load (others used 0.4 of 2 CPUs)");
    assert_string_equal(disturbed_by(10, 15, 20.1, 0.15, 2, 2), "load (others used 0.5 of 2 CPUs)");
    assert_string_equal(disturbed_by(10, 10, 21, 0, 2, 1), ""); /* one CPU was free for the others */
    assert_string_equal(disturbed_by(10, 7, 20, 0, 2, 1), "load (others used 1.3 of 2 CPUs)");
    assert_string_equal(disturbed_by(10, 7, 20, 0, 2, 8), "load (others used 1.3 of 2 CPUs)");
    assert_string_equal(disturbed_by(10, 20, 20.5, 0.7, 2, 2), "steal (3.4 % of the CPU time)");
    assert_string_equal(disturbed_by(10, 20, 20.5, 0.6, 2, 2), "");
    assert_string_equal(disturbed_by(10, 10, 20, 2, 2, 2),
                        "load (others used 0.8 of 2 CPUs), steal (10.0 % of the CPU time)");
    assert_string_equal(disturbed_by(0.9, 0, 1.8, 1, 2, 2), ""); /* too short to tell */
    assert_string_equal(disturbed_by(10, 0, none, none, 2, 2), "");
    assert_string_equal(disturbed_by(10, 0, 20, 2, none, 2), "steal (10.0 % of the CPU time)");
    assert_true(pb_is_disturbance("load (others") && pb_is_disturbance("steal (1"));
    assert_false(pb_is_disturbance("cpu_thermal, load (others") || pb_is_disturbance(""));
}

/* ---- checks of bench doctor --------------------------------------------------------------------------------- */

/* Readings of a machine without problems. */
static pb_patient healthy(void)
{
    const pb_host_state h = {.load = 0.01,
                             .cpus = 8,
                             .usable_cpus = 8,
                             .nodes = 1,
                             .busy_total_s = 1000,
                             .quota_cpus = (double)INFINITY,
                             .aslr = 2,
                             .perf_paranoid = 2,
                             .governor = "performance",
                             .clocksource = "tsc"};
    return (pb_patient){.before = h,
                        .host = h,
                        .seconds = 1,
                        .timer = {25e-9, 30e-9},
                        .want_gpu = true,
                        .has_gpu = true,
                        .gpu = {.sm_clock_hz = 1.7e9,
                                .sm_clock_most_hz = 1.98e9,
                                .throttle_bits = 1,
                                .power_limit_w = 700,
                                .power_limit_default_w = 700,
                                .temperature_c = 40,
                                .temperature_slowdown_c = 87,
                                .persistence = 1,
                                .ecc = 1}};
}

static void expect(const pb_patient *p, const char *name, pb_health want)
{
    for (const pb_check_info *c = pb_checks; c->name; c++) {
        const pb_finding f = c->look(p);
        if (strcmp(c->name, name) != 0) continue;
        if (f.health != want)
            fail_msg("%s is %s, want %s: %s", name, pb_health_names[f.health], pb_health_names[want], f.text);
        return;
    }
    fail_msg("there is no check %s", name);
}

static void a_healthy_machine_passes_every_check(void **state)
{
    const pb_patient p = healthy();
    (void)state;
    for (const pb_check_info *c = pb_checks; c->name; c++)
        expect(&p, c->name, strcmp(c->name, "gpu_clocks") == 0 ? PB_HEALTH_NOTE : PB_HEALTH_GOOD);
}

/* Changes one reading of a healthy machine; `check` must then report `health`. */
#define FINDS(field, value, check, health)                                                                             \
    do {                                                                                                               \
        pb_patient p_ = healthy();                                                                                     \
        p_.field = (value);                                                                                            \
        expect(&p_, #check, PB_HEALTH_##health);                                                                       \
    } while (0)

static void every_check_reports_a_bad_reading(void **state)
{
    (void)state;
    FINDS(host.load, 1, load, NOTE);
    FINDS(host.load, 5, load, BAD);
    FINDS(host.steal_total_s, 0.04, steal, NOTE);
    FINDS(host.steal_total_s, 0.8, steal, BAD);
    FINDS(host.quota_cpus, 4, quota, BAD);
    FINDS(host.quota_cpus, 8, quota, NOTE);
    FINDS(host.throttle_total, 1, throttle, BAD);
    FINDS(host.turbo, 1, turbo, NOTE);
    FINDS(host.smt, 1, smt, NOTE);
    FINDS(host.nodes, 2, numa, BAD);
    FINDS(host.aslr, 0, aslr, NOTE);
    FINDS(host.swap_used, 4096, swap, NOTE);
    FINDS(host.swap_moves_total, 1, swap, BAD);
    FINDS(host.virtual, 1, virtual, NOTE);
    FINDS(host.perf_paranoid, 4, perf_events, NOTE);
    FINDS(timer.cost, 1e-6, timer, NOTE);
    FINDS(timer.step, 1e-3, timer, BAD);
    FINDS(gpu.throttle_bits, 0x40, gpu_throttle, BAD);
    FINDS(gpu.throttle_bits, 4, gpu_throttle, NOTE);
    FINDS(gpu.persistence, 0, gpu_persistence, BAD);
    FINDS(gpu.power_limit_w, 500, gpu_power, BAD);
    FINDS(gpu.processes, 1, gpu_processes, BAD);
    FINDS(gpu.busy, 0.5, gpu_busy, BAD);
    FINDS(gpu.temperature_c, 84, gpu_temperature, BAD);
    FINDS(gpu.temperature_c, 75, gpu_temperature, NOTE);
    FINDS(gpu.ecc, 0, gpu_ecc, NOTE);
    FINDS(gpu.mig, 1, gpu_mig, NOTE);
    pb_patient slow = healthy();
    snprintf(slow.host.governor, sizeof slow.host.governor, "powersave");
    snprintf(slow.host.clocksource, sizeof slow.host.clocksource, "hpet");
    expect(&slow, "governor", PB_HEALTH_BAD);
    expect(&slow, "clocksource", PB_HEALTH_BAD);
}

/* A reading that is not available is reported as unknown, never as good. */
static void missing_readings_are_unknown(void **state)
{
    pb_patient p = {.want_gpu = true, .no_gpu = "no driver", .timer = {(double)NAN, (double)NAN}};
    int count[PB_NHEALTH];
    (void)state;
    p.before = p.host = pb_host_read(in_folder("nowhere"));
    json_t *o = pb_doctor_json(&p, "cuda", count), *check;
    size_t i;
    json_array_foreach(json_object_get(o, "checks"), i, check)
        assert_string_equal(json_string_value(json_object_get(check, "state")), "unknown");
    assert_int_equal(count[PB_HEALTH_UNKNOWN], 23);
    json_decref(o);
    p.has_gpu = true;
    const double none = (double)NAN;
#define READING(name, ...) p.gpu.name = none;
#include "bench/machine/gpu_readings.def"
#undef READING
    p.gpu.busy = none, p.gpu.processes = -1;
    for (const pb_check_info *c = pb_checks; c->name; c++)
        if (c->gpu) expect(&p, c->name, PB_HEALTH_UNKNOWN);
}

/* ---- machine ids stay what baselines/ uses ------------------------------------------------------------------- */

static void expect_id(const char *hard, const char *want)
{
    char id[PB_MACHINE_TEXT];
    json_t *o = json_pack("{s:o}", "hard", json_loads(hard, 0, NULL));
    pb_machine_id(o, id);
    assert_string_equal(id, want);
    json_decref(o);
}

/* The machine ids that name the folders in baselines/: if one changed, its stored sessions would not be found. */
static void stored_machine_ids_do_not_change(void **state)
{
    (void)state;
    expect_id("{\"device\": \"cpu\", \"cpu\": \"AMD EPYC\", \"sockets\": 1, \"cores\": 2, \"memory_gib\": 24.0,"
              " \"isa\": \"avx512\"}",
              "cpu-amd-epyc-2c-bb3ff791");
    const pb_device_facts f = {.name = "NVIDIA H200",
                               .bus = "0000:18:00.0",
                               .blas = 130000,
                               .compiler = "13.0.88",
                               .multiprocessors = 132,
                               .capability = 90,
                               .memory = 150120169472u};
    const pb_gpu_state g = {.power_limit_w = 700, .ecc = 1, .persistence = 1, .uuid = "GPU-1", .driver = "580.1"};
    char id[PB_MACHINE_TEXT];
    json_t *o = json_pack("{s:{s:s,s:s},s:{},s:{}}", "hard", "device", "cuda", "cpu", "Intel(R) Xeon(R) Processor",
                          "soft", "volatile");
    pb_fingerprint_gpu(json_object_get(o, "hard"), json_object_get(o, "soft"), &f);
    pb_fingerprint_gpu_state(o, &g);
    pb_machine_id(o, id);
    assert_string_equal(id, "cuda-nvidia-h200-132sm-6bfc8d02");
    const json_t *soft = json_object_get(o, "soft");
    assert_non_null(json_object_get(soft, "gpu_power_limit_w"));
    assert_string_equal(json_string_value(json_object_get(soft, "driver_version")), "580.1");
    assert_string_equal(json_string_value(json_object_get(soft, "nvcc")), "13.0.88");
    assert_non_null(json_object_get(json_object_get(o, "volatile"), "gpu_uuid"));
    const pb_gpu_state part = {.mig = 1};
    pb_fingerprint_gpu_state(o, &part);
    pb_machine_id(o, id);
    assert_string_not_equal(id, "cuda-nvidia-h200-132sm-6bfc8d02"); /* a MIG partition is another machine */
    json_decref(o);
}

static int next_descriptor(void)
{
    const int fd = open("/dev/null", O_RDONLY);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

/* Makes a fingerprint and checks that no descriptor stays open, because measuring processes would inherit it. */
static void a_fingerprint_leaves_no_file_open(void **state)
{
    (void)state;
    const int before = next_descriptor();
    json_decref(pb_fingerprint(PB_CPU, 1));
    assert_int_equal(next_descriptor(), before);
}

static void only_listed_environment_variables_are_recorded(void **state)
{
    (void)state;
    setenv("NCCL_ALGO", "Ring", 1), setenv("NVIDIA_TF32_OVERRIDE", "0", 1),
        setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8", 1);
    setenv("NVIDIA_API_KEY", "x", 1), setenv("PB_TOKEN", "x", 1), setenv("NCCL_secret", "x", 1);
    json_t *o = pb_fingerprint(PB_CPU, 1), *e = json_object_get(o, "environment");
    assert_non_null(e);
    assert_non_null(json_object_get(e, "NCCL_ALGO"));
    assert_non_null(json_object_get(e, "CUBLAS_WORKSPACE_CONFIG"));
    assert_non_null(json_object_get(e, "NVIDIA_TF32_OVERRIDE"));
    assert_null(json_object_get(e, "NVIDIA_API_KEY"));
    assert_null(json_object_get(e, "PB_TOKEN"));
    assert_null(json_object_get(e, "NCCL_secret"));
    json_decref(o);
}

/* ---- which processes are measured again ------------------------------------------------------------------------- */

static void retries_are_bounded(void **state)
{
    const int retry_of[] = {-1, -1, -1, 1, 2, 3};
    const bool hot[] = {false, true, true, true, false, true};
    /* want[i]: number of processes to run in all, as known after process i has ended */
    const long want[] = {3, 4, 5, 6, 6, 6};
    pb_options o = {.processes = 3, .throttle_retries = 2}, none = {.processes = 3};
    pb_attempts a = {.options = &o}, b = {.options = &none};
    (void)state;
    assert_int_equal(pb_attempts_processes(&a), 3);
    for (int i = 0; i < 6; i++) {
        const pb_process_end interrupted = {.process = i, .outcome = PB_OUTCOME_interrupted, .retry_of = retry_of[i]};
        pb_process_end end = interrupted;
        end.outcome = hot[i] ? PB_OUTCOME_throttled : PB_OUTCOME_ok;
        CHECK_OK(pb_attempts_add(&a, &interrupted));
        CHECK_OK(pb_attempts_add(&a, &end));
        CHECK_OK(pb_attempts_add(&b, &end));
        assert_int_equal(a.ended, i + 1);
        assert_int_equal(pb_attempts_processes(&a), want[i]);
        assert_int_equal(pb_attempts_processes(&b), 3);
    }
    pb_attempts_free(&a);
    pb_attempts_free(&b);
}

static void an_unknown_device_is_refused(void **state)
{
    const pb_options o = {.device = "nosuch"};
    const pb_plan plan = {0};
    pb_attempts a = {.options = &o};
    pb_process l = {.dir = test_folder, .plan = &plan, .options = &o};
    json_t *about = json_object();
    pb_exit code = PB_EXIT_OK;
    bool stopped = true;
    (void)state;
    CHECK_FAILS(pb_throttle_run(&a, &l, about, &code, &stopped), PB_EINVAL, "nosuch");
    json_decref(about);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_state_is_read_from_its_files),
        cmocka_unit_test(other_work_counts_when_it_takes_cpu_time),
        cmocka_unit_test(a_healthy_machine_passes_every_check),
        cmocka_unit_test(every_check_reports_a_bad_reading),
        cmocka_unit_test(missing_readings_are_unknown),
        cmocka_unit_test(stored_machine_ids_do_not_change),
        cmocka_unit_test(a_fingerprint_leaves_no_file_open),
        cmocka_unit_test(only_listed_environment_variables_are_recorded),
        cmocka_unit_test(retries_are_bounded),
        cmocka_unit_test(an_unknown_device_is_refused),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
