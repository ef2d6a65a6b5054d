/* plan.c - builds the list of cases from the suite's grid, the axes and the filters. */
#define _GNU_SOURCE
#include "bench/suites/plan.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/rows/rows.h"
#include "bench/suites/controls.h"
#include "bench/suites/grid.h"
#include "cli/hint.h"
#include "cli/words.h"

enum { ITEM = PB_GRID_ITEM, MOST_CASES = 20000 /* of a plan */ };

const pb_suite *pb_suite_find(const char *name)
{
    pb_hint hint = {.word = name};
    for (const pb_suite *const *s = pb_suites; *s; s++) {
        if (strcmp((*s)->name, name) == 0) return *s;
        pb_hint_try(&hint, (*s)->name);
    }
    pb_fail(PB_EINVAL, "there is no suite '%.60s'%s", name, pb_hint_text(&hint));
    return NULL;
}

/* Adds a case unless its key is already in the plan. */
static pb_status add_case(void *user, const pb_case *c)
{
    pb_plan *p = user;
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->cases[i].key, c->key) == 0) return PB_OK;
    if (p->n == MOST_CASES)
        return pb_fail(PB_EINVAL, "the axes give more than %d cases: measure them in several runs", MOST_CASES);
    if (p->n == p->room) {
        int room = p->room ? 2 * p->room : 64;
        pb_case *more = realloc(p->cases, (size_t)room * sizeof *more);
        if (!more) return pb_fail(PB_ENOMEM, "no memory for %d cases", room);
        p->cases = more;
        p->room = room;
    }
    p->cases[p->n] = *c;
    if (p->own) p->cases[p->n].own = p->own;
    p->n++;
    return PB_OK;
}

void pb_plan_free(pb_plan *p)
{
    free(p->cases);
    pb_own_input_close(p->own);
    *p = (pb_plan){0};
}

/* ---- the axes that the request sets ----------------------------------------------------------- */

/* True if a value matches the pattern: "value", "pat*", or "!pat" for every value that does not match. */
static bool selects(const char *pattern, const char *value)
{
    bool all_but = *pattern == '!';
    return (fnmatch(pattern + all_but, value, 0) == 0) != all_but;
}

static bool any_selects(const char *patterns, const char *value)
{
    char one[PB_AXIS_TEXT];
    while ((patterns = pb_next_item(patterns, ',', one, sizeof one)))
        if (selects(one, value)) return true;
    return false;
}

static bool names_axis(const pb_axis_list *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(l->v[i].name, name) == 0) return true;
    return false;
}

static bool suite_has_axis(const pb_suite *s, const char *name)
{
    char item[ITEM];
    for (const char *rest = s->axes; (rest = pb_next_item(rest, ' ', item, sizeof item));)
        if (pb_grid_values(item), strcmp(item, name) == 0) return true;
    return false;
}

static pb_status check_axes(const pb_suite *s, const pb_axis_list *l)
{
    char item[ITEM];
    for (int i = 0; i < l->n; i++) {
        if (suite_has_axis(s, l->v[i].name)) continue;
        pb_hint hint = {.word = l->v[i].name};
        for (const char *rest = s->axes; (rest = pb_next_item(rest, ' ', item, sizeof item));)
            pb_grid_values(item), pb_hint_try(&hint, item);
        return pb_fail(PB_EINVAL, "suite %s has no axis '%s'%s%s%s", s->name, l->v[i].name, pb_hint_text(&hint),
                       *hint.best ? "" : "; it has ",
                       *hint.best ? ""
                       : *s->axes ? s->axes
                                  : "none");
    }
    return PB_OK;
}

/* Returns the axes of the request, with impl and prefer if the suite has axes of these
 * names. */
