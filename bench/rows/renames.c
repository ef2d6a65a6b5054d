/* renames.c - translates names of bench_version 1 into the current ones with the tables of renames.def. */
#include "bench/rows/renames.h"

#include <stdio.h>
#include <string.h>

typedef struct renamed {
    const char *was, *is;
} renamed;

static const renamed columns[] = {
#define RENAMED_COLUMN(was, is) {#was, #is},
#include "bench/rows/renames.def"
    {0},
};
static const renamed metrics[] = {
#define RENAMED_METRIC(was, is) {#was, #is},
#include "bench/rows/renames.def"
    {0},
};
static const renamed axes[] = {
#define RENAMED_AXIS(was, is) {#was, #is},
#include "bench/rows/renames.def"
    {0},
};
static const renamed keys[] = {
#define RENAMED_KEY(was, is) {was, is},
#include "bench/rows/renames.def"
    {0},
};

static const char *present(const renamed *table, const char *name)
{
    for (; table->was; table++)
        if (strcmp(table->was, name) == 0) return table->is;
    return name;
}

const char *pb_renamed_column(const char *name) { return present(columns, name); }
const char *pb_renamed_metric(const char *name) { return present(metrics, name); }
const char *pb_renamed_axis(const char *name) { return present(axes, name); }

/* True if the key begins with `beginning` and that beginning is whole: it ends with '/' or '-', or '?' or the end of
 * the key follows it. */
static bool begins(const char *key, const char *beginning)
{
    const size_t n = strlen(beginning);
    if (strncmp(key, beginning, n) != 0) return false;
    return strchr("/-", beginning[n - 1]) || !key[n] || key[n] == '?';
}

pb_status pb_renamed_key(const char *key, char out[PB_KEY_TEXT])
{
    char text[2 * PB_KEY_TEXT];
    pb_case was, is = {0};
    const renamed *r = keys;
    while (r->was && !begins(key, r->was)) r++;
    snprintf(text, sizeof text, "%s%.*s", r->was ? r->is : "", PB_KEY_TEXT, key + (r->was ? strlen(r->was) : 0));
    PB_TRY(pb_case_parse(text, &was));
    memcpy(is.suite, was.suite, sizeof is.suite), memcpy(is.name, was.name, sizeof is.name);
    for (int i = 0; i < was.n; i++) PB_TRY(pb_case_set(&is, pb_renamed_axis(was.axes[i].name), was.axes[i].value));
    pb_case_finish(&is);
    snprintf(out, PB_KEY_TEXT, "%s", is.key);
    return PB_OK;
}
