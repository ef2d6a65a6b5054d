/* cmd_pairs.c - `bench compare` of two executables, and of the recorded pairs of an earlier comparison. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/commands.h"
#include "bench/compare/compare.h"
#include "bench/machine/machine.h"
#include "bench/pairs/pairs.h"
#include "bench/run/run.h"
#include "os/disk.h"
#include "os/file.h"
#include "os/interrupt.h"

enum { NUMBER = 40 };
/* Seconds of a time slice on a CPU. Calls that take longer are measured call by call: one call of each side in turn. */
static const double default_time_slice = 0.002;
/* The minimum effect of kernel_time between two builds (pb_pair_plan.kernel_effect). */
static const double layout_effect = 0.02;

/* ---- what an argument of bench compare names ----------------------------------------------------------- */

typedef enum kind { RESULTS, EXECUTABLE, PAIRS } kind;

static bool exists(const char *dir, const char *name, char out[PB_PATH_TEXT])
{
    struct stat st;
    const int n = snprintf(out, PB_PATH_TEXT, "%s%s", dir, name);
    return n < PB_PATH_TEXT && stat(out, &st) == 0 && S_ISREG(st.st_mode);
}

/* Recognises a program by its first bytes ("#!" or the ELF magic), so that a file without execute permission is also
 * reported as a program. */
static bool is_program(const char *path)
{
    char head[4] = "";
    FILE *f;
    if (pb_file_read(path, &f) != PB_OK) return false;
    const size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    return n >= 2 && (memcmp(head, "#!", 2) == 0 || (n == 4 && memcmp(head, "\177ELF", 4) == 0));
}

/* Classifies an argument of `bench compare`. For an executable, writes its path to `path`; for an install folder that
 * is its bin/bench. */
static kind kind_of(const char *argument, char path[PB_PATH_TEXT])
{
    if (exists(argument, "/compare.json", path)) return PAIRS;
    if (exists(argument, "/results.csv", path)) return RESULTS;
    if (exists(argument, "/bin/bench", path)) return EXECUTABLE;
    if (exists(argument, "", path) && is_program(path)) return EXECUTABLE;
    return RESULTS;
}

static const char *const kinds[] = {"results", "an executable", "a recorded comparison"};

/* ---- planning a new comparison --------------------------------------------------------------------------- */

static void say(json_t *words, const char *option, const char *value)
{
    if (!value) return;
    json_array_append_new(words, json_string(option));
    json_array_append_new(words, json_string(value));
}

static void say_count(json_t *words, const char *option, long value)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%ld", value);
    say(words, option, value > 0 ? text : NULL);
}

static void say_seconds(json_t *words, const char *option, double value)
{
    char text[NUMBER];
    snprintf(text, sizeof text, "%.17g", value);
    say(words, option, value >= 0 ? text : NULL);
}

/* Returns the options of `bench run` that say what to measure; both sides receive the same ones. Ceilings are off by
 * default because measuring them takes as long as many cases, and a ratio of two times needs no ceiling. `--ceilings
 * yes` is the default of `bench run` and is not passed on, because an older executable may not know the option. NULL:
 * out of memory, or an option is not valid UTF-8. */
static json_t *options_of(const pb_options *o)
{
    json_t *w = json_array();
    say(w, "--suite", o->suite);
    say(w, "--grid", o->grid);
    say(w, "--device", o->device);
    say(w, "--impl", o->impl);
    say(w, "--prefer", o->prefer);
    say_count(w, "--threads", o->threads);
    say_count(w, "--warmup", o->warmup);
    say_count(w, "--samples", o->samples);
    say_seconds(w, "--min-time", o->min_time);
    say_seconds(w, "--case-timeout", o->case_timeout);
    if (!o->ceilings || strcmp(o->ceilings, "yes") != 0) say(w, "--ceilings", "no");
    for (int i = 0; i < o->filter.n; i++) say(w, "--filter", o->filter.v[i]);
    for (int i = 0; i < o->axis.n; i++) {
        json_array_append_new(w, json_string("--axis"));
        json_array_append_new(w, json_sprintf("%s=%s", o->axis.v[i].name, o->axis.v[i].values));
    }
    for (size_t i = 0; i < json_array_size(w); i++)
        if (json_array_size(w) % 2 == 0 && json_string_value(json_array_get(w, i))) continue;
        else return json_decref(w), NULL;
    return w;
}

