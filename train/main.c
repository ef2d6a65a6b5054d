/* main.c - the program `train`: finds the subcommand, parses its options, and returns the exit code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/threads.h"
#include "launch/launch.h"
#include "os/interrupt.h"
#include "os/streams.h"
#include "ranks/start.h"
#include "train/options.h"

enum { EXIT_MACHINE = 125 };

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

pb_status pb_train_version(const pb_train_options *o)
{
    if (o->args.n) return pb_fail(PB_EINVAL, "version takes no arguments");
    pb_cli_print_version("train", pb_train_commit(), stdout);
    return PB_OK;
}

static void print_exits(void)
{
    static const char *const exits[][2] = {
        {"  0", "success"},
        {"  1", "run: --max-skipped ended it, or its last step was skipped; smoke: a rung failed; eval: the loss is "
                "not finite; generate: logits are not "
                "finite"},
        {"  2", "an argument, or a file that it names, is wrong"},
        {"  125", "interrupted, or the machine failed (no GPU, disk full, out of memory)"},
    };
    printf("\nexit codes:\n");
    for (size_t i = 0; i < sizeof exits / sizeof *exits; i++) pb_cli_print_entry(exits[i][0], 7, exits[i][1], stdout);
}

pb_status pb_train_help(const pb_train_options *o)
{
    const pb_command_info *c = pb_train_cli.commands;
    if (o->args.n) {
        int i;
        PB_TRY(pb_cli_command(&pb_train_cli, o->args.v[0], &i));
        printf("usage: train %s [OPTION...] %s\n", c[i].name, c[i].arguments);
        pb_cli_print_entry("", 0, c[i].what, stdout);
        printf("\noptions:\n");
        pb_cli_print_options(&pb_train_cli, i, stdout);
    } else {
        printf("usage: train [COMMAND] [OPTION...]      without COMMAND: train run\n\ncommands:\n");
        for (; c->name; c++) {
            char left[64];
            snprintf(left, sizeof left, "  %-11s %s", c->name, c->arguments);
            pb_cli_print_entry(left, 24, c->what, stdout);
        }
        printf("\n`train help COMMAND` prints the options of a command.\n");
    }
    print_exits();
    return PB_OK;
}

/* Finds the subcommand and the index of the first option. `train --steps 5` means `train run --steps 5`; `train --help`
 * means `train help`, and `train --version` means `train version`. */
static pb_status find_command(int argc, char **argv, int *command, int *first)
{
    *first = 1;
    *command = PB_COMMAND_run;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        *first = 2;
        *command = PB_COMMAND_help;
        return PB_OK;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        *first = 2;
        *command = PB_COMMAND_version;
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

/* True for the commands that train, on one rank or several. */
static bool trains(const pb_train_options *o)
{
    return (o->command == PB_COMMAND_run && !o->dry_run) || o->command == PB_COMMAND_smoke;
}

/* Connects to the other ranks, for the commands that several ranks may run together. parsed: whether this rank's
 * options are valid. Fails on all ranks if those of one are not. All but rank 0 are quiet. */
static pb_status open_world(pb_train_options *o, pb_status parsed)
{
    const pb_world_options w = {.version = pb_train_commit(), .mpi = o->device && strcmp(o->device, "cpu") == 0};
    char why[1024];
    if (o->command != PB_COMMAND_run && o->command != PB_COMMAND_smoke && o->command != PB_COMMAND_eval) return parsed;
    if (parsed != PB_OK) snprintf(why, sizeof why, "%s", pb_error());
    const pb_status s = pb_world_open(&w, &o->world);
    if (parsed != PB_OK) (void)pb_fail(parsed, "%s", why); /* it is the failure to report */
    PB_TRY(s == PB_OK ? pb_world_agree(o->world, "the options", parsed) : parsed != PB_OK ? parsed : s);
    o->quiet = o->quiet || !pb_train_leads(o);
    return PB_OK;
}

/* Sets *out to true if this rank, or another one, was interrupted: all ranks return the same exit code. */
static pb_status any_interrupted(const pb_train_options *o, bool *out)
{
    const char own = pb_interrupted();
    const int ranks = pb_world_size(o->world);
    char *all = malloc((size_t)ranks);
    const pb_status s = all ? pb_world_gather(o->world, "the end of the run", &own, 1, all)
                            : pb_fail(PB_ENOMEM, "no memory for an entry per rank");
    for (int i = 0; s == PB_OK && i < ranks; i++) *out = *out || all[i];
    free(all);
    return s;
}

/* Watches ranks that no launcher started: rank 0 hosts the monitor. */
static pb_status watch_ranks(const pb_train_options *o)
{
    char address[PB_LAUNCH_ADDRESS] = "";
    const pb_launch_self self = {pb_world_rank(o->world), pb_world_size(o->world), o->device ? o->device : ""};
    if (pb_launched() || self.size == 1) return PB_OK;
    const pb_status s = self.rank == 0 ? pb_launch_host(self.size, (double)o->rank_timeout, address) : PB_OK;
    PB_TRY(pb_world_agree(o->world, "listening to the ranks", s));
    PB_TRY(pb_world_broadcast(o->world, "the address of the monitor", 0, address, sizeof address));
    return pb_world_agree(o->world, "connecting to the monitor", pb_launch_join(&self, address));
}

/* Runs the subcommand. Returns the exit code; one rank prints the message of a failure. */
static int run(pb_train_options *o, pb_status parsed)
{
    bool interrupted = false;
    pb_status s = open_world(o, parsed);
    if (s == PB_OK) s = watch_ranks(o);
    if (s == PB_OK) s = functions[o->command](o);
    if (s == PB_OK) s = any_interrupted(o, &interrupted);
    int code = s != PB_OK ? pb_status_exit(s) : interrupted ? EXIT_MACHINE : 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (s == PB_OK) pb_fail(PB_EIO, "standard output could not be written completely");
        code = print_error(PB_EIO);
    } else if (s != PB_OK && pb_launch_lost() < 0 && pb_world_speaks(o->world)) {
        print_error(s);
    }
    pb_world_close(o->world);
    if (pb_launch_lost() >= 0) code = pb_launch_lost(); /* the monitor's decision is the same on all ranks */
    pb_launch_leave(code);
    return code;
}

