/* options.h - the command line as a struct; its fields are those of options.def. */
#ifndef PB_OPTIONS_H
#define PB_OPTIONS_H
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
typedef struct pb_axis_values {
    char name[PB_AXIS_TEXT];
    const char *values; /* "1,4" */
} pb_axis_values;
typedef struct pb_axis_list {
    pb_axis_values v[PB_OPTION_LIST];
    int n;
} pb_axis_list;

#define PB_FIELD_axis  pb_axis_list
#define PB_FIELD_share double

/* The fields are as cli/options.h says; type axis: name=values, may be given again. */
typedef struct pb_options {
#define OPT(name, type, letter, argument, deflt, commands, help) PB_FIELD_##type name;
#include "bench/options/options.def"
#undef OPT
    pb_command command;
    pb_words args; /* what is no option */
    int argc;      /* of argv: everything after the command's name */
    char **argv;
} pb_options;

extern const pb_cli pb_bench_cli;

/* argv without the program's and the command's name; the strings must outlive *o. A long option that is an
 * axis of some suite goes to o->axis. EINVAL with one line, and a hint where a word is nearly right. */
pb_status pb_options_parse(pb_command command, int argc, char **argv, pb_options *o);
/* The same of words that a file of an earlier command holds (run.json, compare.json), which may have been written by
 * somebody else: EINVAL also for what no command that measured can have been given, as internal options. */
pb_status pb_options_parse_stored(pb_command command, int argc, char **argv, pb_options *o);
#endif
