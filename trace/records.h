/* records.h - the records of a profiling window in a file, as they were before they were joined: the ranges of the
 * host, the GPU's work and host calls as CUPTI reported them, and what was noted of the nodes of graphs. Written once
 * on a machine with a GPU and read on any machine, they go through pb_gpu_place() and pb_trace_write() again: tests of
 * the joining of kernels to ops need no GPU.
 *
 * The file is text, compressed with gzip; `zcat` shows it. Each line is a word and numbers:
 *
 *     plumb-records 1                          the format; another number is refused
 *     name TEXT                                names are numbered from 0 in the order of these lines
 *     about rank ranks first_step last_step truncated topology version backend device     the last four are numbers of names
 *     window begin_ns end_ns tsc dropped stepped_ns       of pb_ring_window
 *     gpu dropped buffer_bytes                            of pb_gpu_window
 *     thread tid dropped                                  whose ranges follow
 *     range KIND begin duration name ...                  KIND as in pb_range_kinds; times in ns, counted from the window's begin
 *     collective group dtype ranks number      of the range before it, which is one; group and dtype are numbers of names
 *     place depth, and for each range KIND name value flops bytes        places are numbered like names
 *     collective_of at group dtype ranks number           of range `at` of the place before it
 *     node id original place                   a note of nodes.h, in their order; place of a copy: that of its original
 *     sampled device interval_us lost outside overflows metrics, and for each metric name unit      of pb_gpu_samples
 *     sample begin duration value...           of each metric; nan: it has none
 *     KIND begin duration name ...             an event of the GPU, in CUPTI's order: kernel, copy, set, call, sync, overhead or graph
 *     end LINES                                lines before this one, the last of the file
 *
 * The fields that end the lines of ranges and events are listed in records_fields.h. Names of hosts are not stored. A
 * file has `sampled` and `sample` lines only if hardware counters were sampled. */
#ifndef PB_TRACE_RECORDS_H
#define PB_TRACE_RECORDS_H
#include "trace/chrome.h"

typedef struct pb_records {
    pb_trace_about about; /* host "recorded"; no name, no limit, all ranks expected */
    pb_ring_window ranges;
    pb_gpu_window gpu; /* as pb_gpu_read() gives it */
} pb_records;

/* Writes the file, which appears only when it is complete; gpu as pb_gpu_read() gives it. Takes the nodes of graphs from
 * nodes.h. EPATH, EIO, ENOMEM. EINVAL: a name has more than PB_GZIP_NAME bytes, or a newline. */
pb_status pb_records_write(const pb_disk *d, const char *path, const pb_trace_about *about, const pb_ring_window *w,
                           const pb_gpu_window *gpu);
/* Reads the file, and adds its nodes of graphs to the table of this process (nodes.h). Numbers of nodes are unique in
 * one file only, so a process reads one file. Names stay valid until the process ends. EPATH. ENOMEM. EINVAL: the file is cut
 * off, damaged, or not of this format; the message names the line. */
pb_status pb_records_read(const char *path, pb_records *out);
void pb_records_free(pb_records *r); /* {0} is allowed */
#endif
