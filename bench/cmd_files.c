/* cmd_files.c - `bench report`, `compare`, `baseline` and `plot`: passes the options to the functions that work on
 * result files. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/commands.h"
#include "bench/compare/compare.h"
#include "bench/pairs/pairs.h"
#include "bench/report/report.h"
#include "bench/rows/rows.h"
#include "bench/text/text.h"
#include "cli/hint.h"
#include "os/interrupt.h"

/* Prints the error message when the exit code says that the call failed. Other codes are verdicts and have no
 * message. */
static pb_exit explained(pb_exit code)
{
    return code == PB_EXIT_USAGE || code == PB_EXIT_HARNESS ? pb_complain(code) : code;
}

static pb_exit too_many(const pb_options *o, int most)
{
    pb_fail(PB_EINVAL, "%s takes at most %d argument%s", pb_bench_cli.commands[o->command].name, most,
            most == 1 ? "" : "s");
    return pb_complain(PB_EXIT_USAGE);
}

static const char *argument(const pb_options *o, int i) { return i < o->args.n ? o->args.v[i] : NULL; }

static pb_compare_opts compare_opts(const pb_options *o)
{
    return (pb_compare_opts){.gates = o->gates,
                             .baselines = o->baseline,
                             .machine = o->machine,
                             .confirmed = o->confirmed,
                             .strict = o->strict,
                             .need_verdict = o->bisect,
                             .allow_mismatch = o->allow_mismatch,
                             .require_baseline = o->require_baseline,
                             .subset = o->subset,
                             .all = o->all,
                             .explain = o->explain,
                             .format = o->format};
}

static pb_exit roofline(const pb_options *o)
{
    char newest[PB_PATH_TEXT];
    const pb_format format = pb_format_of(o->format);
    if (format != PB_FORMAT_TEXT && format != PB_FORMAT_MARKDOWN) {
        pb_fail(PB_EINVAL, "--roofline prints text or markdown, not %s", o->format);
        return pb_complain(PB_EXIT_USAGE);
    }
    if (!o->args.n && pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest) != PB_OK)
        return pb_complain(PB_EXIT_USAGE);
    const char *run = o->args.n ? o->args.v[0] : newest;
    const pb_status s = pb_roofline(run, &o->counted, format == PB_FORMAT_MARKDOWN, stdout);
    return s == PB_OK ? PB_EXIT_OK : pb_complain_of(s);
}

pb_exit pb_cmd_report(const pb_options *o)
{
    if (o->counted.n && !o->roofline) {
        pb_fail(PB_EINVAL, "--counted needs --roofline");
        return pb_complain(PB_EXIT_USAGE);
    }
    if (o->roofline && o->args.n <= 1) return roofline(o);
    const pb_report_opts opts = {.runs = o->runs, .gate_requirements = o->gate != NULL, .format = o->format};
    return o->args.n > 1 ? too_many(o, 1) : explained(pb_report(argument(o, 0), &opts, stdout));
}

static pb_exit simulate(const pb_options *o)
{
    if (pb_format_of(o->format) != PB_FORMAT_TEXT) {
        pb_fail(PB_EINVAL, "--simulate prints only text, not %s", o->format);
        return pb_complain(PB_EXIT_USAGE);
    }
    const pb_simulate_opts opts = {.gates = o->gates,
                                   .baselines = o->baseline,
                                   .pairs = o->pairs,
                                   .max_pairs = o->max_pairs,
                                   .trials = o->trials,
                                   .inject = o->inject_slowdown,
                                   .same_code = o->self,
                                   .all = o->all};
    return explained(pb_simulate_files(o->args.v, o->args.n, &opts, stdout));
}

/* Compares results. Without arguments: the newest run with the stored baseline. With one argument: that run with the
 * baseline. With two: the second (the candidate) with the first (the base). */
pb_exit pb_cmd_compare(const pb_options *o)
{
    const pb_compare_opts opts = compare_opts(o);
    char newest[PB_PATH_TEXT];
    pb_exit code;
    if (o->simulate) return simulate(o);
    if (o->args.n > 2) return too_many(o, 2);
    if (pb_compare_pairs(o, &code)) return code;
    if (o->args.n == 2) return explained(pb_compare_files(o->args.v[0], o->args.v[1], &opts, stdout));
    if (!o->args.n && pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest) != PB_OK)
        return pb_complain(PB_EXIT_USAGE);
    return explained(pb_compare_baseline(o->args.n ? o->args.v[0] : newest, &opts, stdout));
}

