/* exits.c - ranks exit codes by severity, and prints failures on stderr. */
#include "bench/rows/exits.h"

#include <stdio.h>

static int rank(pb_exit e)
{
    static const pb_exit order[] = {PB_EXIT_OK,    PB_EXIT_INCONCLUSIVE, PB_EXIT_REGRESSION, PB_EXIT_INCOMPARABLE,
                                    PB_EXIT_USAGE, PB_EXIT_NO_MEMORY,    PB_EXIT_HARNESS};
    for (int i = 0; i < (int)(sizeof order / sizeof *order); i++)
        if (order[i] == e) return i;
    return (int)(sizeof order / sizeof *order); /* an unknown code ranks highest, so that it is reported */
}

pb_exit pb_worse_exit(pb_exit a, pb_exit b) { return rank(a) >= rank(b) ? a : b; }

pb_exit pb_complain(pb_exit code)
{
    fprintf(stderr, "bench: %s\n", pb_error());
    return code;
}

pb_exit pb_complain_of(pb_status s) { return pb_complain((pb_exit)pb_status_exit(s)); }
