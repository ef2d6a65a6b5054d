/* options.h - the command line as a struct; its fields are those of options.def. */
#ifndef PB_OPTIONS_H
#define PB_OPTIONS_H
#include "bench/bench.h"

typedef enum pb_command {
#define COMMAND(name, arguments, what) PB_COMMAND_##name,
#include "bench/commands.def"
#undef COMMAND
    PB_NCOMMANDS
} pb_command;
enum {
#define COMMAND(name, arguments, what) PB_ON_##name = 1 << PB_COMMAND_##name,
#include "bench/commands.def"
#undef COMMAND
};
typedef struct pb_command_info {
    const char *name, *arguments, *what;
} pb_command_info;
extern const pb_command_info pb_commands[PB_NCOMMANDS];

enum { PB_OPTION_LIST = 64 };
typedef struct pb_words {
    const char *v[PB_OPTION_LIST];
    int n;
} pb_words;
typedef struct pb_axis_values {
    char name[PB_AXIS_TEXT];
    const char *values; /* "1,4" */
} pb_axis_values;
typedef struct pb_axis_list {
    pb_axis_values v[PB_OPTION_LIST];
    int n;
} pb_axis_list;

#define PB_FIELD_flag    bool
#define PB_FIELD_text    const char *
#define PB_FIELD_choice  const char *
#define PB_FIELD_count   long
#define PB_FIELD_whole   long
#define PB_FIELD_seconds double
#define PB_FIELD_list    pb_words
#define PB_FIELD_axis    pb_axis_list

/* Numbers that were not given and have no default are -1; words NULL. */
typedef struct pb_options {
#define OPT(type, name, letter, argument, deflt, commands, help) PB_FIELD_##type name;
#include "bench/options.def"
#undef OPT
    pb_command command;
    const char *args[PB_OPTION_LIST]; /* what is no option */
    int nargs;
    int argc; /* of argv: everything after the command's name */
    char **argv;
} pb_options;

typedef struct pb_option_info {
    const char *type, *name, *argument, *deflt, *help;
    unsigned commands;
    char letter;
    size_t field; /* offset in pb_options */
} pb_option_info;
extern const pb_option_info pb_option_table[]; /* ended by a NULL name */

/* "--min-time" of min_time. */
void pb_option_text(const pb_option_info *i, char *out, size_t n);

/* argv without the program's and the command's name; the strings must outlive *o. A long option that is an
 * axis of some suite goes to o->axis. EINVAL with one line, and a hint where a word is nearly right. */
pb_status pb_options_parse(pb_command command, int argc, char **argv, pb_options *o);
pb_status pb_command_find(const char *name, pb_command *out); /* EINVAL with a hint */
#endif