static pb_axis_list axes_of(const pb_suite *s, const pb_plan_request *r)
{
    pb_axis_list l = r->axes;
    if (r->impl && suite_has_axis(s, "impl") && l.n < PB_OPTION_LIST) l.v[l.n++] = (pb_axis_values){"impl", r->impl};
    if (r->prefer && suite_has_axis(s, "prefer") && l.n < PB_OPTION_LIST)
        l.v[l.n++] = (pb_axis_values){"prefer", r->prefer};
    return l;
}

/* ---- planning suites whose grid consists of lines -------------------------------------------------- */

/* Appends the axes of the request to the grid line. A later item replaces the default and an earlier item of the
 * same axis. The repeated cases that the earlier values produce are removed by add_case(). */
static pb_status replaced(const char *line, const pb_axis_list *l, char *out, size_t n)
{
    size_t len = (size_t)snprintf(out, n, "%s", line);
    for (int i = 0; i < l->n && len < n; i++) {
        bool again = false; /* an axis that is given twice gets both lists of values */
        for (int j = 0; j < i; j++) again |= strcmp(l->v[j].name, l->v[i].name) == 0;
        if (again) continue;
        len += (size_t)snprintf(out + len, n - len, " %s=", l->v[i].name);
        for (int j = i; j < l->n && len < n; j++)
            if (strcmp(l->v[j].name, l->v[i].name) == 0)
                len += (size_t)snprintf(out + len, n - len, "%s,", l->v[j].values);
    }
    return len < n ? PB_OK : pb_fail(PB_EINVAL, "the axes are more than %zu characters", n);
}

/* Returns the default or full grid of the suite for the device; NULL: the suite has no grid. */
static const char *const *grid_of(const pb_suite *s, bool device, const pb_plan_request *r)
{
    const char *const *ranks = device ? s->device_ranks_grid : s->ranks_grid;
    if (r->ranks > 1 && !r->full_grid && ranks) return ranks;
    const char *const *usual = device && s->device_grid ? s->device_grid : s->grid;
    const char *const *all = device && s->device_grid ? s->device_full_grid : s->full_grid;
    return r->full_grid && all ? all : usual;
}

static pb_status plan_lines(const pb_ctx *ctx, const pb_suite *s, const pb_plan_request *r, const pb_axis_list *l,
                            pb_plan *p)
{
    static const char *const one[] = {"", NULL};
    const char *const *line = grid_of(s, ctx->id != PB_CPU, r);
    char text[4096];
    for (line = line ? line : one; *line; line++) {
        PB_TRY(replaced(*line, l, text, sizeof text));
        PB_TRY(pb_grid_expand(s->name, s->axes, text, add_case, p));
    }
    return PB_OK;
}

/* ---- planning suites that enumerate their cases ----------------------------------------------------- */

/* True if each axis of the case matches the suite's default pattern for it. */
static bool default_selects(const pb_suite *s, const pb_case *c)
{
    char item[ITEM];
    for (const char *rest = s->axes; (rest = pb_next_item(rest, ' ', item, sizeof item));) {
        const char *pattern = pb_grid_values(item), *value = pb_case_get(c, item);
        if (!value || !pattern || !any_selects(pattern, value)) return false;
    }
    return true;
}

static bool asked_for(const pb_axis_list *l, const pb_case *c)
{
    for (int i = 0; i < l->n; i++) {
        bool found = false;
        for (int j = 0; j < l->n; j++)
            if (strcmp(l->v[i].name, l->v[j].name) == 0)
                found |= any_selects(l->v[j].values, pb_case_get(c, l->v[i].name));
        if (!found) return false;
    }
    return true;
}

/* True if cases a and b are equal except in axes of the list. */
static bool same_elsewhere(const pb_axis_list *l, const pb_case *a, const pb_case *b)
{
    if (strcmp(a->name, b->name) != 0 || a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->axes[i].value, b->axes[i].value) != 0 && !names_axis(l, a->axes[i].name)) return false;
    return true;
}

