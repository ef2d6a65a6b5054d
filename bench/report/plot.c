/* plot.c - chooses a figure of a run, writes its data, lets gnuplot draw it, and writes the picture. */
#define _GNU_SOURCE
#include "bench/report/plot.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/report/layout.h"
#include "bench/report/gnuplot.h"
#include "os/draft.h"
#include "os/file.h"
#include "os/text.h"

enum { MOST_SCRIPT = 1 << 20 };

/* ---- writing the data of a figure -------------------------------------------------------------- */

void pb_plot_plain(char *s)
{
    pb_make_printable(s, '_');
    for (; *s; s++)
        if (*s == '"' || *s == '\\' || *s == '`' || *s == '\'') *s = '_';
}

/* Returns the series of a case in the view's first metric. NULL: it has no series of status ok. */
static const pb_series *figure_of(const pb_layout *l, const pb_placed *e, const pb_series_set *set)
{
    const pb_series *s = pb_series_find(set, e->key, l->view->metrics[0].metric);
    return s && pb_series_ok(s) ? s : NULL;
}

/* Sets used[a] to true for every variant that has a value in at least one case. Returns the number of such variants. */
static int find_used(const pb_layout *l, const pb_series_set *set, bool used[PB_LAYOUT_VARIANTS])
{
    int n = 0;
    for (int a = 0; a < PB_LAYOUT_VARIANTS; a++) used[a] = false;
    for (int i = 0; i < l->n; i++)
        if (l->order[i]->variant >= 0 && figure_of(l, l->order[i], set)) used[l->order[i]->variant] = true;
    for (int a = 0; a < PB_LAYOUT_VARIANTS; a++) n += used[a];
    return n;
}

/* Writes the header line of the data: the name of each variant, quoted, and the names of its three columns. */
static void write_names(FILE *f, const pb_layout *l, const bool *used)
{
    char title[PB_AXIS_TEXT * PB_VIEW_VARIANTS];
    fprintf(f, "case");
    for (int a = 0; a < l->nvariants; a++) {
        if (!used[a]) continue;
        pb_variant_title(l->view, l->variant[a], NULL, title, sizeof title);
        pb_plot_plain(title);
        fprintf(f, " \"%s\" least largest", title);
    }
    fputc('\n', f);
}

/* Writes the label of a case, quoted, such as "seq 128, full": numbers are preceded by the name of their axis. */
static void write_label(FILE *f, const pb_layout *l, const pb_placed *e)
{
    char name[PB_AXIS_TEXT];
    snprintf(name, sizeof name, "%s", l->nlabels ? "" : e->c.name);
    pb_plot_plain(name);
    fputc('"', f);
    for (int k = 0; k < l->nlabels; k++) {
        char text[2 * PB_AXIS_TEXT];
        const char *axis = l->labels[k], *value = pb_layout_label(e, axis);
        bool number = *value && !value[strspn(value, "0123456789.")];
        snprintf(text, sizeof text, "%s%s%s", number ? axis : "", number ? " " : "", value);
        pb_plot_plain(text);
        fprintf(f, "%s%s", k ? ", " : "", text);
    }
    fprintf(f, "%s\"", name);
}

/* Writes a line per row of the layout. l->order is sorted by row, then variant. Returns the number of variants. */
static int write_data(FILE *f, const pb_layout *l, const pb_series_set *set)
{
    bool used[PB_LAYOUT_VARIANTS];
    int i = 0, variants = find_used(l, set, used);
    write_names(f, l, used);
    for (int row = 0; row < l->nrows; row++) {
        write_label(f, l, l->order[i]);
        for (int a = 0; a < l->nvariants; a++) {
            bool here = i < l->n && l->order[i]->row == row && l->order[i]->variant == a;
            const pb_series *s = here ? figure_of(l, l->order[i], set) : NULL;
            i += here;
            if (s) fprintf(f, " %.9g %.9g %.9g", s->median, s->min, s->max);
            else if (used[a]) fprintf(f, " NaN NaN NaN");
        }
        /* skips cases of this row whose variant exceeds PB_LAYOUT_VARIANTS */
        while (i < l->n && l->order[i]->row == row) i++;
        fputc('\n', f);
    }
    return variants;
}