/* Sets the fields of `r` for which the command line has an option, and checks the rule. */
static pb_status set_rule(const pb_options *o, pb_pair_opts *r)
{
    pb_pair_report none;
    if (o->min_effect >= 0) r->min_effect = o->min_effect;
    if (o->alpha >= 0) r->alpha = o->alpha;
    if (o->must_find >= 0) r->must_find = o->must_find;
    if (o->pairs > 0) {
        r->look[0] = o->pairs < 1000 ? (int)o->pairs : 1000;
        r->look[1] =
            2 * r->look[0] < PB_SIGN_FLIP_MAX || r->look[0] > PB_SIGN_FLIP_MAX ? 2 * r->look[0] : PB_SIGN_FLIP_MAX;
    }
    if (o->max_pairs > 0) r->look[1] = o->max_pairs < 1000 ? (int)o->max_pairs : 1000;
    if (o->max_pairs > 0 && o->pairs < 0 && r->look[0] > r->look[1]) r->look[0] = r->look[1];
    return pb_pair_judge(NULL, 0, r, NULL, &none); /* with no rows it only checks the rule */
}

static pb_status digests(pb_pair_plan *p, pb_digest_text out[PB_SIDES])
{
    for (int i = 0; i < PB_SIDES; i++) {
        pb_file_digest d;
        PB_TRY(pb_digest_file(&pb_disk_posix, p->path[i], 0, &d));
        out[i] = d.digest;
    }
    return PB_OK;
}

static pb_status absolute(pb_pair_plan *p)
{
    for (int i = 0; i < PB_SIDES; i++) {
        char *real = realpath(p->path[i], NULL);
        if (!real) return pb_fail_errno(errno, "%s", p->path[i]);
        const int n = snprintf(p->path[i], sizeof p->path[i], "%s", real);
        free(real);
        if (n >= (int)sizeof p->path[i])
            return pb_fail(PB_EINVAL, "%.60s...: the path is too long (%d characters)", p->path[i], n);
        if (access(p->path[i], X_OK) != 0) return pb_fail(PB_EDEVICE, "%s: %s", p->path[i], strerror(errno));
    }
    return PB_OK;
}

/* Removes what a failed comparison created, so that the command can be repeated with the same folder. Cleaning up
 * overwrites the error message, so the message of failure `s` is saved and set again. */
static void drop_plan(const char *dir, pb_status s)
{
    char path[PB_PATH_TEXT + 64], why[512];
    snprintf(why, sizeof why, "%s", pb_error());
    snprintf(path, sizeof path, "%s/compare.json", dir);
    unlink(path);
    rmdir(dir); /* fails, harmlessly, when the folder holds other files */
    pb_fail(s, "%s", why);
}

/* Fills in what --dry-run needs too: the rule, the paths, the digests and the time slice. begin() adds the rest. */
static pb_status make_plan(const pb_options *o, pb_pair_plan *p)
{
    const bool cpu = strcmp(o->device, "cpu") == 0;
    if (!o->suite) return pb_fail(PB_EINVAL, "no suite is given: --suite NAME, a suite that both executables have");
    PB_TRY(set_rule(o, &p->rule));
    PB_TRY(absolute(p));
    PB_TRY(digests(p, p->digest));
    p->pairs_given = o->pairs > 0 || o->max_pairs > 0;
    p->slowdown = o->inject_slowdown > 0 ? o->inject_slowdown : 0;
    p->time_slice = o->time_slice >= 0 ? o->time_slice : cpu ? default_time_slice : 0;
    const bool moved = cpu && o->min_effect < 0 && !pb_digest_equal(&p->digest[PB_BASE], &p->digest[PB_CAND]);
    p->kernel_effect = moved ? layout_effect : 0;
    return PB_OK;
}

