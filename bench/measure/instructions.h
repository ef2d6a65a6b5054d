/* instructions.h - counts the instructions that one call executes on a CPU, in one thread. There are two ways:
 *
 *   callgrind   this process runs under Valgrind's tool callgrind, which translates the program and counts every
 *               instruction. Works on every machine with Valgrind. The processor that Valgrind emulates may lack the
 *               best instruction set of the real one: Valgrind 3.19 has AVX2, but not AVX-512.
 *   perf        the processor counts, by perf_event_open(2), in user mode only. Virtual machines often have no such
 *               counter, and the system may forbid it.
 *
 * The numbers of the two differ: a `rep movsb`, for example, is one instruction for the processor. */
#ifndef PB_INSTRUCTIONS_H
#define PB_INSTRUCTIONS_H
#include <stdbool.h>
#include <sys/types.h>

#include "bench/rows/rows.h"

/* Calls that are counted for one number: the first, in which the allocator of the C library is as earlier work left it
 * and executes some hundred instructions more or fewer, and two that must agree. */
enum { PB_COUNTED_CALLS = 3 };

typedef struct pb_instruction_counter {
    int fd; /* of perf_event_open; -1: callgrind */
    int dumps;
    char path[PB_PATH_TEXT]; /* callgrind: the files that it writes are named path.1, path.2, ... */
} pb_instruction_counter;

/* Opens a counter for the calling thread. by: "callgrind" or "perf"; dir: the folder that pb_callgrind_file() named.
 * EUNSUPPORTED: this process does not run under callgrind, or the system offers no counter; the message says why and
 * what would help. */
pb_status pb_instructions_open(const char *by, const char *dir, pb_instruction_counter *out);
void pb_instructions_close(pb_instruction_counter *c);

/* Count what the calling thread executes between the two calls. Counting excludes the start and the end themselves but
 * for some tens of instructions, always the same ones. EIO: callgrind's file cannot be read; EDEVICE: the processor's
 * counter did not count all the time. */
pb_status pb_instructions_begin(pb_instruction_counter *c);
pb_status pb_instructions_end(pb_instruction_counter *c, double *count);

/* True if this process runs under Valgrind. False also where the build lacks Valgrind's headers. */
bool pb_under_valgrind(void);
/* EUNSUPPORTED: this build cannot count by callgrind, because Valgrind was not installed when it was configured. */
pb_status pb_callgrind_built(void);
/* Writes the value of callgrind's option --callgrind-out-file: its files are in the folder dir, and their names contain
 * the id of the process. */
void pb_callgrind_file(const char *dir, char out[PB_PATH_TEXT]);
/* Removes the files that callgrind wrote into the folder for process pid. */
void pb_callgrind_remove_files(const char *dir, pid_t pid);
#endif
