/* commands.h - the subcommands: pb_cmd_NAME() for each line of commands.def. Each prints its result on stdout and, when
 * it fails, one line on stderr. */
#ifndef PB_COMMANDS_H
#define PB_COMMANDS_H
#include "bench/options/options.h"

#define COMMAND(name, arguments, what) pb_exit pb_cmd_##name(const pb_options *o);
#include "bench/options/commands.def"
#undef COMMAND

/* Runs after all cases of a run are measured: prints the report and compares with the stored baseline. */
pb_exit pb_after_run(const pb_options *o, const char *dir);

/* Handles `bench compare` of two executables and of recorded pairs (cmd_pairs.c). Returns false and leaves *code unset
 * when the arguments ask for another kind of comparison. */
bool pb_compare_pairs(const pb_options *o, pb_exit *code);
#endif