static bool reachable(const pb_suite *s, const pb_plan *from, const pb_axis_list *l, const pb_case *c)
{
    for (int i = 0; i < from->n; i++) /* The cheaper test comes first. */
        if (same_elsewhere(l, &from->cases[i], c) && default_selects(s, &from->cases[i])) return true;
    return false;
}

static pb_status check_values(const pb_suite *s, const pb_plan *all, const pb_axis_list *l)
{
    char one[PB_AXIS_TEXT];
    for (int i = 0; i < l->n; i++)
        for (const char *v = l->v[i].values; (v = pb_next_item(v, ',', one, sizeof one));) {
            bool found = false;
            pb_hint hint = {.word = one};
            for (int k = 0; k < all->n; k++) {
                const char *value = pb_case_get(&all->cases[k], l->v[i].name);
                if (!value) continue;
                found |= selects(one, value);
                pb_hint_try(&hint, value);
            }
            if (!found)
                return pb_fail(PB_EINVAL, "no case of suite %s has %s=%s%s", s->name, l->v[i].name, one,
                               pb_hint_text(&hint));
        }
    return PB_OK;
}

/* Selects all cases that have the values of the request and that equal a default case in all other axes. */
static pb_status plan_enumerated(pb_ctx *ctx, const pb_suite *s, bool full, const pb_axis_list *l, pb_plan *p)
{
    pb_plan all = {0}, base = {0};
    pb_status st = s->enumerate(ctx, true, add_case, &all);
    if (st == PB_OK && !full) st = s->enumerate(ctx, false, add_case, &base);
    if (st == PB_OK) st = check_values(s, &all, l);
    for (int i = 0; i < all.n && st == PB_OK; i++)
        if (asked_for(l, &all.cases[i]) && reachable(s, full ? &all : &base, l, &all.cases[i]))
            st = add_case(p, &all.cases[i]);
    pb_plan_free(&all), pb_plan_free(&base);
    return st;
}

/* ---- filtering the cases by their keys ---------------------------------------------------------------- */

static bool wanted(const pb_plan_request *r, const pb_case *c)
{
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < r->filters[k].n; i++)
            if (pb_key_matches(r->filters[k].v[i], c->key)) return true;
    return !r->filters[0].n && !r->filters[1].n;
}

static pb_status filter(const pb_plan_request *r, pb_plan *p)
{
    int kept = 0, had = p->n;
    const pb_words *first = r->filters[0].n ? &r->filters[0] : &r->filters[1];
    const char *glob = first->n ? first->v[0] : "";
    pb_hint hint = {.word = glob};
    for (int i = 0; i < p->n; i++) {
        pb_hint_try(&hint, p->cases[i].name);
        if (wanted(r, &p->cases[i])) p->cases[kept++] = p->cases[i];
    }
    p->n = kept;
    if (kept) return PB_OK;
    return pb_fail(PB_EINVAL, "none of %d cases of suite %s matches '%.100s'%s", had, p->suite->name, glob,
                   pb_hint_text(&hint));
}

/* ---- making the whole plan ---------------------------------------------------------------------------- */

/* Adds to the keys what else changes the measurement: the digest of the user's data, the number of ranks, and impl and
 * prefer, unless the suite has an axis of that name. */
static pb_status name_choice(const pb_suite *s, const pb_plan_request *r, pb_plan *p)
{
    char ranks[32];
    snprintf(ranks, sizeof ranks, "%ld", r->ranks);
    for (int i = 0; i < p->n; i++) {
        if (p->own) PB_TRY(pb_case_set(&p->cases[i], "data", p->own->data));
        if (r->ranks > 1) PB_TRY(pb_case_set(&p->cases[i], "ranks", ranks));
        if (r->impl && !suite_has_axis(s, "impl")) PB_TRY(pb_case_set(&p->cases[i], "impl", r->impl));
        if (r->prefer && !suite_has_axis(s, "prefer")) PB_TRY(pb_case_set(&p->cases[i], "prefer", r->prefer));
        pb_case_finish(&p->cases[i]);
    }
    return PB_OK;
}

