/* needs.h - options that have an effect only together with another option. A program lists them in a table; a command
 * line with an option that would be ignored is refused. */
#ifndef PB_CLI_NEEDS_H
#define PB_CLI_NEEDS_H
#include "cli/options.h"

/* `option` has an effect only if the choice option `other` has one of `words`, which are separated by |; words NULL:
 * only if `other` is given. A NULL `option` ends a table. */
typedef struct pb_option_need {
    const char *option, *other, *words;
} pb_option_need;

/* True if the option `name` has a value in *fields that is not its default. The type of the option must be one of
 * cli/options.h, not one that the program adds. */
bool pb_cli_changed(const pb_cli *cli, const void *fields, const char *name);
/* EINVAL: an option is changed, but has no effect; the message names the option that it needs. Entries with an option
 * that the command does not have are skipped. */
pb_status pb_cli_check_needs(const pb_cli *cli, int command, const pb_option_need *needs, const void *fields);
#endif
