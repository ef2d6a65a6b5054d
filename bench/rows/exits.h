/* exits.h - the exit codes of `bench`, and how a failure becomes one. */
#ifndef PB_EXITS_H
#define PB_EXITS_H
#include "os/status.h"

/* Exit codes, in words in `bench --help`. When several apply: 125 > 2 > 4 > 1 > 3. */
typedef enum pb_exit {
    PB_EXIT_OK = 0,
    PB_EXIT_REGRESSION = 1,
    PB_EXIT_USAGE = 2,        /* what the user typed, or a file of theirs */
    PB_EXIT_INCONCLUSIVE = 3, /* only with --strict */
    PB_EXIT_INCOMPARABLE = 4, /* or a case that failed, hung or is missing */
    PB_EXIT_NO_MEMORY = 124,  /* of a launch, to `bench`, which goes on and ends with 125: a case lacked memory */
    PB_EXIT_HARNESS = 125     /* the harness or the machine; what git bisect skips */
} pb_exit;
/* Which of two codes a command ends with. */
pb_exit pb_worse_exit(pb_exit a, pb_exit b);

/* Prints "bench: " and the last failure on stderr, as one line; returns the code. */
pb_exit pb_complain(pb_exit code);
/* The same, with the exit code that belongs to the status of the failure (os/status.h). */
pb_exit pb_complain_of(pb_status s);
#endif