pb_exit pb_cmd_baseline(const pb_options *o)
{
    const pb_baseline_opts opts = {.baselines = o->baseline,
                                   .runs = o->runs,
                                   .gates = o->gates,
                                   .machine = o->machine,
                                   .reason = o->reason,
                                   .sessions = (int)o->sessions,
                                   .subset = o->subset || o->accept_regression};
    const struct {
        const char *word;
        pb_exit (*run)(const char *argument, const pb_baseline_opts *o, FILE *out);
    } subcommands[] = {{"save", pb_baseline_save},
                       {"update", pb_baseline_update},
                       {"counters", pb_baseline_counters},
                       {"show", pb_baseline_show}};
    pb_hint hint = {.word = o->args.n ? o->args.v[0] : ""};
    if (o->args.n > 2) return too_many(o, 2);
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) {
        if (strcmp(hint.word, subcommands[i].word) != 0) continue;
        const pb_exit code = subcommands[i].run(argument(o, 1), &opts, stdout);
        return code == PB_EXIT_OK ? code : pb_complain(code);
    }
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) pb_hint_try(&hint, subcommands[i].word);
    pb_fail(PB_EINVAL, "baseline: the first argument must be save, update, counters or show%s", pb_hint_text(&hint));
    return pb_complain(PB_EXIT_USAGE);
}

pb_exit pb_cmd_plot(const pb_options *o)
{
    const pb_plot_opts opts = {.figure = o->figure, .out = o->out, .plots = o->plots, .runs = o->runs};
    return o->args.n > 1 ? too_many(o, 1) : explained(pb_plot(argument(o, 0), &opts, stdout));
}

/* If gates.csv does not exist, prints that and returns true: the run cannot be compared. That is normal outside a
 * source tree, so the run does not fail. */
static bool nothing_to_compare_with(const pb_options *o)
{
    char gates[PB_PATH_TEXT];
    snprintf(gates, sizeof gates, "%s/gates.csv", o->baseline);
    if (o->gates || access(gates, F_OK) == 0) return false;
    printf("NO-BASELINE: %s, which lists the gates, does not exist; --baseline DIR names another folder\n", gates);
    return true;
}

static pb_compare_opts run_compare_opts(const pb_options *o)
{
    pb_compare_opts opts = compare_opts(o);
    opts.subset =
        o->args.n || o->filter.n || o->axis.n || o->impl || o->prefer || o->counters; /* counted: nothing is timed */
    return opts;
}

pb_status pb_run_unconfirmed(const pb_options *o, const char *dir, char **keys, int *rows)
{
    char gates[PB_PATH_TEXT];
    const pb_compare_opts opts = run_compare_opts(o);
    *keys = NULL;
    *rows = 0;
    snprintf(gates, sizeof gates, "%s/gates.csv", o->baseline);
    if (!o->gates && access(gates, F_OK) != 0) return PB_OK;
    return pb_compare_unconfirmed(dir, &opts, keys, rows);
}

static pb_exit compare_run(const pb_options *o, const char *dir)
{
    const pb_compare_opts opts = run_compare_opts(o);
    if (!o->quiet) putchar('\n');
    if (nothing_to_compare_with(o))
        return o->require_baseline ? PB_EXIT_INCOMPARABLE : o->bisect ? PB_EXIT_INCONCLUSIVE : PB_EXIT_OK;
    fflush(stdout); /* a later message on stderr must not overtake this output */
    return explained(pb_compare_baseline(dir, &opts, stdout));
}

/* True if the run may become a session: enough processes, times, and no option that changes values but not keys. */
static bool comparable(const pb_options *o)
{
    return o->processes >= PB_ENOUGH_PROCESSES && !o->counters && o->threads < 0 && o->warmup < 0 && o->samples < 0 &&
           o->min_time < 0;
}

/* Keeps the run as a session (kept_sessions.h). It is measured already, so a failure is only a warning. */
static pb_status keep_run(const pb_options *o, const char *dir, char *said, size_t n)
{
    pb_table t;
    pb_series_set set;
    pb_gates gates = {0};
    PB_TRY(pb_table_read(dir, &t));
    pb_status s = pb_series_make(&t, &set);
    if (s == PB_OK) {
        s = pb_baseline_gates(o->baseline, o->gates, &gates);
        if (s == PB_OK || s == PB_EPATH) s = pb_kept_add(&t, &set, &gates, said, n);
        pb_series_free(&set);
    }
    pb_table_free(&t);
    return s;
}

static void keep(const pb_options *o, const char *dir)
{
    char said[2 * PB_PATH_TEXT] = "";
    if (o->no_keep || !comparable(o)) return;
    fflush(stdout); /* a later message on stderr must not overtake this output */
    if (keep_run(o, dir, said, sizeof said) != PB_OK)
        fprintf(stderr, "bench: warning: the run is not kept as a session: %s\n", pb_error());
    else if (*said && !o->quiet) printf("kept as a session: %s\n", said);
}

pb_exit pb_after_run(const pb_options *o, const char *dir, pb_measure_again *again, void *user)
{
    const pb_report_opts report = {.gate_requirements = o->gate != NULL};
    FILE *out = o->quiet ? fopen("/dev/null", "w") : stdout;
    if (!out) return pb_fail(PB_EIO, "/dev/null cannot be opened"), pb_complain(PB_EXIT_HARNESS);
    pb_exit code = explained(pb_report(dir, &report, out));
    if (out != stdout) fclose(out);
    if (!o->no_compare && !o->no_confirm) code = pb_worse_exit(code, again(user));
    if (!o->no_compare && !pb_interrupted()) code = pb_worse_exit(code, compare_run(o, dir));
    keep(o, dir);
    return code;
}
