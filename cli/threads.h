/* threads.h - the OpenMP threads of a program: how many, and how they wait for each other. */
#ifndef PB_CLI_THREADS_H
#define PB_CLI_THREADS_H

/* Starts the program anew with GOMP_SPINCOUNT set, unless the environment has it or OMP_WAIT_POLICY already. libgomp
 * reads it before main() begins, and its own default has a waiting thread spin for milliseconds, which on a busy
 * machine takes the processor from the very thread that it waits for. The first call in main(); process id and
 * standard streams stay. Where the program cannot be started anew, threads wait as libgomp's default says. */
void pb_threads_wait_briefly(char **argv);

/* The same for a process that is about to execute another program: only sets the environment. */
void pb_threads_set_waiting(void);

/* At most as many threads as processors that this process may use: more only take them from each other, and a hundred
 * times too many never finish. Where OMP_NUM_THREADS asks for more, one line on stderr says so, and the environment is
 * corrected for the processes that this one starts. */
void pb_threads_limit(const char *program);
#endif
