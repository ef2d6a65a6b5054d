/* commands.h - the subcommands: pb_cmd_NAME for every line of commands.def. Each prints what the user asked
 * for on stdout and one line on stderr when it fails. */
#ifndef PB_COMMANDS_H
#define PB_COMMANDS_H
#include "bench/options/options.h"

#define COMMAND(name, arguments, what) pb_exit pb_cmd_##name(const pb_options *o);
#include "bench/options/commands.def"
#undef COMMAND

/* What follows a whole run: its table, and the comparison with the stored baseline. */
pb_exit pb_after_run(const pb_options *o, const char *dir);

/* `bench compare` of two executables, and of recorded pairs (cmd_pairs.c). false: that is not what is asked for. */
bool pb_compare_pairs(const pb_options *o, pb_exit *code);
#endif
