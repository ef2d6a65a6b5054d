/* threads.h - the number of OpenMP threads of a program, and how long they spin at a barrier. */
#ifndef PB_CLI_THREADS_H
#define PB_CLI_THREADS_H

/* Sets GOMP_SPINCOUNT and executes the program again, because libgomp reads the variable before main(). Does nothing if
 * GOMP_SPINCOUNT or OMP_WAIT_POLICY is already set. By libgomp's default a waiting thread spins for milliseconds; on a
 * busy machine it then occupies the core that the awaited thread needs. Must be the first call in main(). Process id
 * and standard streams are kept. If the program cannot be executed again, it continues with libgomp's default. */
void pb_threads_wait_briefly(char **argv);

/* Sets GOMP_SPINCOUNT for a program that this process is about to execute, under the same conditions. */
void pb_threads_set_waiting(void);

/* Limits the OpenMP threads to the processors that this process may use. More threads only displace each other, and
 * with a hundred times too many a run does not finish in reasonable time. If OMP_NUM_THREADS asks for more, prints one
 * line to stderr and corrects the variable for child processes. */
void pb_threads_limit(const char *program);
#endif
