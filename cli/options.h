/* options.h - a table-driven command line. Parsing, hints, help and shell completion are generated from the tables of
 * a program's subcommands and options. The parsed values are stored in a struct that the program generates from the
 * same .def file:
 *
 *   OPT(name, type, letter, argument, default, commands, help)      a program may add columns before `help`
 *
 * The user types the option as --name, with "-" for "_". letter: its short form; 0: none. commands: a bit 1 << command
 * for each subcommand that accepts the option. An option without help is internal: help and completion omit it. Each
 * type fills a field of this C type:
 *   flag     bool           takes no argument
 *   text     const char *   any word that is not empty
 *   choice   const char *   one of the words in `argument`, which are separated by |; NAME[:N] among them stands for
 *                           NAME and for NAME:0, NAME:1, ...
 *   count    long           a whole number from 1
 *   whole    long           a whole number from 0
 *   number   double         any finite number
 *   seconds  double         a number from 0; the suffix m means minutes, h hours
 *   list     pb_words       a word; the option may be repeated
 * Without a default, an option that is not given is -1 (number: NaN; text and choice: NULL). */
#ifndef PB_CLI_OPTIONS_H
#define PB_CLI_OPTIONS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/words.h"
#include "os/status.h"

enum { PB_OPTION_TEXT = 64 }; /* bytes of an option's name, with NUL */
#define PB_NUMBERED "[:N]"    /* the end of a word of a choice that a number may follow */

#define PB_FIELD_flag    bool
#define PB_FIELD_text    const char *
#define PB_FIELD_choice  const char *
#define PB_FIELD_count   long
#define PB_FIELD_whole   long
#define PB_FIELD_number  double
#define PB_FIELD_seconds double
#define PB_FIELD_list    pb_words

typedef struct pb_command_info {
    /* Help prints `arguments` and the description `what`. A NULL name ends a table. */
    const char *name, *arguments, *what;
} pb_command_info;

typedef struct pb_option_info {
    /* argument NULL: takes no value; deflt NULL: no default; help NULL: internal. A NULL name ends a table. */
    const char *type, *name, *argument, *deflt, *help;
    unsigned commands; /* bits 1 << command that accept the option */
    char letter;       /* short form; 0: none */
    size_t field;      /* offset of the option's field in the program's struct, in bytes */
} pb_option_info;

typedef struct pb_cli pb_cli;
/* An option type that the program adds. `set` stores the value in the field; `name` is the option as typed, for
 * messages. */
typedef struct pb_option_type {
    const char *name; /* a NULL name ends a table */
    pb_status (*set)(void *field, const char *name, const char *value);
} pb_option_type;
/* Functions of the program for options `--name value` that are not in its table of options, such as the axes of a
 * benchmark. `name` has n bytes, without the dashes and not NUL-terminated. */
typedef struct pb_extra_options {
    bool (*known)(int command, const char *name, size_t n);
    pb_status (*set)(void *fields, const char *name, size_t n, const char *value);
    /* Returns the i-th name that `known` accepts, for hints and completion; NULL after the last. */
    const char *(*each)(int command, int i);
    /* Returns the i-th word that completes the value of `option`, an option of the table; NULL after the last. */
    const char *(*value)(const char *option, int i);
} pb_extra_options;

/* An old spelling that is still accepted but not shown in help or completion. option NULL: `was` and `is` are names of
 * options, as in the table of options; else they are values of the choice option `option`. A NULL `was` ends a
 * table. */
typedef struct pb_option_alias {
    const char *option, *was, *is;
} pb_option_alias;

struct pb_cli {
    const char *program;
    const pb_command_info *commands;
    const pb_option_info *options;
    const pb_option_type *types;    /* NULL: none */
    const pb_extra_options *extra;  /* NULL: none */
    const pb_option_alias *aliases; /* NULL: none */
};

/* Finds a command by name and returns its index in *out. EINVAL: no such command; the message suggests a similar
 * one. */
pb_status pb_cli_command(const pb_cli *cli, const char *name, int *out);
/* Parses argv, which starts after the command's name. *fields must be zeroed; it keeps pointers into argv. Words that
 * are not options go to *args. EINVAL: the message is one line, and names a similar option if one exists. */
pb_status pb_cli_parse(const pb_cli *cli, int command, int argc, char **argv, void *fields, pb_words *args);
/* Like pb_cli_parse, for words that come from a file: an internal option is rejected as unknown. */
pb_status pb_cli_parse_shown(const pb_cli *cli, int command, int argc, char **argv, void *fields, pb_words *args);

/* Writes an option as it is typed: "--min-time" for min_time. */
void pb_option_text(const pb_option_info *i, char *out, size_t n);
/* Writes a command as it is typed, with - in place of _, and returns `out`. */
const char *pb_command_text(const pb_command_info *c, char out[PB_OPTION_TEXT]);
enum { PB_HELP_WIDTH = 110, PB_HELP_COLUMN = 30 };
/* Prints `left`, and from column `column` on the words of `text`, in lines of at most PB_HELP_WIDTH characters. The text
 * begins in a line of its own if `left` reaches the column. */
void pb_cli_print_entry(const char *left, int column, const char *text, FILE *out);
/* Prints an entry for each option of a command, the descriptions from PB_HELP_COLUMN on. */
void pb_cli_print_options(const pb_cli *cli, int command, FILE *out);
/* Prints one line: the program, its version, and the commit that was built. */
void pb_cli_print_version(const char *program, const char *commit, FILE *out);
/* Prints a bash completion script. If the command line names no command, options of the first command are completed. */
void pb_cli_print_bash(const pb_cli *cli, FILE *out);
#endif
