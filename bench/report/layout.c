/* layout.c - assigns the cases of a suite to the rows and variants (columns) of its tables. */
#include "bench/report/layout.h"

#include <stdlib.h>
#include <string.h>

/* True if the axis is one of the view's variant axes. */
static bool variant_axis(const pb_view *v, const char *axis)
{
    for (int i = 0; i < PB_VIEW_VARIANTS && v->variants[i]; i++)
        if (strcspn(v->variants[i], "=") == strlen(axis) && !strncmp(v->variants[i], axis, strlen(axis))) return true;
    return false;
}

static void add_label(pb_layout *l, const char *axis)
{
    for (int i = 0; i < l->nlabels; i++)
        if (!strcmp(l->labels[i], axis)) return;
    if (l->nlabels < PB_LAYOUT_LABELS && !variant_axis(l->view, axis)) l->labels[l->nlabels++] = axis;
}

/* Chooses the label columns: the axes that vary, those of view->rows first. Variant axes are left out. */
static void choose_labels(pb_layout *l)
{
    if (l->axes.names_vary) l->labels[l->nlabels++] = "";
    for (int i = 0; i < PB_VIEW_ROWS && l->view->rows[i]; i++)
        if (pb_axes_vary(&l->axes, l->view->rows[i])) add_label(l, l->view->rows[i]);
    for (int i = 0; i < l->axes.n; i++)
        if (pb_axes_vary(&l->axes, l->axes.seen[i].axis.name)) add_label(l, l->axes.seen[i].axis.name);
}

const char *pb_layout_label(const pb_placed *e, const char *axis)
{
    const char *value = *axis ? pb_case_get(&e->c, axis) : e->c.name;
    return value ? value : "";
}

/* Compares two texts like strcmp(), but numbers in them by value: B2 comes before B16. */
static int natural(const char *a, const char *b)
{
    while (*a && *b) {
        size_t m = strspn(a, "0123456789"), n = strspn(b, "0123456789");
        if (m && n) {
            double x = strtod(a, NULL), y = strtod(b, NULL);
            if (m > 15 || n > 15 || x == y) {
                if (m != n || strncmp(a, b, m) != 0) return strcmp(a, b);
            } else {
                return x < y ? -1 : 1;
            }
            a += m, b += n;
        } else if (*a != *b) {
            break;
        } else {
            a++, b++;
        }
    }
    return strcmp(a, b);
}

/* Returns the index of a value in a list such as "mode=eager,graph"; for a value that is not in the list, the number of
 * values in it. */
static int listed(const char *variant, const char *value)
{
    int place = 0;
    for (const char *at = strchr(variant, '='); at; at = strchr(at, ','), place++) {
        at++;
        if (strcspn(at, ",") == strlen(value) && !strncmp(at, value, strlen(value))) return place;
    }
    return 1000;
}

void pb_variant_axis(const char *variant, char out[PB_AXIS_TEXT])
{
    snprintf(out, PB_AXIS_TEXT, "%.*s", (int)strcspn(variant, "="), variant);
}

void pb_variant_title(const pb_view *v, const pb_placed *e, const char *without, char *out, size_t n)
{
    char axis[PB_AXIS_TEXT];
    size_t used = 0;
    *out = 0;
    for (int i = 0; i < PB_VIEW_VARIANTS && v->variants[i] && used < n; i++) {
        pb_variant_axis(v->variants[i], axis);
        if (without && !strcmp(axis, without)) continue;
        used += (size_t)snprintf(out + used, n - used, "%s%s", used ? " " : "", pb_layout_label(e, axis));
    }
}

static int variant_order(const pb_view *v, const pb_placed *x, const pb_placed *y)
{
    char name[PB_AXIS_TEXT];
    for (int i = 0; i < PB_VIEW_VARIANTS && v->variants[i]; i++) {
        pb_variant_axis(v->variants[i], name);
        const char *a = pb_layout_label(x, name), *b = pb_layout_label(y, name);
        int by_list = listed(v->variants[i], a) - listed(v->variants[i], b), by_name = strcmp(a, b);
        if (by_list || by_name) return by_list ? by_list : by_name;
    }
    return 0;
}

static int row_order(const pb_layout *l, const pb_placed *x, const pb_placed *y)
{
    for (int i = 0; i < l->nlabels; i++) {
        int order = natural(pb_layout_label(x, l->labels[i]), pb_layout_label(y, l->labels[i]));
        if (order) return order;
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const pb_placed *x = *(const pb_placed *const *)a, *y = *(const pb_placed *const *)b;
    int order = row_order(x->l, x, y);
    if (!order) order = variant_order(x->l->view, x, y);
    return order ? order : strcmp(x->key, y->key);
}

/* Collects the distinct variants of all cases, in order; at most PB_LAYOUT_VARIANTS. */
static void find_variants(pb_layout *l)
{
    for (int i = 0; i < l->n; i++) {
        int at = 0;
        while (at < l->nvariants && variant_order(l->view, l->variant[at], l->order[i]) < 0) at++;
        if (at < l->nvariants && variant_order(l->view, l->variant[at], l->order[i]) == 0) continue;
        if (l->nvariants == PB_LAYOUT_VARIANTS) continue;
        memmove(l->variant + at + 1, l->variant + at, (size_t)(l->nvariants - at) * sizeof *l->variant);
        l->variant[at] = l->order[i];
        l->nvariants++;
    }
}

/* Gives every case, in sorted order, its row and its variant. */
static void number(pb_layout *l)
{
    find_variants(l);
    for (int i = 0; i < l->n; i++) {
        pb_placed *e = l->order[i];
        for (int at = 0; at < l->nvariants; at++)
            if (variant_order(l->view, l->variant[at], e) == 0) e->variant = at;
        if (i && row_order(l, l->order[i - 1], e) != 0) l->nrows++;
        e->row = l->nrows;
    }
    if (l->n) l->nrows++;
}

pb_status pb_layout_make(pb_layout *l, const pb_view *view, const pb_series *s, size_t n)
{
    size_t cases = 0;
    memset(l, 0, sizeof *l);
    l->view = view;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && s[i].key == s[i - 1].key) continue;
        pb_axes_add(&l->axes, s[i].key);
        cases++;
    }
    l->cases = malloc(cases * sizeof *l->cases);
    l->order = malloc(cases * sizeof *l->order);
    if (!l->cases || !l->order) return pb_fail(PB_ENOMEM, "report: out of memory");
    choose_labels(l);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && s[i].key == s[i - 1].key) continue;
        pb_placed *e = &l->cases[l->n];
        e->l = l;
        e->key = s[i].key;
        e->variant = -1;
        PB_TRY(pb_case_parse(s[i].key, &e->c));
        l->order[l->n++] = e;
    }
    qsort(l->order, (size_t)l->n, sizeof *l->order, by_place);
    number(l);
    return PB_OK;
}

void pb_layout_free(pb_layout *l)
{
    free(l->cases);
    free(l->order);
}
