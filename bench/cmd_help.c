/* cmd_help.c - `bench help` and `bench --help`: prints the commands, their options and the exit codes. */
#include <stdio.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/run/run.h"
#include "bench/suites/suites.h"

static const struct {
    pb_exit code;
    const char *text;
} exits[] = {
    {PB_EXIT_OK, "nothing failed, and no metric that gates is worse than the baseline allows"},
    {PB_EXIT_REGRESSION, "a metric that gates is worse than the baseline allows, or a requirement failed (--gate); "
                         "replay: an output differs"},
    {PB_EXIT_USAGE, "the command line or a file that it names is wrong"},
    {PB_EXIT_INCONCLUSIVE,
     "--strict: too noisy, or too few processes, for a verdict; project: a model is not accurate"},
    {PB_EXIT_INCOMPARABLE, "a case failed, hung or is missing, or the two sides cannot be compared"},
    {PB_EXIT_HARNESS, "interrupted, or the machine failed (no GPU, disk full, out of memory); git bisect skips it"},
};

static void print_exits(void)
{
    printf("\nexit codes (the first that applies of 125, 2, 4, 1, 3):\n");
    for (size_t i = 0; i < sizeof exits / sizeof *exits; i++) printf("  %-4d %s\n", exits[i].code, exits[i].text);
}

static void print_overall(void)
{
    const pb_command_info *commands = pb_bench_cli.commands;
    char name[PB_OPTION_TEXT];
    printf("usage: bench COMMAND [OPTION...]      bench --suite NAME is bench run --suite NAME\n\ncommands:\n");
    for (int i = 0; i < PB_NCOMMANDS; i++)
        printf("  %-11s %-34s %s\n", pb_command_text(&commands[i], name), commands[i].arguments, commands[i].what);
    printf("\nsuites:\n");
    for (const pb_suite *const *s = pb_suites; *s; s++) printf("  %-11s %s\n", (*s)->name, (*s)->what);
    print_exits();
    printf("\nbench help COMMAND shows its options. Start with:  bench --suite ceiling\n");
}

static void print_command(int c)
{
    const pb_command_info *commands = pb_bench_cli.commands;
    char name[PB_OPTION_TEXT];
    printf("usage: bench %s [OPTION...] %s\n%s\n\noptions:\n", pb_command_text(&commands[c], name),
           commands[c].arguments, commands[c].what);
    pb_cli_print_options(&pb_bench_cli, c, stdout);
    if (c == PB_COMMAND_run || c == PB_COMMAND_compare || c == PB_COMMAND_bisect_backends)
        printf("  every axis of the suite     is also an option, such as --batch 1,4 (bench list suites)\n");
    if (c == PB_COMMAND_project) printf("  --ranks N1,N2               the numbers of ranks to project to\n");
    print_exits();
}

pb_exit pb_cmd_version(const pb_options *o)
{
    if (o->args.n) {
        pb_fail(PB_EINVAL, "version takes no arguments");
        return pb_complain(PB_EXIT_USAGE);
    }
    pb_cli_print_version("bench", pb_run_commit(), stdout);
    return PB_EXIT_OK;
}

pb_exit pb_cmd_help(const pb_options *o)
{
    int c;
    if (!o->args.n) {
        print_overall();
        return PB_EXIT_OK;
    }
    if (pb_cli_command(&pb_bench_cli, o->args.v[0], &c) != PB_OK) return pb_complain(PB_EXIT_USAGE);
    print_command(c);
    return PB_EXIT_OK;
}