/* True if cases a and b have equal values on every axis of the list. */
static bool same_named(const pb_axis_list *l, const pb_case *a, const pb_case *b)
{
    for (int i = 0; i < l->n; i++)
        if (strcmp(pb_case_get(a, l->v[i].name), pb_case_get(b, l->v[i].name)) != 0) return false;
    return true;
}

static bool has_twin(const pb_axis_list *l, const pb_plan *p, const bool *fits, int i)
{
    for (int j = 0; j < p->n && l->n; j++)
        if (fits[j] && same_named(l, &p->cases[i], &p->cases[j])) return true;
    return false;
}

/* Drops cases that the suite's check refuses. Such cases occur because the grid combines values from the request
 * with all other values of a line. A refused case is dropped if an accepted case has the same values on every axis of
 * the request. Otherwise the check's error is returned, so that no requested value disappears silently. */
static pb_status drop_misfits(const pb_suite *s, const pb_axis_list *l, pb_plan *p)
{
    pb_status st = PB_OK;
    int kept = 0;
    bool *fits = s->check && p->n ? malloc((size_t)p->n * sizeof *fits) : NULL;
    if (!s->check || !p->n) return PB_OK;
    if (!fits) return pb_fail(PB_ENOMEM, "no memory for %d cases", p->n);
    for (int i = 0; i < p->n; i++) fits[i] = s->check(&p->cases[i]) == PB_OK;
    for (int i = 0; i < p->n && st == PB_OK; i++)
        if (!fits[i] && !has_twin(l, p, fits, i)) st = s->check(&p->cases[i]); /* repeated for its error message */
    for (int i = 0; i < p->n && st == PB_OK; i++)
        if (fits[i]) p->cases[kept++] = p->cases[i];
    if (st == PB_OK) p->n = kept;
    free(fits);
    return st;
}

/* Removes the axes whose values the suite's keys omit, so that each case has one key. */
static void omit_defaults(const pb_suite *s, pb_plan *p)
{
    char item[ITEM];
    for (const char *rest = s->omitted; rest && (rest = pb_next_item(rest, ' ', item, sizeof item));) {
        const char *value = pb_grid_values(item);
        for (int i = 0; i < p->n; i++) {
            if (!pb_case_is(&p->cases[i], item, value)) continue;
            pb_case_drop(&p->cases[i], item);
            pb_case_finish(&p->cases[i]);
        }
    }
}

static pb_status check_ranks(const pb_suite *s, const pb_plan_request *r, const pb_axis_list *l)
{
    if (r->ranks > 1 && !s->ranks)
        return pb_fail(PB_EINVAL, "--ranks %ld: suite %s measures one rank only", r->ranks, s->name);
    if (r->ranks > PB_MOST_RANKS)
        return pb_fail(PB_EINVAL, "--ranks %ld: at most %d on one host", r->ranks, PB_MOST_RANKS);
    if (names_axis(l, "ranks")) return pb_fail(PB_EINVAL, "the number of ranks is no axis, but an option: --ranks N");
    return PB_OK;
}

static pb_status plan_suite(pb_ctx *ctx, const pb_suite *s, const pb_plan_request *r, pb_plan *p)
{
    if (r->counting && s->counting) s = s->counting;
    pb_axis_list l = axes_of(s, r);
    p->suite = s;
    PB_TRY(check_ranks(s, r, &l));
    PB_TRY(pb_own_input_apply(s->own_input ? NULL : s->name, &r->input, &l, &p->own));
    PB_TRY(check_axes(s, &l));
    PB_TRY(s->enumerate ? plan_enumerated(ctx, s, r->full_grid, &l, p) : plan_lines(ctx, s, r, &l, p));
    PB_TRY(filter(r, p));
    PB_TRY(name_choice(s, r, p));
    PB_TRY(drop_misfits(s, &l, p));
    omit_defaults(s, p);
    return PB_OK;
}