static pb_status begin(const pb_options *o, pb_run_name *name, pb_pair_plan *p, pb_pair_folder *f)
{
    PB_TRY(make_plan(o, p));
    pb_run_name_new("compare", o->out, name);
    p->seed = o->seed >= 0 ? (uint64_t)o->seed : name->mark & 0xffffff;
    snprintf(p->run_id, sizeof p->run_id, "%s", name->run_id);
    p->options = options_of(o);
    if (!p->options) return pb_fail(PB_EINVAL, "an option is not valid UTF-8");
    PB_TRY(pb_run_make_folder(name->dir));
    PB_TRY(pb_pair_plan_write(name->dir, name->time_utc, p));
    const pb_status s = pb_pair_folder_create(name->dir, f);
    if (s != PB_OK) drop_plan(name->dir, s);
    return s;
}

/* ---- resuming a comparison --------------------------------------------------------------------------------- */

static const char *given(const pb_options *o)
{
    if (o->suite) return "--suite";
    if (o->filter.n) return "--filter";
    if (o->axis.n) return "--axis";
    if (o->inject_slowdown >= 0) return "--inject-slowdown";
    if (o->time_slice >= 0) return "--time-slice";
    if (strcmp(o->device, "cpu") != 0) return "--device";
    if (strcmp(o->grid, "default") != 0) return "--grid";
    if (o->impl || o->prefer) return "--impl and --prefer";
    if (o->ceilings) return "--ceilings";
    if (o->case_timeout >= 0) return "--case-timeout";
    if (o->samples > 0 || o->warmup > 0 || o->min_time >= 0 || o->threads > 0)
        return "--samples, --warmup, --min-time and --threads";
    return o->seed >= 0 ? "--seed" : o->out ? "--out" : NULL;
}

static const char *rule_given(const pb_options *o)
{
    if (o->pairs > 0 || o->max_pairs > 0) return "--pairs";
    if (o->must_find >= 0) return "--must-find";
    return o->alpha >= 0 ? "--alpha" : o->min_effect >= 0 ? "--min-effect" : NULL;
}

/* Checks that the options in compare.json are pairs of an option of `bench run` and its value, as options_of() writes
 * them. The file may have been edited. */
static pb_status check_options(const char *dir, const json_t *options)
{
    char *words[2 * PB_OPTION_LIST], why[256];
    const size_t n = json_array_size(options);
    pb_options parsed;
    pb_status s = n % 2 || n > 2 * PB_OPTION_LIST
                      ? pb_fail(PB_EINVAL, "%zu words are too many, or an option has no value", n)
                      : PB_OK;
    for (size_t i = 0; i < n && s == PB_OK; i++) {
        const char *word = json_string_value(json_array_get(options, i));
        memcpy(&words[i], &word, sizeof word); /* argv is not const, but it is never written to */
        if (i % 2 == 0 && (strncmp(word, "--", 2) != 0 || !word[2] || strchr(word, '=')))
            s = pb_fail(PB_EINVAL, "'%s' is not an option", word);
    }
    if (s == PB_OK) s = pb_options_parse_stored(PB_COMMAND_run, (int)n, words, &parsed);
    if (s == PB_OK && parsed.args.n) s = pb_fail(PB_EINVAL, "'%s' is not an option", parsed.args.v[0]);
    if (s == PB_OK) s = pb_options_select_device(&parsed);
    if (s == PB_OK) return PB_OK;
    snprintf(why, sizeof why, "%s", pb_error());
    return pb_fail(s, "%.200s/compare.json: options: %s", dir, why);
}

static pb_status go_on(const pb_options *o, pb_pair_plan *p, pb_pair_folder *f)
{
    pb_digest_text now[PB_SIDES];
    const char *other = given(o) ? given(o) : rule_given(o);
    if (other) return pb_fail(PB_EINVAL, "a comparison that is resumed keeps its %s", other);
    PB_TRY(pb_pair_plan_read(o->resume, p));
    PB_TRY(check_options(o->resume, p->options));
    PB_TRY(set_rule(o, &p->rule));
    PB_TRY(digests(p, now));
    for (int i = 0; i < PB_SIDES; i++)
        if (!pb_digest_equal(&now[i], &p->digest[i]))
            return pb_fail(PB_EINVAL, "--resume %.200s: the executable %.300s has changed since the comparison began",
                           o->resume, p->path[i]);
    return pb_pair_folder_resume(o->resume, f);
}

