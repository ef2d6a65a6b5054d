/* command_line.c - the tables of commands and options, and two additions of bench to the parser: axes of suites are
 * options, and the types `axis` and `share`. */
#include "bench/options/command_line.h"

#include <stdlib.h>
#include <string.h>

#include "bench/exchange/exchange.h"
#include "bench/rows/rows.h"
#include "bench/suites/suites.h"
#include "os/text.h"

static const pb_command_info commands[] = {
#define COMMAND(name, arguments, what) {#name, arguments, what},
#include "bench/options/commands.def"
#undef COMMAND
    {0},
};

static const pb_option_info options[] = {
#define OPT(name, type, letter, argument, deflt, commands, help)                                                       \
    {#type, #name, argument, deflt, help, commands, letter, offsetof(pb_options, name)},
#include "bench/options/options.def"
#undef OPT
    {0},
};

static pb_status add_axis(pb_axis_list *list, const char *name, size_t n, const char *values)
{
    if (list->n == PB_OPTION_LIST) return pb_fail(PB_EINVAL, "more than %d axes", PB_OPTION_LIST);
    if (!n || n >= PB_AXIS_TEXT || !*values) return pb_fail(PB_EINVAL, "axis %.60s: need NAME=V1,V2", name);
    if (pb_has_empty_item(values, ','))
        return pb_fail(PB_EINVAL, "axis %.*s: '%.60s' has an empty value", (int)n, name, values);
    pb_axis_values *a = &list->v[list->n++];
    snprintf(a->name, sizeof a->name, "%.*s", (int)n, name);
    const char *present = pb_renamed_axis(a->name);
    if (present != a->name) snprintf(a->name, sizeof a->name, "%s", present);
    a->values = values;
    return PB_OK;
}

static pb_status set_axis(void *field, const char *name, const char *value)
{
    const size_t n = strcspn(value, "=");
    (void)name;
    return add_axis(field, value, n, value[n] ? value + n + 1 : "");
}

/* Parses a share: 0.02 and 2% both store 0.02. Of 2 it is not clear whether 2 % or 200 % is meant. */
static pb_status set_share(void *field, const char *name, const char *value)
{
    char *end;
    const double v = strtod(value, &end), scale = *end == '%' ? 0.01 : 1;
    if (end == value || (*end && strcmp(end, "%") != 0) || !(v >= 0 && v * scale <= 100))
        return pb_fail(PB_EINVAL, "%s %.60s: need a share such as 2%% or 0.02", name, value);
    if (v >= 1 && !*end)
        return pb_fail(PB_EINVAL, "%s %.60s: %g%% or %g%%? Give a share of 1 or more in percent", name, value, v,
                       100 * v);
    *(double *)field = v * scale;
    return PB_OK;
}

/* Returns the name of the i-th axis that is an option of the command, or NULL after the last one: of run, compare and
 * bisect-backends the axes of all suites, of project the axis to which it projects. An entry of `axes` is
 * "name=default". The result is valid until the next call of this thread. */
static const char *axis_name(int command, int i)
{
    static _Thread_local char item[2 * PB_AXIS_TEXT];
    if (command == PB_COMMAND_project) return i == 0 ? "ranks" : NULL;
    if (command != PB_COMMAND_run && command != PB_COMMAND_compare && command != PB_COMMAND_bisect_backends)
        return NULL;
    for (const pb_suite *const *s = pb_suites; *s; s++)
        for (const char *rest = (*s)->axes; (rest = pb_next_item(rest, ' ', item, sizeof item));)
            if (i-- == 0) {
                item[strcspn(item, "=")] = 0;
                return item;
            }
    return NULL;
}

static bool is_axis(int command, const char *name, size_t n)
{
    char typed[PB_AXIS_TEXT];
    const char *axis;
    if (n >= sizeof typed) return false;
    snprintf(typed, sizeof typed, "%.*s", (int)n, name);
    const char *present = pb_renamed_axis(typed);
    for (int i = 0; (axis = axis_name(command, i)); i++)
        if (strcmp(axis, present) == 0) return true;
    return false;
}

static pb_status set_axis_option(void *fields, const char *name, size_t n, const char *value)
{
    return add_axis(&((pb_options *)fields)->axis, name, n, value);
}

static const char *value_of(const char *option, int i)
{
    if (strcmp(option, "to") == 0) {
        const pb_export_format *f = pb_export_formats;
        while (f->name && i--) f++;
        return f->name;
    }
    if (strcmp(option, "suite") != 0) return NULL;
    const pb_suite *const *s = pb_suites;
    while (*s && i--) s++;
    return *s ? (*s)->name : NULL;
}

/* The names of options and their words in bench_version 1, which are still accepted. */
static const pb_option_alias aliases[] = {
#define RENAMED_OPTION(was, is)       {NULL, #was, #is},
#define RENAMED_WORD(option, was, is) {#option, #was, #is},
#include "bench/rows/renames.def"
    {0},
};

static const pb_option_type types[] = {{"axis", set_axis}, {"share", set_share}, {0}};
static const pb_extra_options axes = {is_axis, set_axis_option, axis_name, value_of};
const pb_cli pb_bench_cli = {"bench", commands, options, types, &axes, aliases};

/* Fails if --format names a format that this command does not write: options.def allows the formats of all commands. */
static pb_status check_format(const pb_options *o)
{
    const char *words = o->command == PB_COMMAND_history   ? "text|csv|svg|otava"
                        : o->command == PB_COMMAND_analyze ? "text|markdown|csv"
                        : o->command == PB_COMMAND_project ? "text|csv"
                                                           : "text|markdown|junit";
    char word[16];
    for (const char *rest = words; (rest = pb_next_item(rest, '|', word, sizeof word));)
        if (!strcmp(word, o->format)) return PB_OK;
    return pb_fail(PB_EINVAL, "--format %s: bench %s writes only %s", o->format, commands[o->command].name, words);
}

typedef pb_status parser(const pb_cli *cli, int command, int argc, char **argv, void *fields, pb_words *args);

static pb_status parse(parser *by, pb_command command, int argc, char **argv, pb_options *o)
{
    pb_words args;
    *o = (pb_options){.command = command, .argc = argc, .argv = argv};
    o->inject_slowdown = o->min_effect = o->alpha = o->must_find = -1; /* -1: not given */
    PB_TRY(by(&pb_bench_cli, (int)command, argc, argv, o, &args));
    o->strict |= o->bisect; /* git bisect must not take an inconclusive comparison for a good commit */
    o->args = args;
    return check_format(o);
}

pb_status pb_options_parse(pb_command command, int argc, char **argv, pb_options *o)
{
    return parse(pb_cli_parse, command, argc, argv, o);
}

pb_status pb_options_parse_stored(pb_command command, int argc, char **argv, pb_options *o)
{
    for (int i = 0; i < argc; i++)
        if (!pb_is_printable(argv[i])) return pb_fail(PB_EINVAL, "a word with control characters: %s", argv[i]);
    PB_TRY(parse(pb_cli_parse_shown, command, argc, argv, o));
    const char *never = o->help ? "--help" : o->dry_run ? "--dry-run" : NULL;
    return never ? pb_fail(PB_EINVAL, "a stored command line cannot have %s", never) : PB_OK;
}
