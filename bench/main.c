/* main.c - the program bench: finds the subcommand, parses its options and returns its exit code. */
#include <stdio.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/options/options.h"
#include "cli/threads.h"
#include "os/streams.h"

static pb_exit (*const functions[PB_NCOMMANDS])(const pb_options *o) = {
#define COMMAND(name, arguments, what) pb_cmd_##name,
#include "bench/options/commands.def"
#undef COMMAND
};

/* Finds the subcommand and the index of its first option. Without a subcommand, options belong to `run`: `bench --suite
 * X` is `bench run --suite X`. `bench --help` is `bench help`, and `bench --version` is `bench version`. */
static pb_status split(int argc, char **argv, int *command, int *first)
{
    *first = 1;
    *command = PB_COMMAND_run;
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        *first = argc < 2 ? 1 : 2;
        *command = PB_COMMAND_help;
        return PB_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        *first = 2;
        *command = PB_COMMAND_version;
        return PB_OK;
    }
    if (argv[1][0] == '-') return PB_OK;
    *first = 2;
    return pb_cli_command(&pb_bench_cli, argv[1], command);
}

/* Converts an exit code for --bisect. git expects 0 (good), 1 (bad) or 125 (skip this commit), so every other code
 * becomes 125. The code of a measuring process is not converted, because its parent reads it, not git. When parsing
 * failed (o is NULL), the words of the command line are searched for --bisect. */
static pb_exit bisected(pb_exit code, const pb_options *o, int argc, char **argv)
{
    bool asked = o && o->bisect && !o->child_dir;
    for (int i = 1; !o && i < argc; i++) asked |= strcmp(argv[i], "--bisect") == 0;
    return asked && code != PB_EXIT_OK && code != PB_EXIT_REGRESSION ? PB_EXIT_HARNESS : code;
}

int main(int argc, char **argv)
{
    int command;
    pb_options o;
    int first;
    pb_streams_open();
    if (split(argc, argv, &command, &first) != PB_OK ||
        pb_options_parse((pb_command)command, argc - first, argv + first, &o) != PB_OK)
        return (int)bisected(pb_complain(PB_EXIT_USAGE), NULL, argc, argv);
    if (o.help) {
        static char name[PB_OPTION_TEXT];
        o.args = (pb_words){{pb_command_text(&pb_bench_cli.commands[command], name)}, 1};
        command = PB_COMMAND_help;
    }
    /* A measuring process keeps the number of threads that its parent gave it. */
    if (!o.child_dir) pb_threads_limit("bench");
    pb_exit code =
        o.help || pb_options_select_device(&o) == PB_OK ? functions[command](&o) : pb_complain(PB_EXIT_USAGE);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        pb_fail(PB_EIO, "stdout: it could not all be written");
        code = pb_worse_exit(code, pb_complain(PB_EXIT_HARNESS));
    }
    return (int)bisected(code, &o, argc, argv);
}
