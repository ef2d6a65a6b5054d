/* options.c - the command line, parsed by the table of options.def. */
#include "bench/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/hint.h"
#include "bench/tables.h"

const pb_command_info pb_commands[PB_NCOMMANDS] = {
#define COMMAND(name, arguments, what) {#name, arguments, what},
#include "bench/commands.def"
#undef COMMAND
};

const pb_option_info pb_option_table[] = {
#define OPT(type, name, letter, argument, deflt, commands, help)                                                       \
    {#type, #name, argument, deflt, help, commands, letter, offsetof(pb_options, name)},
#include "bench/options.def"
#undef OPT
    {0},
};

void pb_option_text(const pb_option_info *i, char *out, size_t n)
{
    snprintf(out, n, "--%s", i->name);
    for (char *c = out; *c; c++)
        if (*c == '_') *c = '-';
}

pb_status pb_command_find(const char *name, pb_command *out)
{
    pb_hint hint = {.word = name};
    for (int i = 0; i < PB_NCOMMANDS; i++) {
        if (strcmp(pb_commands[i].name, name) == 0) {
            *out = (pb_command)i;
            return PB_OK;
        }
        pb_hint_try(&hint, pb_commands[i].name);
    }
    return pb_fail(PB_EINVAL, "there is no command '%.60s'%s", name, pb_hint_text(&hint));
}

/* ---- values: one function a type of options.def ------------------------------------------------- */

typedef struct slot {
    const pb_option_info *info;
    const char *name; /* as typed: "--launches" or "-n" */
    void *field;
} slot;

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

static pb_status set_choice(const slot *s, const char *value)
{
    char word[PB_AXIS_TEXT];
    const char *rest = s->info->argument;
    pb_hint hint = {.word = value};
    while ((rest = pb_next_item(rest, '|', word, sizeof word))) {
        if (strcmp(word, value) == 0) return set_text(s, value);
        pb_hint_try(&hint, word);
    }
    return pb_fail(PB_EINVAL, "%s %.60s: need one of %s%s", s->name, value, s->info->argument, pb_hint_text(&hint));
}

static pb_status set_number(const slot *s, const char *value, long least)
{
    char *end;
    errno = 0;
    long v = strtol(value, &end, 10);
    if (end == value || *end || errno || v < least)
        return pb_fail(PB_EINVAL, "%s %.60s: need a whole number from %ld", s->name, value, least);
    *(long *)s->field = v;
    return PB_OK;
}
static pb_status set_count(const slot *s, const char *value) { return set_number(s, value, 1); }
static pb_status set_whole(const slot *s, const char *value) { return set_number(s, value, 0); }

static pb_status set_seconds(const slot *s, const char *value)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end || !(v >= 0) || !isfinite(v))
        return pb_fail(PB_EINVAL, "%s %.60s: need a number of seconds from 0", s->name, value);
    *(double *)s->field = v;
    return PB_OK;
}

static pb_status set_list(const slot *s, const char *value)
{
    pb_words *w = s->field;
    if (w->n == PB_OPTION_LIST) return pb_fail(PB_EINVAL, "%s: at most %d times", s->name, PB_OPTION_LIST);
    w->v[w->n++] = value;
    return PB_OK;
}

static pb_status add_axis(pb_axis_list *list, const char *name, size_t n, const char *values)
{
    if (list->n == PB_OPTION_LIST) return pb_fail(PB_EINVAL, "more than %d axes", PB_OPTION_LIST);
    if (!n || n >= PB_AXIS_TEXT || !*values) return pb_fail(PB_EINVAL, "axis %.60s: need NAME=V1,V2", name);
    pb_axis_values *a = &list->v[list->n++];
    memcpy(a->name, name, n);
    a->name[n] = 0;
    a->values = values;
    return PB_OK;
}

static pb_status set_axis(const slot *s, const char *value)
{
    size_t n = strcspn(value, "=");
    return add_axis(s->field, value, n, value[n] ? value + n + 1 : "");
}

static pb_status set(const slot *s, const char *value)
{
    static const struct {
        const char *type;
        pb_status (*set)(const slot *s, const char *value);
    } types[] = {{"flag", set_flag},   {"text", set_text},       {"choice", set_choice}, {"count", set_count},
                 {"whole", set_whole}, {"seconds", set_seconds}, {"list", set_list},     {"axis", set_axis}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, s->info->type) == 0) return types[i].set(s, value);
    return pb_fail(PB_EINVAL, "%s: options.def has no type %s", s->name, s->info->type);
}

/* ---- words of the command line ------------------------------------------------------------------- */

typedef struct reader {
    pb_options *o;
    int at;
} reader;

