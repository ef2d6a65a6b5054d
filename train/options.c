/* options.c - the tables of the subcommands and options of `train`, generated from commands.def,
 * options.def and needs.def. */
#include "train/options.h"

#include <stddef.h>

static const pb_command_info commands[] = {
#define COMMAND(name, arguments, what) {#name, arguments, what},
#include "train/commands.def"
#undef COMMAND
    {0},
};
static const pb_option_info options[] = {
#define OPT(name, type, letter, argument, deflt, commands, resumed, help)                                              \
    {#type, #name, argument, deflt, help, commands, letter, offsetof(pb_train_options, name)},
#include "train/options.def"
#undef OPT
    {0},
};
const pb_option_need pb_train_needs[] = {
#define NEED(option, other, words) {#option, #other, words},
#include "train/needs.def"
#undef NEED
    {0},
};
static const pb_option_alias aliases[] = {{NULL, "impl", "prefer"}, {0}}; /* bench has another option --impl */
const pb_cli pb_train_cli = {"train", commands, options, NULL, NULL, aliases};
