/* cmd_list.c - `bench list`: prints the suites, models, metrics, requirements, columns, statuses, formats, kernels
 * and metric groups that exist. */
#include <stdio.h>
#include <string.h>

#include "bench/commands.h"
#include "bench/derived/derived.h"
#include "bench/exchange/exchange.h"
#include "bench/rows/rows.h"
#include "bench/suites/suites.h"
#include "cli/hint.h"
#include "profiles/groups.h"
#include "trainer/model/model.h"

/* The different values that an axis has in the cases added. */
typedef struct axis_values {
    const char *axis;
    char text[PB_GRID_ITEM]; /* separated by commas */
} axis_values;

static pb_status add_value(void *user, const pb_case *c)
{
    axis_values *a = user;
    char word[PB_GRID_ITEM];
    const char *value = pb_case_get(c, a->axis), *rest = a->text;
    const size_t at = strlen(a->text);
    if (!value) return PB_OK;
    while ((rest = pb_next_item(rest, ',', word, sizeof word)))
        if (strcmp(word, value) == 0) return PB_OK;
    if (at + strlen(value) + 2 > sizeof a->text) return pb_fail(PB_EINVAL, "axis %s has too many values", a->axis);
    snprintf(a->text + at, sizeof a->text - at, "%s%s", at ? "," : "", value);
    return PB_OK;
}

/* Prints the suites. The values are those of the default grid on a CPU; the cases of a suite without grid lines are
 * enumerated from its axes. */
static pb_status suites(void)
{
    char item[PB_GRID_ITEM];
    for (const pb_suite *const *s = pb_suites; *s; s++) {
        printf("%-12s %s\n", (*s)->name, (*s)->what);
        for (const char *rest = (*s)->axes; (rest = pb_next_item(rest, ' ', item, sizeof item));) {
            const char *usual = pb_grid_values(item);
            axis_values a = {.axis = item};
            for (const char *const *line = (*s)->enumerate ? NULL : (*s)->grid; line && *line; line++)
                PB_TRY(pb_grid_expand((*s)->name, (*s)->axes, *line, add_value, &a));
            printf("             --%s [%s]\n", item, (*s)->enumerate ? usual : a.text);
        }
    }
    return PB_OK;
}

static void metrics(void)
{
    for (const pb_metric *m = pb_metrics; m->name; m++)
        printf("%-18s %-7s %-7s %s\n", m->name, m->unit, m->better, m->what);
}

/* Prints a line for each requirement with its limit and, indented below it, a line for each case that it judges: the
 * metric, the key, and the case in words. */
static void requirements(void)
{
    for (const pb_requirement *r = pb_requirements; r->id; r++) {
        printf("%-24s %s: %s %s %g; %s\n", r->id, r->statement, r->quantity, r->relation, r->bound, r->where);
        for (const pb_judged_case *c = r->cases; c && c->key; c++)
            printf("    %s %s of %s (%s)\n", r->best == PB_BEST_lowest ? "lowest" : "highest", r->metric, c->key,
                   c->words);
    }
}

static void models(void)
{
    for (const pb_geometry *g = pb_geometries; g->name; g++)
        printf("%-14s %2d layers, width %4d, %2d heads (%d kv) of %3d, hidden %5d, vocabulary %d\n", g->name, g->L,
               g->D, g->H, g->K, g->d, g->I, g->V);
}

static void columns(void)
{
    for (const pb_csv_column *c = pb_columns; c->name; c++) {
        printf("%-14s %-6s %s", c->name, c->type, c->what);
        for (int i = 0; i < PB_ROW_STATUSES && !strcmp(c->type, "status"); i++)
            printf("%s%s", i ? ", " : ": ", pb_row_statuses[i].name);
        putchar('\n');
    }
}

static void statuses(void)
{
    for (const pb_row_status_line *s = pb_row_statuses; s < pb_row_statuses + PB_ROW_STATUSES; s++)
        printf("%-14s %s\n", s->name, s->what);
}

static void formats(void)
{
    for (const pb_export_format *f = pb_export_formats; f->name; f++) printf("%-14s %s\n", f->name, f->what);
}

static pb_status print_group(void *user, const pb_counter_group *g)
{
    const char *passes = g->passes > 1 ? "passes" : "pass";
    (void)user;
    printf("%-12s %s (%s, %d %s%s)\n", g->name, g->summary, g->chip, g->passes, passes, g->sampled ? ", sampled" : "");
    for (int i = 0; i < g->metrics; i++)
        printf("    %-24s %-5s %s\n", g->metric[i].name, g->metric[i].unit, g->metric[i].formula);
    return PB_OK;
}

static pb_status groups(void) { return pb_group_each(print_group, NULL); }

static void kernels(void)
{
    for (const pb_op *const *op = pb_ops; *op; op++) {
        printf("%-24s", (*op)->name);
        for (int be = 0; be < PB_NBACKENDS; be++)
            for (const pb_impl *i = (*op)->impls[be]; i->name; i++)
                if (!i->available || i->available()) printf(" %s.%s", pb_backend_name((pb_backend_id)be), i->name);
        putchar('\n');
    }
}

static const struct {
    const char *name, *title;
    void (*print)(void);
    pb_status (*read)(void); /* in place of print: it may fail */
} lists[] = {{"suites", "suites and their axes [values measured by default, on a CPU]:", NULL, suites},
             {"models", "models, for the axis model:", models, NULL},
             {"metrics", "metrics (unit, better):", metrics, NULL},
             {"requirements", "requirements and the measured cases they are judged on:", requirements, NULL},
             {"columns", "columns of results.csv:", columns, NULL},
             {"statuses", "what may become of a row, least severe first:", statuses, NULL},
             {"formats", "formats of bench export:", formats, NULL},
             {"groups", "metric groups of --counters (chip, passes) and their formulas:", NULL, groups},
             {"kernels", "ops and the implementations this machine runs:", kernels, NULL}};
enum { LISTS = sizeof lists / sizeof *lists };

static pb_exit print(int k)
{
    if (lists[k].print) lists[k].print();
    else if (lists[k].read() != PB_OK) return pb_complain(PB_EXIT_USAGE);
    return PB_EXIT_OK;
}

pb_exit pb_cmd_list(const pb_options *o)
{
    pb_exit code = PB_EXIT_OK;
    if (o->columns) {
        columns();
        return PB_EXIT_OK;
    }
    for (int i = 0; i < o->args.n; i++) {
        pb_hint hint = {.word = o->args.v[i]};
        int k = 0;
        for (; k < LISTS && strcmp(lists[k].name, o->args.v[i]) != 0; k++) pb_hint_try(&hint, lists[k].name);
        if (k == LISTS) {
            pb_fail(PB_EINVAL, "list: '%.60s' is not the name of a list%s", o->args.v[i], pb_hint_text(&hint));
            return pb_complain(PB_EXIT_USAGE);
        }
        code = pb_worse_exit(code, print(k));
    }
    for (int k = 0; k < LISTS && !o->args.n; k++) {
        printf("%s%s\n", k ? "\n" : "", lists[k].title);
        code = pb_worse_exit(code, print(k));
    }
    return code;
}