/* ---- choosing a figure and its script ---------------------------------------------------------- */

/* The figures that are not drawn from the tables of a suite. Each has its own data and script. */
static const struct special {
    const char *name, *needs;
    int (*write)(FILE *f, const pb_series_set *set);
} specials[] = {
    {"crossover", "case measured both eagerly and as a graph", pb_plot_crossover},
    {"attention", "attention case with forward and backward at two sequence lengths", pb_plot_attention},
    {"roofline", "op of suite kernels with ceilings copy_rate and matmul_rate", pb_plot_roofline},
};

static const struct special *special_of(const char *name)
{
    for (size_t i = 0; name && i < sizeof specials / sizeof *specials; i++)
        if (strcmp(specials[i].name, name) == 0) return &specials[i];
    return NULL;
}

typedef struct figure {
    const pb_table *t;
    const pb_series_set *set;
    const pb_plot_opts *o;
    char name[PB_AXIS_TEXT]; /* the script's name: that of the suite or of the figure */
    char *script, *out;      /* text of the script; path of the picture to write; the figure owns both */
    size_t script_n;
    const struct special *special; /* NULL: the figure "variants" */
} figure;

static void free_figure(figure *fig) { free(fig->script), free(fig->out); }

const char *pb_plot_script_text(const char *name)
{
    const pb_plot_script *s = pb_plot_scripts;
    while (s->name && strcmp(s->name, name) != 0) s++;
    return s->text;
}

static pb_status built_in(figure *fig, bool *found)
{
    const char *text = pb_plot_script_text(fig->name);
    *found = text != NULL;
    if (!*found) return PB_OK;
    fig->script_n = strlen(text);
    fig->script = strdup(text);
    return fig->script ? PB_OK : pb_fail(PB_ENOMEM, "plot: no memory");
}

/* Loads the script fig->name: from the folder given by --plots, else from the scripts compiled into the program. The
 * current folder is not searched, because its files may come from another user. */
static pb_status find_script(figure *fig, bool *found)
{
    char file[PB_AXIS_TEXT + 8], *path;
    if (!fig->o->plots) return built_in(fig, found);
    snprintf(file, sizeof file, "%s.gp", fig->name);
    PB_TRY(pb_path_join(fig->o->plots, file, &path));
    pb_status s = PB_OK;
    *found = access(path, F_OK) == 0;
    if (*found) s = pb_disk_read_file(&pb_disk_posix, path, MOST_SCRIPT, &fig->script, &fig->script_n);
    free(path);
    return s;
}

static pb_status no_script(const figure *fig, const char *what)
{
    return pb_fail(PB_EINVAL, "%s: %s has a plot script in %s", fig->t->path, what,
                   fig->o->plots ? fig->o->plots : "this program; bench plot --plots DIR reads your own");
}

/* Chooses the first suite of the run that has variants and a script. Its series are [*from, *to). */
static pb_status choose(figure *fig, size_t *from, size_t *to)
{
    const pb_series_set *set = fig->set;
    for (*from = *to = 0; *from < set->n; *from = *to) {
        const char *key = set->s[*from].key;
        bool found = false;
        *to = pb_suite_end(set, *from);
        snprintf(fig->name, sizeof fig->name, "%.*s", (int)pb_suite_length(key), key);
        if (pb_view_of(key)->variants[0]) PB_TRY(find_script(fig, &found));
        if (found) return PB_OK;
    }
    return no_script(fig, "no suite of the run");
}

static pb_status choose_special(figure *fig)
{
    bool found;
    snprintf(fig->name, sizeof fig->name, "%s", fig->special->name);
    PB_TRY(find_script(fig, &found));
    return found ? PB_OK : no_script(fig, "no figure of this name");
}

/* ---- drawing and writing the picture ----------------------------------------------------------- */