/* True if the ceiling case `c` is measured. If the request has no ceilings, that is so only if a filter names the suite
 * ceiling; "*" does not name it. */
static bool ceiling_wanted(const pb_plan_request *r, const pb_case *c)
{
    if (!r->no_ceilings) return true;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < r->filters[k].n; i++)
            if (pb_key_of(r->filters[k].v[i], "ceiling") && pb_key_matches(r->filters[k].v[i], c->key)) return true;
    return false;
}

/* Adds the ceilings that each measuring process measures before the suite's own cases. */
static pb_status plan_ceilings(pb_ctx *ctx, const pb_suite *s, const pb_plan_request *r, pb_plan *out)
{
    const pb_suite *ceiling = pb_suite_find("ceiling");
    const pb_axis_list none = {.n = 0};
    int kept = 0;
    if (!ceiling || ceiling == s || s->alone || s->untimed) return PB_OK;
    PB_TRY(plan_lines(ctx, ceiling, &(pb_plan_request){.full_grid = false}, &none, out));
    for (int i = 0; i < out->n; i++)
        if (ceiling_wanted(r, &out->cases[i])) out->cases[kept++] = out->cases[i];
    out->n = kept;
    return r->ranks > 1 ? name_choice(ceiling, r, out) : PB_OK;
}

static pb_status plan_both(pb_ctx *ctx, const pb_suite *s, const pb_plan_request *r, pb_plan *out)
{
    pb_plan chosen = {0};
    pb_status st = plan_ceilings(ctx, s, r, out);
    out->device = ctx->id != PB_CPU;
    out->ceilings = out->n;
    if (st == PB_OK) st = plan_suite(ctx, s, r, &chosen);
    out->own = chosen.own, chosen.own = NULL;
    out->suite = chosen.suite; /* that of a counting run has no conclusions */
    for (int i = 0; i < chosen.n && st == PB_OK; i++) st = add_case(out, &chosen.cases[i]);
    pb_plan_free(&chosen);
    return st;
}

static bool listed(const char *keys, const char *key)
{
    char one[PB_KEY_TEXT];
    while ((keys = pb_next_item(keys, '\n', one, sizeof one)))
        if (strcmp(one, key) == 0) return true;
    return false;
}

void pb_plan_keep(pb_plan *p, const char *keys)
{
    int kept = p->ceilings;
    for (int i = p->ceilings; i < p->n; i++)
        if (listed(keys, p->cases[i].key)) p->cases[kept++] = p->cases[i];
    p->n = kept;
    p->controls = 0;
}

pb_status pb_plan_make(pb_ctx *ctx, const pb_suite *suite, const pb_plan_request *r, pb_plan *out)
{
    pb_plan p = {0};
    pb_status s = plan_both(ctx, suite, r, &p);
    if (s == PB_OK && r->only) pb_plan_keep(&p, r->only);
    else if (s == PB_OK && !r->counting && !r->uncontrolled) s = pb_controls_add(&p);
    if (s != PB_OK) pb_plan_free(&p);
    else *out = p;
    return s;
}

void pb_plan_order(const pb_plan *p, uint64_t seed, int process, int *order)
{
    for (int i = 0; i < p->n; i++) order[i] = i;
    /* Suite ceiling is never shuffled: its cases run first in every other suite too, in the same order. */
    if (strcmp(p->suite->name, "ceiling") == 0) return;
    for (int i = p->n - 1; i > p->ceilings; i--) {
        int j = p->ceilings + (int)(pb_uniform(seed + (uint64_t)process, (uint64_t)i) * (i - p->ceilings + 1));
        int swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

double pb_plan_expect(const pb_plan *p, const pb_case *c)
{
    const pb_suite *s = pb_suite_find(c->suite);
    double (*expect)(const pb_case *) = !s ? NULL : p->device ? s->device_expect : s->expect;
    return expect ? expect(c) : 1;
}
