/* options.c - parses a command line with the program's tables of commands and options. */
#include "cli/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/hint.h"

static void with_hyphens(char *text)
{
    for (char *c = text; *c; c++)
        if (*c == '_') *c = '-';
}

void pb_option_text(const pb_option_info *i, char *out, size_t n)
{
    snprintf(out, n, "--%s", i->name);
    with_hyphens(out);
}

const char *pb_command_text(const pb_command_info *c, char out[PB_OPTION_TEXT])
{
    snprintf(out, PB_OPTION_TEXT, "%s", c->name);
    with_hyphens(out);
    return out;
}

pb_status pb_cli_command(const pb_cli *cli, const char *name, int *out)
{
    pb_hint hint = {.word = name};
    char text[PB_OPTION_TEXT];
    for (int i = 0; cli->commands[i].name; i++) {
        if (strcmp(pb_command_text(&cli->commands[i], text), name) == 0) {
            *out = i;
            return PB_OK;
        }
        pb_hint_try(&hint, text);
    }
    return pb_fail(PB_EINVAL, "'%.60s' is not a command%s", name, pb_hint_text(&hint));
}

/* ---- storing an option's value: one function per option type -------------------------------------- */

typedef struct slot {
    const pb_option_info *info;
    const char *name; /* the option as the user typed it: "--steps" or "-n" */
    void *field;
} slot;

/* Returns the current spelling of `word` if the table of aliases lists `word` as an old one, else `word`. option NULL:
 * `word` is the name of an option; otherwise it is a value of the choice option `option`. */
static const char *present(const pb_cli *cli, const char *option, const char *word)
{
    for (const pb_option_alias *a = cli->aliases; a && a->was; a++)
        if (strcmp(a->was, word) == 0 && (option ? a->option && strcmp(a->option, option) == 0 : !a->option))
            return a->is;
    return word;
}

static pb_status set_flag(const slot *s, const char *value)
{
    (void)value;
    *(bool *)s->field = true;
    return PB_OK;
}

static pb_status set_text(const slot *s, const char *value)
{
    if (!*value) return pb_fail(PB_EINVAL, "%s: need %s", s->name, s->info->argument);
    *(const char **)s->field = value;
    return PB_OK;
}

/* True if `rest` is what may follow NAME of the word NAME[:N]: nothing, or a colon and a number of at most five
 * digits. */
static bool is_number_part(const char *rest)
{
    const size_t digits = *rest == ':' ? strspn(rest + 1, "0123456789") : 0;
    return !*rest || (digits > 0 && digits < 6 && !rest[1 + digits]);
}

static pb_status set_choice(const slot *s, const char *value)
{
    char word[PB_OPTION_TEXT];
    const char *rest = s->info->argument;
    pb_hint hint = {.word = value};
    while ((rest = pb_next_item(rest, '|', word, sizeof word))) {
        char *numbered = strstr(word, PB_NUMBERED);
        if (numbered) *numbered = 0;
        const size_t n = strlen(word);
        if (strncmp(word, value, n) == 0 && (numbered ? is_number_part(value + n) : !value[n]))
            return set_text(s, value);
        pb_hint_try(&hint, word);
    }
    return pb_fail(PB_EINVAL, "%s %.60s: need one of %s%s", s->name, value, s->info->argument, pb_hint_text(&hint));
}

static pb_status set_integer(const slot *s, const char *value, long least)
{
    char *end;
    errno = 0;
    long v = strtol(value, &end, 10);
    if (end == value || *end || errno || v < least)
        return pb_fail(PB_EINVAL, "%s %.60s: need a whole number from %ld", s->name, value, least);
    *(long *)s->field = v;
    return PB_OK;
}
static pb_status set_count(const slot *s, const char *value) { return set_integer(s, value, 1); }
static pb_status set_whole(const slot *s, const char *value) { return set_integer(s, value, 0); }

