/* options.h - the subcommands of `train`, and a struct of its options whose fields are generated from options.def. */
#ifndef PB_PROGRAM_OPTIONS_H
#define PB_PROGRAM_OPTIONS_H
#include "cli/needs.h"
#include "cli/options.h"
#include "ranks/world.h"

enum {
#define COMMAND(name, arguments, what) PB_COMMAND_##name,
#include "train/commands.def"
#undef COMMAND
    PB_NCOMMANDS
};
enum {
#define COMMAND(name, arguments, what) PB_ON_##name = 1 << PB_COMMAND_##name,
#include "train/commands.def"
#undef COMMAND
};

typedef struct pb_train_options {
#define OPT(name, type, letter, argument, deflt, commands, resumed, help) PB_FIELD_##type name;
#include "train/options.def"
#undef OPT
    int command;
    pb_words args;   /* positional arguments */
    pb_world *world; /* the processes of the job; NULL: this is the only one */
} pb_train_options;
extern const pb_cli pb_train_cli;
extern const pb_option_need pb_train_needs[];
const char *pb_train_commit(void); /* the commit that was built */
/* True on the rank that prints notes, writes the log, checkpoints and exports: rank 0. */
static inline bool pb_train_leads(const pb_train_options *o) { return pb_world_rank(o->world) == 0; }

/* The subcommands. Each prints its output to stdout. main turns the status into the exit code and, after a failure,
 * prints the message to stderr. */
#define COMMAND(name, arguments, what) pb_status pb_train_##name(const pb_train_options *o);
#include "train/commands.def"
#undef COMMAND
#endif
