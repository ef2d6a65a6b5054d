/* cpu_counters.c - counts the events of a metric group on a CPU. */
#include "bench/measure/cpu_counters.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bench/measure/perf_event.h"

enum { user, all }; /* the values of `where` in cpu_events.def */

static const struct known {
    const char *name;
    uint32_t type;
    uint64_t event;
    int where;
} known[] = {
#define CPU_EVENT(name, type, event, where) {name, PERF_TYPE_##type, PERF_COUNT_##event, where},
#include "bench/measure/cpu_events.def"
#undef CPU_EVENT
};

static const struct known *find(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) return &known[i];
    return NULL;
}

static pb_status open_event(const pb_counter_group *g, const char *name, pb_cpu_counters *c)
{
    char option[64], counter[64];
    const struct known *k = find(name);
    if (!k) return pb_fail(PB_EINVAL, "group %s: there is no counter '%.60s' of a CPU", g->name, name);
    struct perf_event_attr a = {.type = k->type,
                                .config = k->event,
                                .disabled = !c->events,
                                .exclude_kernel = k->where == user,
                                .exclude_hv = 1,
                                .read_format = PERF_FORMAT_GROUP};
    snprintf(option, sizeof option, "--counters %s", g->name);
    snprintf(counter, sizeof counter, "counter `%s`", name);
    PB_TRY(pb_perf_open(&a, c->events ? c->fd[0] : -1, option, counter, "", &c->fd[c->events]));
    c->events++;
    return PB_OK;
}

pb_status pb_cpu_counters_open(const pb_counter_group *g, pb_cpu_counters *out)
{
    *out = (pb_cpu_counters){.events = 0};
    for (int i = 0; i < g->events; i++) {
        const pb_status s = open_event(g, g->event[i].counter, out);
        if (s == PB_OK) continue;
        pb_cpu_counters_close(out);
        return s;
    }
    return PB_OK;
}

void pb_cpu_counters_close(pb_cpu_counters *c)
{
    while (c->events) close(c->fd[--c->events]);
}

static pb_status read_all(const pb_cpu_counters *c, uint64_t raw[3 + PB_GROUP_EVENTS])
{
    const ssize_t bytes = (ssize_t)((3 + (size_t)c->events) * sizeof *raw);
    if (read(c->fd[0], raw, (3 + PB_GROUP_EVENTS) * sizeof *raw) == bytes) return PB_OK;
    return pb_fail(PB_EDEVICE, "counters: the processor's counters cannot be read: %s", strerror(errno));
}

pb_status pb_cpu_counters_begin(pb_cpu_counters *c)
{
    uint64_t raw[3 + PB_GROUP_EVENTS];
    PB_TRY(read_all(c, raw)); /* a reset sets the counts to 0, but not the times */
    c->wanted = raw[1], c->used = raw[2];
    if (ioctl(c->fd[0], PERF_EVENT_IOC_RESET, PERF_IOC_FLAG_GROUP) == 0 &&
        ioctl(c->fd[0], PERF_EVENT_IOC_ENABLE, PERF_IOC_FLAG_GROUP) == 0)
        return PB_OK;
    return pb_fail(PB_EDEVICE, "counters: the processor's counters cannot be started: %s", strerror(errno));
}

void pb_cpu_counters_take(const uint64_t *raw, int n, double *values, char why[PB_COUNTS_WHY])
{
    const uint64_t wanted = raw[1], used = raw[2]; /* nanoseconds */
    const bool whole = raw[0] == (uint64_t)n && used && wanted == used;
    *why = 0;
    for (int i = 0; i < n; i++) values[i] = whole ? (double)raw[3 + i] : (double)NAN;
    if (!whole)
        snprintf(why, PB_COUNTS_WHY,
                 "the events were counted for %.3g of %.3g ms: other users of the counters took them away",
                 (double)used * 1e-6, (double)wanted * 1e-6);
}

pb_status pb_cpu_counters_end(pb_cpu_counters *c, double *values, char why[PB_COUNTS_WHY])
{
    uint64_t raw[3 + PB_GROUP_EVENTS];
    if (ioctl(c->fd[0], PERF_EVENT_IOC_DISABLE, PERF_IOC_FLAG_GROUP) != 0)
        return pb_fail(PB_EDEVICE, "counters: the processor's counters cannot be stopped: %s", strerror(errno));
    PB_TRY(read_all(c, raw));
    raw[1] -= c->wanted, raw[2] -= c->used;
    pb_cpu_counters_take(raw, c->events, values, why);
    return PB_OK;
}
