/* options.h - a command line by tables: subcommands and options of a program, from which parsing, hints, help and
 * shell completion follow. The words go into a struct of the program's own, made from the same .def file:
 *
 *   OPT(name, type, letter, argument, default, commands, help)      a program may have columns of its own before help
 *
 * The option is --name with - for _; letter 0: none. Types, and the field each fills:
 *   flag     bool           takes no argument
 *   text     const char *   any word
 *   choice   const char *   one of the words that `argument` separates by |
 *   count    long           a whole number from 1; whole: from 0
 *   number   double         any finite number
 *   seconds  double         a number from 0; with m or h behind it minutes or hours
 *   list     pb_words       a word; may be given again
 * Numbers that were not given and have no default are -1 (number: NaN); words NULL. commands: bits 1 << command. An
 * option without help is internal: not shown. */
#ifndef PB_CLI_OPTIONS_H
#define PB_CLI_OPTIONS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "os/status.h"

enum { PB_OPTION_LIST = 64, PB_OPTION_TEXT = 64 };
typedef struct pb_words {
    const char *v[PB_OPTION_LIST];
    int n;
} pb_words;

#define PB_FIELD_flag    bool
#define PB_FIELD_text    const char *
#define PB_FIELD_choice  const char *
#define PB_FIELD_count   long
#define PB_FIELD_whole   long
#define PB_FIELD_number  double
#define PB_FIELD_seconds double
#define PB_FIELD_list    pb_words

typedef struct pb_command_info {
    const char *name, *arguments, *what; /* a NULL name ends a table */
} pb_command_info;

typedef struct pb_option_info {
    const char *type, *name, *argument, *deflt, *help; /* a NULL name ends a table */
    unsigned commands;
    char letter;
    size_t field; /* offset in the program's struct */
} pb_option_info;

typedef struct pb_cli pb_cli;
/* What the program adds to the types above: fills the field from a value; `name` is the option as typed. */
typedef struct pb_option_type {
    const char *name; /* NULL ends a table */
    pb_status (*set)(void *field, const char *name, const char *value);
} pb_option_type;
/* Words that are options beside the table, `--name` of n bytes without the dashes. */
typedef struct pb_extra_options {
    bool (*known)(int command, const char *name, size_t n);
    pb_status (*set)(void *fields, const char *name, size_t n, const char *value);
    const char *(*each)(int command, int i);         /* the i-th name, for hints and completion; NULL behind the last */
    const char *(*value)(const char *option, int i); /* the i-th word that completes an option of the table */
} pb_extra_options;

struct pb_cli {
    const char *program;
    const pb_command_info *commands;
    const pb_option_info *options;
    const pb_option_type *types;   /* or NULL */
    const pb_extra_options *extra; /* or NULL */
};

/* EINVAL with a hint where a word is nearly right. */
pb_status pb_cli_command(const pb_cli *cli, const char *name, int *out);
/* argv without the program's and the command's name; the strings must outlive *fields, which this fills from {0}.
 * Words that are no options go to *args. EINVAL with one line, and a hint. */
pb_status pb_cli_parse(const pb_cli *cli, int command, int argc, char **argv, void *fields, pb_words *args);
/* The same of words that a file holds: internal options are EINVAL, as options that do not exist. */
pb_status pb_cli_parse_shown(const pb_cli *cli, int command, int argc, char **argv, void *fields, pb_words *args);

/* "--min-time" of min_time. */
void pb_option_text(const pb_option_info *i, char *out, size_t n);
/* The options of a command, a line each. */
void pb_cli_print_options(const pb_cli *cli, int command, FILE *out);
/* A bash completion script. The first command is what `program --option` without a command means. */
void pb_cli_print_bash(const pb_cli *cli, FILE *out);

/* Next item of a list such as "batch=1 clip=fused" or "1,4": copies it to out[n] and returns what follows,
 * or NULL at the end. Empty items are skipped; one that does not fit comes out cut. */
const char *pb_next_item(const char *list, char separator, char *out, size_t n);
#endif