static pb_status name_output(figure *fig)
{
    const char *run = fig->t->path;
    const int folder = (int)(strlen(run) - strlen("results.csv"));
    const bool named = folder >= 0 && !strcmp(run + folder, "results.csv");
    const int n = fig->o->out ? asprintf(&fig->out, "%s", fig->o->out)
                              : asprintf(&fig->out, "%.*s%s.svg", named ? folder : 0, run, fig->name);
    if (n < 0) return fig->out = NULL, pb_fail(PB_ENOMEM, "plot: no memory");
    const char *dot = strrchr(fig->out, '.');
    if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0) || !pb_is_printable(fig->out))
        return pb_fail(PB_EINVAL, "plot: '%s' must end in .svg or .png, without control characters", fig->out);
    return PB_OK;
}

/* Writes the data of a figure to d. l NULL: a figure other than "variants". */
static pb_status make_data(const figure *fig, const pb_layout *l, pb_drawing *d)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f) return pb_fail(PB_ENOMEM, "plot: no memory");
    d->variants = l ? write_data(f, l, fig->set) : fig->special->write(f, fig->set);
    const bool ok = !ferror(f);
    const char *needs = l ? l->view->metrics[0].metric : fig->special->needs;
    pb_status s = fclose(f) == 0 && ok ? PB_OK : pb_fail(PB_ENOMEM, "plot: no memory");
    if (s == PB_OK && !d->variants)
        s = pb_fail(PB_EINVAL, "%s: nothing to plot: the run has no %s", fig->t->path, needs);
    if (s == PB_OK) d->data = text, d->data_n = n;
    else free(text);
    return s;
}

/* Draws the picture in memory, then replaces the user's file atomically. */
static pb_status draw(const figure *fig, const pb_drawing *d)
{
    char *picture = NULL;
    size_t n = 0;
    PB_TRY(pb_gnuplot_draw(d, &picture, &n));
    const pb_status s = pb_file_replace(fig->out, picture, n);
    free(picture);
    return s;
}

static pb_status draw_figure(const figure *fig, const pb_layout *l)
{
    char heading[256];
    const pb_row *first = &fig->t->rows[0];
    pb_drawing d = {.gnuplot = fig->o->gnuplot ? fig->o->gnuplot : "gnuplot",
                    .name = fig->name,
                    .script = fig->script,
                    .script_n = fig->script_n,
                    .term = strrchr(fig->out, '.') + 1,
                    .heading = heading};
    snprintf(heading, sizeof heading, "%s on %s", first->run_id, first->machine_id);
    pb_plot_plain(heading);
    PB_TRY(make_data(fig, l, &d));
    const pb_status s = draw(fig, &d);
    free(d.data);
    return s;
}

static pb_status plot_suite(figure *fig)
{
    pb_layout l;
    size_t from = 0, to = 0;
    PB_TRY(choose(fig, &from, &to));
    PB_TRY(name_output(fig));
    pb_status s = pb_layout_make(&l, pb_view_of(fig->set->s[from].key), fig->set->s + from, to - from);
    if (s == PB_OK) s = draw_figure(fig, &l);
    pb_layout_free(&l);
    return s;
}

static pb_status plot_special(figure *fig)
{
    PB_TRY(choose_special(fig));
    PB_TRY(name_output(fig));
    return draw_figure(fig, NULL);
}

static pb_status plot_table(const pb_table *t, const pb_series_set *set, const pb_plot_opts *o, FILE *out)
{
    figure fig = {.t = t, .set = set, .o = o, .special = special_of(o->figure)};
    const pb_status s = fig.special ? plot_special(&fig) : plot_suite(&fig);
    if (s == PB_OK) fprintf(out, "wrote %s\n", fig.out);
    free_figure(&fig);
    return s;
}

pb_exit pb_plot(const char *run, const pb_plot_opts *o, FILE *out)
{
    char newest[PB_PATH_TEXT];
    pb_table t;
    pb_series_set set = {NULL, 0};
    pb_status s = run ? PB_OK : pb_newest_run(o->runs ? o->runs : "runs", newest, sizeof newest);
    if (s == PB_OK) s = pb_table_read(run ? run : newest, &t);
    if (s != PB_OK) return pb_file_exit(s);
    s = pb_series_make(&t, &set);
    if (s == PB_OK) s = plot_table(&t, &set, o, out);
    pb_series_free(&set);
    pb_table_free(&t);
    return (pb_exit)pb_status_exit(s);
}
