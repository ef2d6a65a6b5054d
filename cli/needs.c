/* needs.c - finds options that would be ignored, because another one is missing or has another value. */
#include "cli/needs.h"

#include <stdlib.h>
#include <string.h>

static const pb_option_info *find(const pb_cli *cli, const char *name)
{
    const pb_option_info *i = cli->options;
    while (i->name && strcmp(i->name, name) != 0) i++;
    return i->name ? i : NULL;
}

static bool is(const pb_option_info *i, const char *type) { return strcmp(i->type, type) == 0; }

static bool same_text(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

static bool changed(const pb_option_info *i, const void *fields)
{
    const void *field = (const char *)fields + i->field;
    if (is(i, "flag")) return *(const bool *)field;
    if (is(i, "list")) return ((const pb_words *)field)->n > 0;
    if (is(i, "text") || is(i, "choice")) return !same_text(*(const char *const *)field, i->deflt);
    if (is(i, "count") || is(i, "whole")) return *(const long *)field != (i->deflt ? strtol(i->deflt, NULL, 10) : -1);
    const double v = *(const double *)field;
    if (!i->deflt) return is(i, "seconds") ? !(v < 0) : v == v; /* not given: -1; a number: NaN */
    return v != strtod(i->deflt, NULL);
}

bool pb_cli_changed(const pb_cli *cli, const void *fields, const char *name)
{
    const pb_option_info *i = find(cli, name);
    return i && changed(i, fields);
}

static bool has_word(const char *words, const char *value)
{
    char word[PB_OPTION_TEXT];
    while ((words = pb_next_item(words, '|', word, sizeof word)))
        if (strcmp(word, value) == 0) return true;
    return false;
}

static bool satisfied(const pb_option_need *need, const pb_option_info *other, const void *fields)
{
    const char *value;
    if (!need->words) return changed(other, fields);
    memcpy(&value, (const char *)fields + other->field, sizeof value);
    return value && has_word(need->words, value);
}

/* Writes an option as it was typed. A text is left out, because it may be long. */
static void typed(const pb_option_info *i, const void *fields, char *out, size_t n)
{
    const void *field = (const char *)fields + i->field;
    pb_option_text(i, out, n);
    const size_t at = strlen(out);
    if (is(i, "choice")) snprintf(out + at, n - at, " %s", *(const char *const *)field);
    else if (is(i, "count") || is(i, "whole")) snprintf(out + at, n - at, " %ld", *(const long *)field);
    else if (is(i, "number") || is(i, "seconds")) snprintf(out + at, n - at, " %g", *(const double *)field);
}

/* Writes the words with "or" between them; without words, what the option takes. */
static void wanted(const pb_option_need *need, const pb_option_info *other, char *out, size_t n)
{
    char word[PB_OPTION_TEXT];
    const char *rest = need->words, *between = "";
    *out = 0;
    if (!rest && other->argument) snprintf(out, n, " %s", other->argument);
    if (rest) snprintf(out, n, " ");
    while (rest && (rest = pb_next_item(rest, '|', word, sizeof word))) {
        const size_t at = strlen(out);
        snprintf(out + at, n - at, "%s%s", between, word);
        between = " or ";
    }
}

pb_status pb_cli_check_needs(const pb_cli *cli, int command, const pb_option_need *needs, const void *fields)
{
    for (const pb_option_need *need = needs; need->option; need++) {
        const pb_option_info *i = find(cli, need->option), *other = find(cli, need->other);
        char given[2 * PB_OPTION_TEXT], name[PB_OPTION_TEXT], words[2 * PB_OPTION_TEXT];
        if (!i || !other)
            return pb_fail(PB_EINVAL, "%s or %s is not an option of %s", need->option, need->other, cli->program);
        if (!(i->commands & other->commands & 1u << command)) continue;
        if (!changed(i, fields) || satisfied(need, other, fields)) continue;
        typed(i, fields, given, sizeof given);
        pb_option_text(other, name, sizeof name);
        wanted(need, other, words, sizeof words);
        return pb_fail(PB_EINVAL, "%s needs %s%s", given, name, words);
    }
    return PB_OK;
}
