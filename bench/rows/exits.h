/* exits.h - the exit codes of `bench`, and functions that print a failure and return its exit code. */
#ifndef PB_EXITS_H
#define PB_EXITS_H
#include "os/status.h"

/* Exit codes; `bench --help` explains them. When several apply, the first of 125, 2, 4, 1, 3 is returned. */
typedef enum pb_exit {
    PB_EXIT_OK = 0,
    PB_EXIT_REGRESSION = 1,   /* a row is REGRESSED, or a requirement that gates fails */
    PB_EXIT_USAGE = 2,        /* wrong arguments, or a fault in a file that the user named */
    PB_EXIT_INCONCLUSIVE = 3, /* --strict: a comparison could not decide, or `bench doctor` found a bad setting;
                                 --bisect: no row was judged; `bench project`: a model is not accurate */
    PB_EXIT_INCOMPARABLE = 4, /* rows cannot be compared, or a case failed, hung or is missing */
    PB_EXIT_NO_MEMORY = 124,  /* a measuring process tells `bench` that a case lacked memory; `bench` measures the
                                 other cases and exits with 125 */
    PB_EXIT_HARNESS = 125     /* the harness or the machine failed; `git bisect run` skips the revision */
} pb_exit;
/* The more severe of two codes. */
pb_exit pb_worse_exit(pb_exit a, pb_exit b);

/* Prints "bench: " and the message of the last failure (pb_error) on stderr, as one line. Returns `code`. */
pb_exit pb_complain(pb_exit code);
/* Prints the last failure like pb_complain(). Returns the exit code of status `s` (os/status.h). */
pb_exit pb_complain_of(pb_status s);
#endif