static pb_status set_number(const slot *s, const char *value)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || !isfinite(v)) return pb_fail(PB_EINVAL, "%s %.60s: need a number", s->name, value);
    *(double *)s->field = v;
    return PB_OK;
}

static pb_status set_seconds(const slot *s, const char *value)
{
    static const char units[] = "smh";
    static const double seconds[] = {1, 60, 3600};
    char *end;
    const double v = strtod(value, &end);
    const char *unit = *end && !end[1] ? strchr(units, *end) : NULL;
    if (end == value || (*end && !unit) || !isfinite(v) || v < 0)
        return pb_fail(PB_EINVAL, "%s %.60s: need a number of seconds from 0, or one with m or h", s->name, value);
    *(double *)s->field = v * (unit ? seconds[unit - units] : 1);
    return PB_OK;
}

static pb_status set_list(const slot *s, const char *value)
{
    pb_words *w = s->field;
    if (w->n == PB_OPTION_LIST) return pb_fail(PB_EINVAL, "%s is given more than %d times", s->name, PB_OPTION_LIST);
    w->v[w->n++] = value;
    return PB_OK;
}

static pb_status set(const pb_cli *cli, const slot *s, const char *value)
{
    static const struct {
        const char *type;
        pb_status (*set)(const slot *s, const char *value);
    } types[] = {{"flag", set_flag},   {"text", set_text},     {"choice", set_choice},   {"count", set_count},
                 {"whole", set_whole}, {"number", set_number}, {"seconds", set_seconds}, {"list", set_list}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, s->info->type) == 0) return types[i].set(s, value);
    for (const pb_option_type *t = cli->types; t && t->name; t++)
        if (strcmp(t->name, s->info->type) == 0) return t->set(s->field, s->name, value);
    return pb_fail(PB_EINVAL, "option %s has the unknown type %s", s->name, s->info->type);
}

/* ---- parsing the words of a command line ------------------------------------------------------------ */

typedef struct reader {
    const pb_cli *cli;
    int command, argc, at;
    char **argv;
    void *fields;
    bool shown_only; /* true: internal options (those without help) are rejected as unknown */
} reader;

static bool belongs(const pb_option_info *i, int command) { return i->commands & 1u << command; }

static pb_status unknown(const reader *r, const char *typed, size_t n)
{
    char word[PB_OPTION_TEXT], text[PB_OPTION_TEXT];
    const char *name;
    snprintf(word, sizeof word, "%.*s", (int)n, typed);
    pb_hint hint = {.word = word};
    for (const pb_option_info *i = r->cli->options; i->name; i++)
        if (i->help && belongs(i, r->command)) {
            pb_option_text(i, text, sizeof text);
            pb_hint_try(&hint, text);
        }
    for (int i = 0; r->cli->extra && (name = r->cli->extra->each(r->command, i)); i++) {
        snprintf(text, sizeof text, "--%s", name);
        pb_hint_try(&hint, text);
    }
    return pb_fail(PB_EINVAL, "%s has no option '%s'%s", pb_command_text(&r->cli->commands[r->command], text), word,
                   pb_hint_text(&hint));
}

/* Returns the value of an option in *out. `attached`: the text after "=" or after the letter of a short option; NULL:
 * the value is the next word of the command line. */
static pb_status value_of(reader *r, const char *name, const char *attached, const char **out)
{
    if (!attached && r->at + 1 >= r->argc) return pb_fail(PB_EINVAL, "option %.60s needs a value", name);
    *out = attached ? attached : r->argv[++r->at];
    return PB_OK;
}

static pb_status take(reader *r, const pb_option_info *i, const char *name, const char *attached)
{
    const slot s = {i, name, (char *)r->fields + i->field};
    const char *value = "";
    if (i->argument) PB_TRY(value_of(r, name, attached, &value));
    else if (attached) return pb_fail(PB_EINVAL, "option %s takes no value", name);
    return set(r->cli, &s, strcmp(i->type, "choice") == 0 ? present(r->cli, i->name, value) : value);
}

