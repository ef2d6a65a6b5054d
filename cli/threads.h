/* threads.h - limits the number of OpenMP threads of a program, and how long they spin at a barrier. */
#ifndef PB_CLI_THREADS_H
#define PB_CLI_THREADS_H

/* Shortens the time that OpenMP threads spin at a barrier before they sleep: sets GOMP_SPINCOUNT and executes the
 * program again, because libgomp reads the variable before main(). By default libgomp's threads spin for milliseconds,
 * which on a busy machine occupies the core that a slower thread needs. Does nothing if GOMP_SPINCOUNT or
 * OMP_WAIT_POLICY is already set. Must be the first call in main(). The process keeps its id and standard streams. If
 * the program cannot be executed again, it continues with libgomp's default. */
void pb_threads_wait_briefly(char **argv);

/* Sets GOMP_SPINCOUNT for a program that this process is about to execute, unless OMP_WAIT_POLICY or GOMP_SPINCOUNT
 * is already set. */
void pb_threads_set_waiting(void);

/* The entry of an environment, "GOMP_SPINCOUNT=...", that pb_threads_set_waiting() would set; NULL: it would set
 * none. */
const char *pb_threads_waiting(void);

/* Limits the number of OpenMP threads to the number of processors that this process may use, because more threads only
 * preempt each other. If OMP_NUM_THREADS asks for more, prints one line to stderr and corrects the variable, also for
 * child processes. */
void pb_threads_limit(const char *program);
#endif
