/* instructions.c - counts the instructions of a call, by callgrind's client requests or by perf_event_open(2). */
#define _GNU_SOURCE
#include "bench/measure/instructions.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bench/measure/perf_event.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
enum { BUILT = 1 };
#else /* client requests without Valgrind's headers: none is made, and pb_callgrind_built() says so */
enum { BUILT = 0 };
#define RUNNING_ON_VALGRIND             0
#define CALLGRIND_START_INSTRUMENTATION (void)0
#define CALLGRIND_STOP_INSTRUMENTATION  (void)0
#define CALLGRIND_DUMP_STATS            (void)0
#endif

bool pb_under_valgrind(void) { return RUNNING_ON_VALGRIND != 0; }

pb_status pb_callgrind_built(void)
{
    return BUILT ? PB_OK
                 : pb_fail(PB_EUNSUPPORTED, "--instructions callgrind: this build lacks the header "
                                            "valgrind/callgrind.h: install the package valgrind and build again");
}

/* ---- callgrind ------------------------------------------------------------------------------------------ */

#define FILE_NAME "callgrind"

void pb_callgrind_file(const char *dir, char out[PB_PATH_TEXT])
{
    static const char name[] = "/" FILE_NAME ".%p";
    size_t n = 0;
    /* Valgrind replaces %p by the id of the process, and %% by %. */
    for (; *dir && n + sizeof name + 2 < PB_PATH_TEXT; dir++) {
        if (*dir == '%') out[n++] = '%';
        out[n++] = *dir;
    }
    snprintf(out + n, PB_PATH_TEXT - n, "%s", name);
}

void pb_callgrind_remove_files(const char *dir, pid_t pid)
{
    char pattern[2 * PB_PATH_TEXT + 64];
    size_t n = 0;
    glob_t found;
    for (; *dir && n < 2 * PB_PATH_TEXT; dir++) {
        if (strchr("*?[\\", *dir)) pattern[n++] = '\\';
        pattern[n++] = *dir;
    }
    snprintf(pattern + n, sizeof pattern - n, "/" FILE_NAME ".%ld*", (long)pid);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
    globfree(&found);
}

/* Reads the line "totals: 12345", the last of a file that callgrind wrote, and removes the file. It allocates no
 * memory: otherwise the allocator would be in another state when the next call begins. */
static pb_status read_total(const char *path, double *count)
{
    char end[256];
    unsigned long long total = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return pb_fail(PB_EIO, "%s: callgrind did not write this file: %s", path, strerror(errno));
    const off_t size = lseek(fd, 0, SEEK_END), most = (off_t)sizeof end - 1;
    const ssize_t n = pread(fd, end, sizeof end - 1, size > most ? size - most : 0);
    close(fd);
    unlink(path);
    end[n > 0 ? n : 0] = 0;
    const char *line = strstr(end, "totals: ");
    if (!line || sscanf(line, "totals: %llu", &total) != 1)
        return pb_fail(PB_EIO, "%s: callgrind wrote no line `totals:` with a number", path);
    *count = (double)total;
    return PB_OK;
}

static pb_status end_callgrind(pb_instruction_counter *c, double *count)
{
    char path[PB_PATH_TEXT + 16];
    CALLGRIND_STOP_INSTRUMENTATION;
    CALLGRIND_DUMP_STATS;
    snprintf(path, sizeof path, "%s.%d", c->path, ++c->dumps);
    return read_total(path, count);
}

static pb_status open_callgrind(const char *dir, pb_instruction_counter *out)
{
    PB_TRY(pb_callgrind_built());
    if (!pb_under_valgrind())
        return pb_fail(PB_EUNSUPPORTED, "--instructions callgrind: this process does not run under Valgrind");
    const int n = snprintf(out->path, sizeof out->path, "%s/" FILE_NAME ".%ld", dir, (long)getpid());
    return n < (int)sizeof out->path ? PB_OK : pb_fail(PB_EINVAL, "%.80s...: the path is too long", dir);
}

/* ---- the processor's counter ------------------------------------------------------------------------------ */

static pb_status open_perf(pb_instruction_counter *out)
{
    struct perf_event_attr a = {.type = PERF_TYPE_HARDWARE,
                                .config = PERF_COUNT_HW_INSTRUCTIONS,
                                .disabled = 1,
                                .exclude_kernel = 1,
                                .exclude_hv = 1};
    return pb_perf_open(&a, -1, "--instructions perf", "counter of instructions",
                        "; `--instructions callgrind` needs no such counter", &out->fd);
}

static pb_status end_perf(const pb_instruction_counter *c, double *count)
{
    uint64_t v[3]; /* instructions; time enabled and time running of the counter, in ns */
    if (ioctl(c->fd, PERF_EVENT_IOC_DISABLE, 0) != 0 || read(c->fd, v, sizeof v) != (ssize_t)sizeof v)
        return pb_fail(PB_EDEVICE, "--instructions perf: the counter cannot be read: %s", strerror(errno));
    if (!v[2] || v[1] != v[2])
        return pb_fail(PB_EDEVICE, "--instructions perf: other users of the processor's counters took the counter away "
                                   "during the call");
    *count = (double)v[0];
    return PB_OK;
}

/* ---- both ------------------------------------------------------------------------------------------------- */

pb_status pb_instructions_open(const char *by, const char *dir, pb_instruction_counter *out)
{
    *out = (pb_instruction_counter){.fd = -1};
    return strcmp(by, "perf") == 0 ? open_perf(out) : open_callgrind(dir, out);
}

void pb_instructions_close(pb_instruction_counter *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

pb_status pb_instructions_begin(pb_instruction_counter *c)
{
    if (c->fd < 0) {
        CALLGRIND_START_INSTRUMENTATION;
        return PB_OK;
    }
    if (ioctl(c->fd, PERF_EVENT_IOC_RESET, 0) == 0 && ioctl(c->fd, PERF_EVENT_IOC_ENABLE, 0) == 0) return PB_OK;
    return pb_fail(PB_EDEVICE, "--instructions perf: the counter cannot be started: %s", strerror(errno));
}

pb_status pb_instructions_end(pb_instruction_counter *c, double *count)
{
    return c->fd < 0 ? end_callgrind(c, count) : end_perf(c, count);
}