/* Converts a long option's name (`arg`, n bytes), such as "--min-time", to its name in the table of options, such as
 * min_time: removes the leading dashes, replaces "-" by "_", and replaces an old spelling by the current one. */
static const char *name_typed(const pb_cli *cli, const char *arg, size_t n, char out[PB_OPTION_TEXT])
{
    snprintf(out, PB_OPTION_TEXT, "%.*s", (int)n - 2, arg + 2);
    if (strchr(out, '_')) return ""; /* options are typed with "-" */
    for (char *c = out; *c; c++)
        if (*c == '-') *c = '_';
    return present(cli, NULL, out);
}

static pb_status long_option(reader *r, const char *arg)
{
    const pb_extra_options *extra = r->cli->extra;
    size_t n = strcspn(arg, "=");
    const char *attached = arg[n] ? arg + n + 1 : NULL, *value = NULL;
    char text[PB_OPTION_TEXT], typed[PB_OPTION_TEXT];
    const char *name = n < PB_OPTION_TEXT ? name_typed(r->cli, arg, n, typed) : "";
    for (const pb_option_info *i = r->cli->options; i->name; i++)
        if (strcmp(i->name, name) == 0 && belongs(i, r->command) && (i->help || !r->shown_only)) {
            pb_option_text(i, text, sizeof text);
            return take(r, i, text, attached);
        }
    if (!extra || !extra->known(r->command, arg + 2, n - 2)) return unknown(r, arg, n);
    PB_TRY(value_of(r, arg, attached, &value));
    return extra->set(r->fields, arg + 2, n - 2, value);
}

static pb_status short_options(reader *r, const char *arg)
{
    for (const char *c = arg + 1; *c; c++) {
        const char name[] = {'-', *c, 0};
        const pb_option_info *i = r->cli->options;
        while (i->name && (i->letter != *c || !belongs(i, r->command))) i++;
        if (!i->name) return unknown(r, arg, strlen(arg));
        if (i->argument) return take(r, i, name, c[1] ? c + 1 : NULL);
        PB_TRY(take(r, i, name, NULL));
    }
    return PB_OK;
}

static pb_status defaults(const pb_cli *cli, void *fields)
{
    for (const pb_option_info *i = cli->options; i->name; i++) {
        const slot s = {i, i->name, (char *)fields + i->field};
        if (strcmp(i->type, "count") == 0 || strcmp(i->type, "whole") == 0) *(long *)s.field = -1;
        if (strcmp(i->type, "seconds") == 0) *(double *)s.field = -1;
        if (strcmp(i->type, "number") == 0) *(double *)s.field = (double)NAN;
        if (i->deflt) PB_TRY(set(cli, &s, i->deflt));
    }
    return PB_OK;
}

static pb_status parse(reader r, pb_words *args)
{
    bool plain = false; /* true after "--": every word is an argument */
    args->n = 0;
    PB_TRY(defaults(r.cli, r.fields));
    for (; r.at < r.argc; r.at++) {
        const char *arg = r.argv[r.at];
        if (!plain && strcmp(arg, "--") == 0) plain = true;
        else if (!plain && strncmp(arg, "--", 2) == 0) PB_TRY(long_option(&r, arg));
        else if (!plain && arg[0] == '-' && arg[1]) PB_TRY(short_options(&r, arg));
        else if (args->n == PB_OPTION_LIST)
            return pb_fail(PB_EINVAL, "more than %d arguments are given", PB_OPTION_LIST);
        else args->v[args->n++] = arg;
    }
    return PB_OK;
}

pb_status pb_cli_parse(const pb_cli *cli, int command, int argc, char **argv, void *fields, pb_words *args)
{
    return parse((reader){.cli = cli, .command = command, .argc = argc, .argv = argv, .fields = fields}, args);
}

pb_status pb_cli_parse_shown(const pb_cli *cli, int command, int argc, char **argv, void *fields, pb_words *args)
{
    const reader r = {cli, command, argc, 0, argv, fields, .shown_only = true};
    return parse(r, args);
}
