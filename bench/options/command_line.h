/* command_line.h - the parsed command line: struct pb_options has one field for each line of options.def. */
#ifndef PB_COMMAND_LINE_H
#define PB_COMMAND_LINE_H
#include "bench/rows/rows.h"
#include "cli/options.h"

typedef enum pb_command {
#define COMMAND(name, arguments, what) PB_COMMAND_##name,
#include "bench/options/commands.def"
#undef COMMAND
    PB_NCOMMANDS
} pb_command;
enum {
#define COMMAND(name, arguments, what) PB_ON_##name = 1 << PB_COMMAND_##name,
#include "bench/options/commands.def"
#undef COMMAND
};

#define PB_FIELD_axis  pb_axis_list
#define PB_FIELD_share double

/* cli/options.h describes the C type of each option type. This file adds two: `axis` (name=values, may be repeated) and
 * `share` (a fraction: 0.02 for 2%). */
typedef struct pb_options {
#define OPT(name, type, letter, argument, deflt, commands, help) PB_FIELD_##type name;
#include "bench/options/options.def"
#undef OPT
    pb_command command;
    pb_words args; /* arguments that are not options */
    int argc;      /* argc: length of argv, the words after the command's name */
    char **argv;
} pb_options;

extern const pb_cli pb_bench_cli;

/* Parses argv, which starts after the command's name. The strings must outlive *o. A long option named like an axis of
 * any suite is added to o->axis. EINVAL: the message is one line, with a suggestion for a misspelled word. */
pb_status pb_options_parse(pb_command command, int argc, char **argv, pb_options *o);
/* Parses a command line stored in run.json or compare.json. EINVAL also for control characters, because the file may
 * come from an untrusted source, and for internal options, --help and --dry-run, because no command that stores a
 * measurement has them. */
pb_status pb_options_parse_stored(pb_command command, int argc, char **argv, pb_options *o);
#endif
