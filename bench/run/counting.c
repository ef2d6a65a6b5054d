/* counting.c - a run with --instructions: checks its options, and starts processes under Valgrind. */
#define _GNU_SOURCE
#include "bench/run/counting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/measure/measure.h"
#include "bench/suites/suites.h"

#include "cli/threads.h"

static bool callgrind(const pb_options *o) { return o->instructions && strcmp(o->instructions, "callgrind") == 0; }

/* Returns the first option that counting excludes, with the reason; NULL: none. */
static const char *excluded(const pb_options *o)
{
    if (strcmp(o->device, "cpu") != 0) return "--device: only the instructions of a CPU are counted";
    if (o->threads > 1) return "--threads: only one thread is counted, because threads that wait execute instructions";
    if (o->ranks > 1) return "--ranks: the instructions of one process are counted";
    if (o->samples > 0) return "--samples: calls of each case are counted";
    if (o->min_time >= 0) return "--min-time: calls of each case are counted";
    if (o->ceilings && strcmp(o->ceilings, "yes") == 0) return "--ceilings yes: ceilings are times";
    return NULL;
}

static pb_status check_suite(const char *name)
{
    char names[128] = "";
    const pb_suite *suite = name ? pb_suite_find(name) : NULL;
    if (!suite || suite->counting) return PB_OK; /* the plan refuses an unknown suite */
    for (const pb_suite *const *s = pb_suites; *s; s++)
        if ((*s)->counting)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? " and " : "", (*s)->name);
    return pb_fail(PB_EINVAL, "--instructions: suite %s is measured by its times; instructions are counted in %s", name,
                   names);
}

pb_status pb_counting_options(pb_options *o)
{
    const double emulated = 1200; /* seconds: Valgrind takes some tens of times as long as the processor */
    if (!o->instructions) return PB_OK;
    const char *other = excluded(o);
    if (other) return pb_fail(PB_EINVAL, "--instructions excludes %s", other);
    PB_TRY(check_suite(o->suite));
    o->threads = 1;
    o->ceilings = "no";
    if (o->case_timeout < 0 && callgrind(o)) o->case_timeout = emulated;
    return PB_OK;
}

/* ---- executing the program under Valgrind ------------------------------------------------------------------ */

/* Executes this program with the n words of argv under Valgrind, with Valgrind's options before it. Returns after a
 * failure, with errno set. */
static void exec_under_valgrind(const char *const *options, const char *const *argv)
{
    char self[PB_PATH_TEXT];
    size_t n = 0, k = 0, m = 0;
    const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len < 0) return;
    self[len] = 0;
    while (options[k]) k++;
    while (argv[m]) m++;
    const char **words = calloc(k + m + 2, sizeof *words);
    if (!words) return;
    for (size_t i = 0; i < k; i++) words[n++] = options[i];
    words[n++] = self;
    for (size_t i = 1; i < m; i++) words[n++] = argv[i];
    /* Otherwise the program would set this variable itself and execute itself again, outside Valgrind. */
    pb_threads_set_waiting();
    execvp(words[0], (char *const *)words);
    free(words);
}

void pb_counting_exec(const pb_options *o, const char *dir, const char *const *argv)
{
    char file[PB_PATH_TEXT], out[PB_PATH_TEXT + 32];
    if (!callgrind(o)) {
        execv("/proc/self/exe", (char *const *)argv);
        return;
    }
    pb_callgrind_file(dir, file);
    snprintf(out, sizeof out, "--callgrind-out-file=%s", file);
    exec_under_valgrind((const char *const[]){"valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", out, NULL},
                        argv);
}

pb_status pb_counting_begin(const pb_options *o)
{
    pb_instruction_counter counter;
    if (!o->instructions) return PB_OK;
    if (!callgrind(o)) {
        PB_TRY(pb_instructions_open(o->instructions, "", &counter));
        pb_instructions_close(&counter);
        return PB_OK;
    }
    PB_TRY(pb_callgrind_built());
    if (pb_under_valgrind()) return PB_OK;
    const char **argv = calloc((size_t)o->argc + 3, sizeof *argv);
    if (!argv) return pb_fail(PB_ENOMEM, "no memory for a command line");
    argv[0] = "bench", argv[1] = "run";
    for (int i = 0; i < o->argc; i++) argv[i + 2] = o->argv[i];
    exec_under_valgrind((const char *const[]){"valgrind", "-q", "--tool=none", NULL}, argv);
    free(argv);
    return pb_fail(PB_EUNSUPPORTED, "--instructions callgrind: valgrind cannot be executed: %s%s", strerror(errno),
                   errno == ENOENT ? "; install the package valgrind" : "");
}

pb_status pb_counting_name(const pb_options *o, const char *processor, char out[PB_COUNTING_NAME])
{
    char version[32] = "";
    if (!callgrind(o)) {
        snprintf(out, PB_COUNTING_NAME, "perf %.48s", processor);
        return PB_OK;
    }
    FILE *f = popen("valgrind --version", "r"); /* prints "valgrind-3.19.0" */
    const bool said = f && fscanf(f, "valgrind-%31s", version) == 1;
    if (f) pclose(f);
    snprintf(out, PB_COUNTING_NAME, "callgrind-%s", version);
    return said ? PB_OK : pb_fail(PB_EUNSUPPORTED, "--instructions callgrind: `valgrind --version` says no version");
}
