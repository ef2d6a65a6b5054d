/* main.c - the program `train`: finds the subcommand, parses its options, and returns the exit code. */
#include <stdio.h>
#include <string.h>

#include "cli/threads.h"
#include "os/interrupt.h"
#include "os/streams.h"
#include "train/options.h"

enum { EXIT_MACHINE = 125 };

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
const pb_cli pb_train_cli = {"train", commands, options, NULL, NULL};

static pb_status (*const functions[PB_NCOMMANDS])(const pb_train_options *o) = {
#define COMMAND(name, arguments, what) pb_train_##name,
#include "train/commands.def"
#undef COMMAND
};

pb_status pb_train_completion(const pb_train_options *o)
{
    if (o->args.n != 1 || strcmp(o->args.v[0], "bash") != 0)
        return pb_fail(PB_EINVAL,
                       "completion needs the name of a shell, and only bash is supported: train completion bash");
    pb_cli_print_bash(&pb_train_cli, stdout);
    return PB_OK;
}

pb_status pb_train_help(const pb_train_options *o)
{
    int c = 0;
    if (o->args.n) {
        PB_TRY(pb_cli_command(&pb_train_cli, o->args.v[0], &c));
        printf("usage: train %s [OPTION...] %s\n%s\n\noptions:\n", commands[c].name, commands[c].arguments,
               commands[c].what);
        pb_cli_print_options(&pb_train_cli, c, stdout);
    } else {
        printf("usage: train [COMMAND] [OPTION...]      without COMMAND: train run\n\ncommands:\n");
        for (; commands[c].name; c++)
            printf("  %-11s %-8s %s\n", commands[c].name, commands[c].arguments, commands[c].what);
        printf("\n`train help COMMAND` prints the options of a command.\n");
    }
    printf("\nexit codes:\n  0    success\n  1    a loss was not finite, or --max-skipped ended the run\n"
           "  2    an argument, or a file that it names, is wrong\n"
           "  125  interrupted, or the machine failed (no GPU, disk full, out of memory)\n");
    return PB_OK;
}

/* Finds the subcommand and the index of the first option. `train --steps 5` means `train run --steps 5`; `train --help`
 * means `train help`. */
static pb_status find_command(int argc, char **argv, int *command, int *first)
{
    *first = 1;
    *command = PB_COMMAND_run;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        *first = 2;
        *command = PB_COMMAND_help;
        return PB_OK;
    }
    if (argc < 2 || argv[1][0] == '-') return PB_OK;
    *first = 2;
    return pb_cli_command(&pb_train_cli, argv[1], command);
}

static int print_error(pb_status s)
{
    fprintf(stderr, "train: %s\n", pb_error());
    return pb_status_exit(s);
}

int main(int argc, char **argv)
{
    pb_train_options o = {0};
    int first;
    pb_streams_open();
    pb_threads_wait_briefly(argv);
    if (find_command(argc, argv, &o.command, &first) != PB_OK ||
        pb_cli_parse(&pb_train_cli, o.command, argc - first, argv + first, &o, &o.args) != PB_OK)
        return print_error(PB_EINVAL);
    if (o.help) {
        o.args = (pb_words){{commands[o.command].name}, 1};
        o.command = PB_COMMAND_help;
    }
    pb_threads_limit("train");
    pb_interrupt_watch();
    pb_status s = functions[o.command](&o);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (s == PB_OK) pb_fail(PB_EIO, "standard output could not be written completely");
        return print_error(PB_EIO);
    }
    return s == PB_OK ? pb_interrupted() ? EXIT_MACHINE : 0 : print_error(s);
}