/* ---- measuring and judging --------------------------------------------------------------------------------- */

static pb_compare_opts compare_opts(const pb_options *o)
{
    return (pb_compare_opts){.strict = o->strict,
                             .need_verdict = o->bisect,
                             .allow_mismatch = o->allow_mismatch,
                             .baselines = o->baseline,
                             .all = o->all,
                             .format = o->format};
}

static pb_status read_gates(const pb_options *o, pb_gates *out)
{
    char path[PB_PATH_TEXT];
    snprintf(path, sizeof path, "%.900s/gates.csv", o->baseline);
    return pb_gates_read_for_pairs(o->gates ? o->gates : path, out);
}

static pb_exit judge(const pb_options *o, const pb_pair_folder *f, const pb_pair_plan *p, const pb_gates *gates,
                     const char *note)
{
    pb_pair_judgement j;
    pb_exit code = PB_EXIT_OK;
    const pb_compare_opts opts = compare_opts(o);
    pb_status s = pb_pair_judge_folder(f, p, gates, o->allow_mismatch, &j);
    if (s != PB_OK) return pb_complain_of(s);
    s = pb_pair_report_show(&j, f, p, &(pb_pair_report_opts){&opts, o->explain, note}, stdout, &code);
    pb_pair_judgement_free(&j);
    return s == PB_OK ? code : pb_complain_of(s);
}

static pb_exit measure(const pb_options *o, pb_pair_folder *f, pb_pair_plan *p, const pb_gates *gates)
{
    bool late = false;
    if (!o->quiet) pb_pair_plan_print(p, "bench: planned: ", stderr);
    pb_pair_plan_warn(p, stderr);
    pb_exit code = PB_EXIT_OK;
    char note[2 * PB_PATH_TEXT];
    const pb_pair_run r = {f, p, gates, o->allow_mismatch, o->quiet, o->budget};
    if (pb_pair_run_all(&r, &late, &code) != PB_OK) return pb_complain(PB_EXIT_HARNESS);
    snprintf(note, sizeof note, "%s after %d pair%s; bench compare --resume %s continues",
             late ? "the budget is used up" : "interrupted", f->pairs, f->pairs == 1 ? "" : "s", f->dir);
    if (late || pb_interrupted()) fprintf(stderr, "bench: %s\n", note);
    return code == PB_EXIT_OK ? judge(o, f, p, gates, late ? note : NULL) : code;
}

/* --dry-run: prints the plan. */
static pb_exit show_plan(const pb_options *o, pb_pair_plan *p)
{
    const pb_status s = o->resume ? pb_pair_plan_read(o->resume, p) : make_plan(o, p);
    if (s != PB_OK) return pb_complain_of(s);
    printf("base       %s\ncandidate  %s\n", p->path[PB_BASE], p->path[PB_CAND]);
    pb_pair_plan_print(p, "", stdout);
    if (o->budget >= 0 && !p->pairs_given)
        printf("the budget of %g s may reduce this to one look, once the first pair shows how long a pair takes\n",
               o->budget);
    pb_pair_plan_warn(p, stdout);
    return PB_EXIT_OK;
}

static pb_exit compare(const pb_options *o, pb_pair_plan *p)
{
    if (o->dry_run) return show_plan(o, p);
    pb_gates gates;
    pb_run_name name;
    pb_pair_folder f = {.lock = -1};
    pb_status s = read_gates(o, &gates);
    if (s != PB_OK) return pb_complain_of(s);
    pb_interrupt_watch();
    s = o->resume ? go_on(o, p, &f) : begin(o, &name, p, &f);
    const pb_exit code = s == PB_OK ? measure(o, &f, p, &gates) : pb_complain_of(s);
    pb_pair_folder_close(&f);
    return code;
}

/* Judges recorded pairs again. Options may change the rule, such as --alpha, but not what was measured. */
static pb_exit judge_again(const pb_options *o, const char *dir)
{
    pb_gates gates;
    pb_pair_plan p = {0};
    pb_pair_folder f = {.lock = -1};
    pb_status s = pb_pair_plan_read(dir, &p);
    if (s == PB_OK) s = set_rule(o, &p.rule);
    if (o->min_effect >= 0) p.kernel_effect = 0;
    if (s == PB_OK) s = pb_pair_folder_look(dir, &f);
    if (s == PB_OK) s = read_gates(o, &gates);
    const pb_exit code = s == PB_OK ? judge(o, &f, &p, &gates, NULL) : pb_complain_of(s);
    pb_pair_plan_free(&p);
    return code;
}

