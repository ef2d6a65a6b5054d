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
    {PB_EXIT_REGRESSION, "a metric that gates is worse than the comparison allows, or a requirement failed (--gate); "
                         "replay, bisect-backends: a result differs"},
    {PB_EXIT_USAGE, "the command line or a file that it names is wrong"},
    {PB_EXIT_INCONCLUSIVE,
     "too noisy (--strict, --must-find), not judged yet, or no row has a value; doctor --strict: a finding is bad; "
     "project: a model is not accurate"},
    {PB_EXIT_INCOMPARABLE,
     "a case failed, hung or is missing, the two sides cannot be compared, or no baseline is stored "
     "(--require-baseline)"},
    {PB_EXIT_HARNESS, "interrupted, or the machine failed (no GPU, disk full, out of memory); git bisect skips it"},
};

static void print_exits(void)
{
    printf("\nexit codes (the first that applies of 125, 2, 4, 1, 3):\n");
    for (size_t i = 0; i < sizeof exits / sizeof *exits; i++) {
        char code[16];
        snprintf(code, sizeof code, "  %d", exits[i].code);
        pb_cli_print_entry(code, 7, exits[i].text, stdout);
    }
}

static void print_overall(void)
{
    const pb_command_info *commands = pb_bench_cli.commands;
    char name[PB_OPTION_TEXT], left[160];
    printf("usage: bench COMMAND [OPTION...]      bench --suite NAME is bench run --suite NAME\n\ncommands:\n");
    for (int i = 0; i < PB_NCOMMANDS; i++) {
        snprintf(left, sizeof left, "  %-11s %s", pb_command_text(&commands[i], name), commands[i].arguments);
        pb_cli_print_entry(left, 48, commands[i].what, stdout);
    }
    printf("\nsuites:\n");
    for (const pb_suite *const *s = pb_suites; *s; s++) {
        snprintf(left, sizeof left, "  %s", (*s)->name);
        pb_cli_print_entry(left, 14, (*s)->what, stdout);
    }
    print_exits();
    printf("\nbench help COMMAND shows its options. Start with:  bench --suite ceiling\n");
}

static void print_command(int c)
{
    const pb_command_info *commands = pb_bench_cli.commands;
    char name[PB_OPTION_TEXT];
    printf("usage: bench %s [OPTION...] %s\n", pb_command_text(&commands[c], name), commands[c].arguments);
    pb_cli_print_entry("", 0, commands[c].what, stdout);
    printf("\noptions:\n");
    pb_cli_print_options(&pb_bench_cli, c, stdout);
    if (c == PB_COMMAND_run || c == PB_COMMAND_compare || c == PB_COMMAND_bisect_backends)
        pb_cli_print_entry(c == PB_COMMAND_bisect_backends ? "  every axis of backward" : "  every axis of the suite",
                           PB_HELP_COLUMN, "is also an option, such as --batch 1 (bench list suites)", stdout);
    if (c == PB_COMMAND_project)
        pb_cli_print_entry("  --ranks N1,N2", PB_HELP_COLUMN, "the numbers of ranks to project to", stdout);
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