/* Starts --ranks N ranks of this command line, and returns their exit code. */
static int launch(const pb_train_options *o, char **argv)
{
    int code = EXIT_MACHINE;
    const pb_launch_job job = {"train", (int)o->ranks, (double)o->rank_timeout, (const char *const *)argv, NULL};
    const pb_status s = pb_launch(&job, &code);
    return s == PB_OK ? code : print_error(s);
}

static const char *environment(const char *name) { return getenv(name); }

/* True if mpirun, srun or torchrun started this process as one of several. Variables that contradict each other are
 * reported by check_ranks(). */
static bool started_by_another(void)
{
    pb_start start;
    return pb_start_read(environment, false, &start) != PB_OK || start.size > 1;
}

/* Checks --ranks in a rank: the program that started it must have started as many. */
static pb_status check_ranks(const pb_train_options *o)
{
    pb_start start;
    PB_TRY(pb_start_read(environment, false, &start));
    if (o->ranks < 1 || o->ranks == start.size) return PB_OK;
    return pb_fail(PB_EINVAL, "--ranks %ld, but %s started %d", o->ranks, start.by, start.size);
}

/* A rank of the launcher: it joins before MPI starts, so that a rank that fails there is noticed. */
static int run_rank(pb_train_options *o, pb_status parsed)
{
    pb_start start;
    if (pb_start_read(environment, false, &start) != PB_OK) return print_error(PB_EINVAL);
    const pb_launch_self self = {pb_start_rank(environment), start.size, o->device ? o->device : ""};
    const pb_status s = pb_launch_join(&self, NULL);
    if (s != PB_OK) return print_error(s);
    return run(o, parsed == PB_OK ? check_ranks(o) : parsed);
}

int main(int argc, char **argv)
{
    pb_train_options o = {0};
    int first;
    pb_streams_open();
    pb_threads_wait_briefly(argv);
    pb_status s = find_command(argc, argv, &o.command, &first);
    if (s == PB_OK) s = pb_cli_parse(&pb_train_cli, o.command, argc - first, argv + first, &o, &o.args);
    if (s == PB_OK && o.help) {
        o.args = (pb_words){{pb_train_cli.commands[o.command].name}, 1};
        o.command = PB_COMMAND_help;
    }
    if (s == PB_OK && trains(&o) && o.ranks > 1 && !pb_launched() && !started_by_another()) return launch(&o, argv);
    pb_threads_limit("train");
    pb_interrupt_watch();
    if (pb_launched()) return run_rank(&o, s);
    return run(&o, s == PB_OK && trains(&o) ? check_ranks(&o) : s);
}
