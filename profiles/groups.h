/* groups.h - metric groups: which hardware counters are read together, and the metrics that follow from them.
 *
 * A group is a text file NAME.txt of the folder groups/, in the manner of LIKWID:
 *
 *     SHORT   Bytes that device memory reads and writes      what it is for, in one line
 *     CHIP    GH100                                          the chip, as CUPTI names it; or cpu
 *     PASSES  1                                              how often CUPTI runs each kernel to read all events
 *     READ    counted                                        in ranges of work (the default), or `sampled`
 *     EVENTS                                                 a name for formulas, and the counter's own name
 *     read    dram__bytes_read.sum
 *     METRICS                                                a metric, its unit, and the formula
 *     dram_read_bytes  B  read
 *     LONG                                                   notes, to the end of the file
 *
 * A line that begins with # is a comment. Counted events of a GPU are sums (NAME.sum), because a call may launch
 * several kernels, whose counters are added before the formulas are evaluated. Events of a CPU have the names of `perf
 * list`. A formula has the names of events, numbers, + - * / and parentheses.
 *
 * READ sampled: CUPTI reads the counters of the whole GPU at a fixed interval (trace/gpu_samples.h). Formulas are
 * evaluated for each sample by itself, so that an event may be any kind of metric, such as a percentage. The name
 * `seconds` in a formula is the length of the sample. Such a group is of a GPU and has one pass. */
#ifndef PB_GROUPS_H
#define PB_GROUPS_H
#include <stdbool.h>
#include <stddef.h>

#include "os/status.h"

enum { PB_GROUP_EVENTS = 24, PB_GROUP_METRICS = 24, PB_GROUP_PATH = 1024 };

typedef struct pb_group_event {
    char name[24], counter[104]; /* in formulas; as CUPTI or `perf list` names it */
} pb_group_event;

typedef struct pb_group_metric {
    char name[40], unit[8], formula[160];
} pb_group_metric;

typedef struct pb_counter_group {
    char name[24], summary[120], chip[16]; /* chip: "cpu", or a chip of CUPTI */
    bool sampled;                          /* READ sampled */
    int passes, events, metrics;
    pb_group_event event[PB_GROUP_EVENTS];
    pb_group_metric metric[PB_GROUP_METRICS];
} pb_counter_group;

/* True if the processor counts the events, false if a GPU does. */
bool pb_group_on_cpu(const pb_counter_group *g);

/* Returns the folder of the groups, written into buffer: PB_GROUPS if this variable is set, else share/plumb/groups of
 * the installation if it can be read, else the folder of the sources. */
const char *pb_group_folder(char buffer[PB_GROUP_PATH]);
/* Reads a file. EINVAL: a line is wrong; the message has the path and the number of the line. EPATH: the file cannot be
 * read. */
pb_status pb_group_read(const char *path, pb_counter_group *out);
/* Reads the group of this name from pb_group_folder(). EINVAL: no file has this name; the message lists the names. */
pb_status pb_group_find(const char *name, pb_counter_group *out);
/* Calls each(user, group) for the groups of pb_group_folder(), by name, until a call fails. EPATH: no such folder. */
pb_status pb_group_each(pb_status (*each)(void *user, const pb_counter_group *g), void *user);

/* Evaluates the formula of metric number i with the counts of the events; those of a sampled group are followed by the
 * seconds of the sample. NaN: a count is NaN, or a divisor is 0. */
double pb_group_value(const pb_counter_group *g, int i, const double *counts);
#endif
