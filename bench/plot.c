/* plot.c - writes the data of a figure and runs gnuplot on it. */
#define _POSIX_C_SOURCE 200809L
#include "bench/plot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/layout.h"
#include "bench/plot_impl.h"

enum { TEXT = 2 * PB_PATH_TEXT };

/* ---- data -------------------------------------------------------------------------------------- */

void pb_plot_plain(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == '"' || *s == '\\' || *s == '`' || *s == '\'') *s = '_';
}

static const pb_series *figure_of(const pb_layout *l, const pb_placed *e, const pb_series_set *set)
{
    const pb_series *s = pb_series_find(set, e->key, l->view->metrics[0].metric);
    return s && pb_series_ok(s) ? s : NULL;
}

/* Which arms have a figure at all; returns how many. */
static int find_used(const pb_layout *l, const pb_series_set *set, bool used[PB_LAYOUT_ARMS])
{
    int n = 0;
    for (int a = 0; a < PB_LAYOUT_ARMS; a++) used[a] = false;
    for (int i = 0; i < l->n; i++)
        if (l->order[i]->arm >= 0 && figure_of(l, l->order[i], set)) used[l->order[i]->arm] = true;
    for (int a = 0; a < PB_LAYOUT_ARMS; a++) n += used[a];
    return n;
}

static void write_names(FILE *f, const pb_layout *l, const bool *used)
{
    char title[PB_AXIS_TEXT * PB_VIEW_ARMS];
    fprintf(f, "case");
    for (int a = 0; a < l->narms; a++) {
        if (!used[a]) continue;
        pb_arm_title(l->view, l->arm[a], NULL, title, sizeof title);
        pb_plot_plain(title);
        fprintf(f, " \"%s\" least largest", title);
    }
    fputc('\n', f);
}

static void write_label(FILE *f, const pb_layout *l, const pb_placed *e)
{
    fputc('"', f);
    for (int k = 0; k < l->nlabels; k++) {
        char text[2 * PB_AXIS_TEXT];
        const char *axis = l->labels[k], *value = pb_layout_label(e, axis);
        bool number = *value && !value[strspn(value, "0123456789.")];
        snprintf(text, sizeof text, "%s%s%s", number ? axis : "", number ? " " : "", value);
        pb_plot_plain(text);
        fprintf(f, "%s%s", k ? ", " : "", text);
    }
    fprintf(f, "%s\"", l->nlabels ? "" : e->c.name);
}

/* Cases come sorted by row, then arm. Returns the number of arms written. */
static int write_data(FILE *f, const pb_layout *l, const pb_series_set *set)
{
    bool used[PB_LAYOUT_ARMS];
    int i = 0, arms = find_used(l, set, used);
    write_names(f, l, used);
    for (int row = 0; row < l->nrows; row++) {
        write_label(f, l, l->order[i]);
        for (int a = 0; a < l->narms; a++) {
            bool here = i < l->n && l->order[i]->row == row && l->order[i]->arm == a;
            const pb_series *s = here ? figure_of(l, l->order[i], set) : NULL;
            i += here;
            if (s) fprintf(f, " %.9g %.9g %.9g", s->median, s->min, s->max);
            else if (used[a]) fprintf(f, " NaN NaN NaN");
        }
        while (i < l->n && l->order[i]->row == row) i++; /* arms beyond the limit */
        fputc('\n', f);
    }
    return arms;
}

/* ---- gnuplot ----------------------------------------------------------------------------------- */

