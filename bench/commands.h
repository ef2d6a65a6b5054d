/* commands.h - the subcommands: pb_cmd_NAME() for each line of commands.def. Each prints its result on stdout and, when
 * it fails, one line on stderr. */
#ifndef PB_COMMANDS_H
#define PB_COMMANDS_H
#include "bench/options/options.h"
#include "bench/run/run.h"

#define COMMAND(name, arguments, what) pb_exit pb_cmd_##name(const pb_options *o);
#include "bench/options/commands.def"
#undef COMMAND

/* Measures the unconfirmed rows of a run again. */
typedef pb_exit pb_measure_again(void *user);
/* Runs after all cases of a run are measured: prints the report, calls `again` unless the options switch the comparison
 * or the confirmation off, compares with the stored sessions, and keeps the run as a session. After an interruption in
 * `again` it does not compare. */
pb_exit pb_after_run(const pb_options *o, const char *dir, pb_measure_again *again, void *user);
/* pb_compare_unconfirmed() with the options of a run. */
pb_status pb_run_unconfirmed(const pb_options *o, const char *dir, char **keys, int *rows);

/* A complete run whose unconfirmed rows are to be measured again (cmd_again.c). */
typedef struct pb_again {
    const pb_options *o;
    const char *dir;     /* the run's folder */
    const pb_plan *plan; /* the run's cases */
    double end;          /* end of the budget on pb_clock_seconds(); 0: none */
} pb_again;
/* Waits --confirm-after, then measures the cases of the rows that pb_run_unconfirmed() finds in 6 fresh processes, into
 * dir/again; without such rows it does nothing. If the budget does not suffice, or ends the measurement, it only prints
 * the command that continues. `user` is a pb_again. PB_EXIT_HARNESS: interrupted. PB_EXIT_INCOMPARABLE: a case failed
 * or is wrong. */
pb_exit pb_again_run(void *user);

/* Handles `bench compare` of two executables and of recorded pairs (cmd_pairs.c). Returns false and leaves *code unset
 * when the arguments ask for another kind of comparison. */
bool pb_compare_pairs(const pb_options *o, pb_exit *code);
#endif
