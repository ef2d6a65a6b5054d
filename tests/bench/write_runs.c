/* write_runs.c - the program write_runs CASES.TXT FOLDER writes the runs of tests/fixtures/compare/cases.txt as CSV
 * files, for tests that are scripts and for a person to look at. */
#include <stdio.h>

#include "tests/bench/compare_runs.h"

int main(int argc, char **argv)
{
    pb_compare_table t;
    if (argc != 3) return fputs("usage: write_runs CASES.TXT FOLDER\n", stderr), 2;
    pb_status s = pb_compare_table_read(argv[1], &t);
    if (s == PB_OK) {
        s = pb_compare_table_write(&t, argv[2]);
        pb_compare_table_free(&t);
    }
    if (s != PB_OK) fprintf(stderr, "write_runs: %s\n", pb_error());
    return pb_status_exit(s);
}