static pb_exit refuse(const char *fmt, const char *what)
{
    pb_fail(PB_EINVAL, fmt, what);
    return pb_complain(PB_EXIT_USAGE);
}

static pb_exit refuse_mixture(const pb_options *o, const kind is[PB_SIDES])
{
    if (o->args.n == 1) return refuse("compare %.200s: the second side is missing: CAND, or --self", o->args.v[0]);
    pb_fail(PB_EINVAL, "compare needs two executables or two results: %.200s is %s, %.200s is %s", o->args.v[0],
            kinds[is[0]], o->args.v[1], kinds[is[1]]);
    return pb_complain(PB_EXIT_USAGE);
}

static pb_exit compare_with_itself(const pb_options *o, pb_pair_plan *p)
{
    if (o->args.n > 1)
        return refuse("--self takes at most one executable; without one, bench is compared with %s", "itself");
    if (o->args.n == 1 && kind_of(o->args.v[0], p->path[0]) != EXECUTABLE)
        return refuse("--self: %.200s is not an executable", o->args.v[0]);
    if (!o->args.n) snprintf(p->path[0], sizeof p->path[0], "/proc/self/exe");
    memcpy(p->path[1], p->path[0], sizeof p->path[0]);
    return compare(o, p);
}

/* Measures both executables in pairs, or resumes such a comparison. */
static pb_exit process_pairs(const pb_options *o, pb_pair_plan *p)
{
    const char *other = o->require_baseline ? "--require-baseline"
                        : o->subset         ? "--subset"
                        : o->confirmed      ? "--confirmed"
                                            : NULL;
    if (other) return refuse("%s applies only to stored results, not to executables", other);
    if (o->resume && (o->args.n || o->self)) return refuse("--resume takes no BASE and CAND, and no %s", "--self");
    /* Passed on in the environment, because an older executable does not know the option. */
    const char *machine;
    if (pb_host_name(o->machine, &machine) != PB_OK) return pb_complain(PB_EXIT_USAGE);
    if (machine) setenv("PB_MACHINE", machine, 1);
    return o->self ? compare_with_itself(o, p) : compare(o, p);
}

/* Finds the first argument that names nothing that exists. */
static bool is_missing(const pb_options *o, int *i)
{
    for (*i = 0; *i < o->args.n; ++*i)
        if (access(o->args.v[*i], F_OK) != 0) return true;
    return false;
}

bool pb_compare_pairs(const pb_options *o, pb_exit *code)
{
    int missing;
    pb_pair_plan p = {.rule = PB_PAIR_DEFAULTS};
    kind is[PB_SIDES] = {RESULTS, RESULTS};
    const char *only_rule = rule_given(o), *only_processes = given(o);
    for (int i = 0; i < o->args.n && i < PB_SIDES; i++) is[i] = kind_of(o->args.v[i], p.path[i]);
    if (!only_processes && o->budget >= 0) only_processes = "--budget";
    if (!only_processes && o->dry_run) only_processes = "--dry-run";
    const bool recorded = is[0] == PAIRS && o->args.n == 1;
    if (o->self || o->resume || (is[0] == EXECUTABLE && is[1] == EXECUTABLE)) *code = process_pairs(o, &p);
    else if (is[0] == EXECUTABLE || is[1] == EXECUTABLE) *code = refuse_mixture(o, is);
    else if (only_processes && is_missing(o, &missing))
        *code = refuse("%.400s: No such file or directory", o->args.v[missing]);
    else if (only_processes) *code = refuse("%s applies only to a comparison of executables", only_processes);
    else if (recorded) *code = judge_again(o, o->args.v[0]);
    else if (only_rule) *code = refuse("%s applies only to executables and to recorded pairs", only_rule);
    else return false;
    pb_pair_plan_free(&p);
    return true;
}