static bool axis_of_some_suite(const char *name, size_t n)
{
    char item[2 * PB_AXIS_TEXT];
    for (const pb_suite *const *s = pb_suites; *s; s++)
        for (const char *rest = (*s)->axes; (rest = pb_next_item(rest, ' ', item, sizeof item));)
            if (strcspn(item, "=") == n && strncmp(item, name, n) == 0) return true;
    return false;
}

static void try_axes(pb_hint *hint)
{
    char item[2 * PB_AXIS_TEXT], text[2 * PB_AXIS_TEXT + 2];
    for (const pb_suite *const *s = pb_suites; *s; s++)
        for (const char *rest = (*s)->axes; (rest = pb_next_item(rest, ' ', item, sizeof item));) {
            snprintf(text, sizeof text, "--%.*s", (int)strcspn(item, "="), item);
            pb_hint_try(hint, text);
        }
}

static pb_status unknown(const pb_options *o, const char *typed, size_t n)
{
    char word[PB_AXIS_TEXT], text[PB_AXIS_TEXT];
    snprintf(word, sizeof word, "%.*s", (int)n, typed);
    pb_hint hint = {.word = word};
    for (const pb_option_info *i = pb_option_table; i->name; i++)
        if (i->help && i->commands & (1u << o->command)) {
            pb_option_text(i, text, sizeof text);
            pb_hint_try(&hint, text);
        }
    if (o->command == PB_COMMAND_run) try_axes(&hint);
    return pb_fail(PB_EINVAL, "%s has no option '%s'%s", pb_commands[o->command].name, word, pb_hint_text(&hint));
}

/* The option's value: what follows "=" or the letter, else the next word. */
static pb_status value_of(reader *r, const char *name, const char *attached, const char **out)
{
    if (!attached && r->at + 1 >= r->o->argc) return pb_fail(PB_EINVAL, "%.60s: its value is missing", name);
    *out = attached ? attached : r->o->argv[++r->at];
    return PB_OK;
}

static pb_status take(reader *r, const pb_option_info *i, const char *name, const char *attached)
{
    slot s = {i, name, (char *)r->o + i->field};
    const char *value = NULL;
    if (i->argument) PB_TRY(value_of(r, name, attached, &value));
    else if (attached) return pb_fail(PB_EINVAL, "%s takes no value", name);
    return set(&s, value);
}

static pb_status long_option(reader *r, const char *arg)
{
    size_t n = strcspn(arg, "=");
    const char *attached = arg[n] ? arg + n + 1 : NULL, *value = NULL;
    char text[PB_AXIS_TEXT];
    for (const pb_option_info *i = pb_option_table; i->name; i++) {
        pb_option_text(i, text, sizeof text);
        if (strlen(text) == n && strncmp(text, arg, n) == 0 && i->commands & (1u << r->o->command))
            return take(r, i, text, attached);
    }
    if (r->o->command != PB_COMMAND_run || !axis_of_some_suite(arg + 2, n - 2)) return unknown(r->o, arg, n);
    PB_TRY(value_of(r, arg, attached, &value));
    return add_axis(&r->o->axis, arg + 2, n - 2, value);
}

static pb_status short_options(reader *r, const char *arg)
{
    for (const char *c = arg + 1; *c; c++) {
        const char name[] = {'-', *c, 0};
        const pb_option_info *i = pb_option_table;
        while (i->name && (i->letter != *c || !(i->commands & (1u << r->o->command)))) i++;
        if (!i->name) return unknown(r->o, arg, strlen(arg));
        if (i->argument) return take(r, i, name, c[1] ? c + 1 : NULL);
        PB_TRY(take(r, i, name, NULL));
    }
    return PB_OK;
}

static pb_status defaults(pb_options *o)
{
    for (const pb_option_info *i = pb_option_table; i->name; i++) {
        slot s = {i, i->name, (char *)o + i->field};
        if (strcmp(i->type, "count") == 0 || strcmp(i->type, "whole") == 0) *(long *)s.field = -1;
        if (strcmp(i->type, "seconds") == 0) *(double *)s.field = -1;
        if (i->deflt) PB_TRY(set(&s, i->deflt));
    }
    return PB_OK;
}

pb_status pb_options_parse(pb_command command, int argc, char **argv, pb_options *o)
{
    bool plain = false; /* after -- */
    *o = (pb_options){.command = command, .argc = argc, .argv = argv};
    PB_TRY(defaults(o));
    for (reader r = {o, 0}; r.at < argc; r.at++) {
        const char *arg = argv[r.at];
        if (!plain && strcmp(arg, "--") == 0) plain = true;
        else if (!plain && strncmp(arg, "--", 2) == 0) PB_TRY(long_option(&r, arg));
        else if (!plain && arg[0] == '-' && arg[1]) PB_TRY(short_options(&r, arg));
        else if (o->nargs == PB_OPTION_LIST) return pb_fail(PB_EINVAL, "more than %d arguments", PB_OPTION_LIST);
        else o->args[o->nargs++] = arg;
    }
    return PB_OK;
}