static pb_status run_gnuplot(const char *program, const char *settings, const char *script)
{
    int status;
    pid_t pid = fork();
    if (pid < 0) return pb_fail(PB_EIO, "plot: fork: %s", strerror(errno));
    if (pid == 0) {
        execlp(program, program, "-e", settings, script, (char *)NULL);
        _exit(errno == ENOENT ? 127 : 126);
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return pb_fail(PB_EIO, "plot: waitpid: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return PB_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return pb_fail(PB_EDEVICE, "plot: the program %s was not found: apt-get install gnuplot-nox", program);
    return pb_fail(PB_EDEVICE, "plot: %s failed on %s", program, script);
}

typedef struct figure {
    const pb_table *t;
    const pb_series_set *set;
    const pb_plot_opts *o;
    char suite[PB_AXIS_TEXT], script[TEXT], out[TEXT], term[4];
    const struct own *own; /* NULL: the arms of a suite */
} figure;

/* Figures with data and a script of their own. */
static const struct own {
    const char *name, *needs;
    int (*write)(FILE *f, const pb_series_set *set);
} owns[] = {
    {"crossover", "graphed case with an eager one beside it", pb_plot_crossover},
    {"attention", "case of the suite attention, forward and backward, with two lengths", pb_plot_attention},
};

static const struct own *own_of(const char *name)
{
    for (size_t i = 0; name && i < sizeof owns / sizeof *owns; i++)
        if (strcmp(owns[i].name, name) == 0) return &owns[i];
    return NULL;
}

/* Without a layout: a figure of its own. */
static pb_status draw(const figure *fig, const pb_layout *l, const char *data)
{
    char heading[256], settings[4 * TEXT];
    FILE *f = fopen(data, "wb");
    if (!f) return pb_fail(PB_EIO, "%s: %s", data, strerror(errno));
    int arms = l ? write_data(f, l, fig->set) : fig->own->write(f, fig->set);
    bool ok = !ferror(f);
    if (fclose(f) != 0 || !ok) return pb_fail(PB_EIO, "%s: %s", data, strerror(errno));
    if (!arms)
        return pb_fail(PB_EINVAL, "%s: no %s to plot", fig->t->path, l ? l->view->metrics[0].metric : fig->own->needs);
    snprintf(heading, sizeof heading, "%s on %s", fig->t->rows[0].run_id, fig->t->rows[0].machine_id);
    pb_plot_plain(heading);
    snprintf(settings, sizeof settings, "data='%s'; out='%s'; term='%s'; arms=%d; heading='%s'", data, fig->out,
             fig->term, arms, heading);
    return run_gnuplot(fig->o->gnuplot ? fig->o->gnuplot : "gnuplot", settings, fig->script);
}

static pb_status draw_from(const figure *fig, const pb_layout *l)
{
    const char *folder = getenv("TMPDIR");
    char data[TEXT];
    snprintf(data, sizeof data, "%.1000s/pb_plot_XXXXXX", folder && *folder ? folder : "/tmp");
    int fd = mkstemp(data);
    if (fd < 0) return pb_fail(PB_EIO, "%s: %s", data, strerror(errno));
    close(fd);
    pb_status s = draw(fig, l, data);
    unlink(data);
    return s;
}

/* ---- the run ----------------------------------------------------------------------------------- */

/* The suite of the run that has a script: its series are [*from, *to). */
static pb_status choose(figure *fig, size_t *from, size_t *to)
{
    const pb_series_set *set = fig->set;
    const char *folder = fig->o->plots ? fig->o->plots : "plots";
    for (*from = *to = 0; *from < set->n; *from = *to) {
        const char *key = set->s[*from].key;
        *to = pb_suite_end(set, *from);
        snprintf(fig->suite, sizeof fig->suite, "%.*s", (int)pb_suite_length(key), key);
        snprintf(fig->script, sizeof fig->script, "%s/%s.gp", folder, fig->suite);
        if (pb_view_of(key)->arms[0] && access(fig->script, R_OK) == 0) return PB_OK;
    }
    return pb_fail(PB_EINVAL, "%s: none of its suites has a script in %s", fig->t->path, folder);
}

static pb_status name_output(figure *fig)
{
    int folder = (int)(strlen(fig->t->path) - strlen("results.csv"));
    bool named = folder >= 0 && !strcmp(fig->t->path + folder, "results.csv");
    if (fig->o->out) snprintf(fig->out, sizeof fig->out, "%s", fig->o->out);
    else snprintf(fig->out, sizeof fig->out, "%.*s%s.svg", named ? folder : 0, fig->t->path, fig->suite);
    const char *dot = strrchr(fig->out, '.');
    if (!dot || (strcmp(dot, ".svg") != 0 && strcmp(dot, ".png") != 0) || strpbrk(fig->out, "'\"\\`\n"))
        return pb_fail(PB_EINVAL, "plot: '%s' must end in .svg or .png, and hold no quotes", fig->out);
    snprintf(fig->term, sizeof fig->term, "%s", dot + 1);
    return PB_OK;
}

static pb_status plot_table(const pb_table *t, const pb_series_set *set, const pb_plot_opts *o, FILE *out)
{
    figure fig = {.t = t, .set = set, .o = o, .own = own_of(o->figure)};
    pb_layout l;
    size_t from = 0, to = 0;
    pb_status s;
    if (fig.own) {
        snprintf(fig.suite, sizeof fig.suite, "%s", fig.own->name);
        snprintf(fig.script, sizeof fig.script, "%s/%s.gp", o->plots ? o->plots : "plots", fig.own->name);
        PB_TRY(name_output(&fig));
        s = draw_from(&fig, NULL);
    } else {
        PB_TRY(choose(&fig, &from, &to));
        PB_TRY(name_output(&fig));
        s = pb_layout_make(&l, pb_view_of(set->s[from].key), set->s + from, to - from);
        if (s == PB_OK) s = draw_from(&fig, &l);
        pb_layout_free(&l);
    }
    if (s == PB_OK) fprintf(out, "wrote %s\n", fig.out);
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
    return s == PB_EDEVICE ? PB_EXIT_HARNESS : pb_file_exit(s);
}
