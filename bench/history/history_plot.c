/* history_plot.c - draws a picture for each row of a history with gnuplot. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "bench/history/history_formats.h"
#include "bench/report/report.h"
#include "os/draft.h"
#include "os/file.h"

enum { LABELS = 10 }; /* sessions with a date below the axis */

/* The data of plots/history.gp: a line "number value date" for each session; after two blank lines "from to mean" for
 * each stretch between change points; after two more "number change" for each change point. */
static void put_data(FILE *f, const pb_history_row *r)
{
    const int every = (r->n + LABELS - 1) / LABELS;
    char when[PB_HISTORY_TIME];
    double mean = 0;
    for (int i = 0; i < r->n; i++) {
        pb_history_time(r->v[i].run_id, when);
        when[10] = 0; /* the date only */
        pb_plot_plain(when);
        fprintf(f, "%d %.9g \"%s\"\n", i + 1, r->v[i].value, i % every ? "" : when);
        mean += r->v[i].value / r->n;
    }
    fputs("\n\n", f);
    for (int i = 0; i <= r->changes; i++) {
        const int from = i ? r->change[i - 1].at : 0, to = i < r->changes ? r->change[i].at : r->n;
        const double level = i < r->changes ? r->change[i].before : i ? r->change[i - 1].after : mean;
        fprintf(f, "%.1f %.1f %.9g\n", from + 0.5, to + 0.5, level);
    }
    fputs("\n\n", f);
    for (int i = 0; i < r->changes; i++)
        fprintf(f, "%.1f \"%+.1f %%\"\n", r->change[i].at + 0.5, 100 * r->change[i].change);
}

static pb_status make_data(const pb_history_row *r, pb_drawing *d)
{
    FILE *f = open_memstream(&d->data, &d->data_n);
    if (!f) return pb_fail(PB_ENOMEM, "history: out of memory");
    put_data(f, r);
    return fclose(f) == 0 ? PB_OK : pb_fail(PB_ENOMEM, "history: out of memory");
}

/* A name that does not change when other rows are selected: suite, metric and a hash of machine, key and metric. */
static pb_status name_picture(const pb_history_row *r, const char *folder, char **path)
{
    char name[3 * PB_AXIS_TEXT];
    uint32_t hash = 2166136261u; /* FNV-1a */
    const char *const parts[] = {r->v->machine_id, r->v->key, r->v->metric};
    for (int i = 0; i < 3; i++)
        for (const char *c = parts[i];; c++) {
            hash = (hash ^ (unsigned char)*c) * 16777619u;
            if (!*c) break;
        }
    snprintf(name, sizeof name, "%.*s-%.63s-%08x.svg", (int)pb_suite_length(r->v->key), r->v->key, r->v->metric, hash);
    for (char *c = name; *c; c++)
        if (*c == '/') *c = '_';
    return pb_path_join(folder, name, path);
}

static pb_status draw(const pb_history_row *r, const pb_history_opts *o, const char *path)
{
    char heading[PB_KEY_TEXT + 3 * PB_AXIS_TEXT], *picture = NULL;
    size_t n = 0;
    const char *script = pb_plot_script_text("history");
    pb_drawing d = {.gnuplot = o->gnuplot ? o->gnuplot : "gnuplot",
                    .name = "history",
                    .script = script,
                    .script_n = strlen(script),
                    .term = "svg",
                    .heading = heading,
                    .variants = r->changes};
    snprintf(heading, sizeof heading, "%.63s [%.15s] of %s, %.96s", r->v->metric, r->v->unit, r->v->key,
             r->v->machine_id);
    pb_plot_plain(heading);
    pb_status s = make_data(r, &d);
    if (s == PB_OK) s = pb_gnuplot_draw(&d, &picture, &n);
    if (s == PB_OK) s = pb_file_replace(path, picture, n);
    free(picture);
    free(d.data);
    return s;
}

pb_status pb_history_svg(const pb_history_rows *h, const pb_history_opts *o, FILE *out)
{
    const char *folder = o->out ? o->out : "history";
    PB_TRY(pb_make_folder(folder));
    for (int i = 0; i < h->n; i++) {
        char *path;
        PB_TRY(name_picture(&h->row[i], folder, &path));
        const pb_status s = draw(&h->row[i], o, path);
        if (s == PB_OK) fprintf(out, "wrote %s\n", path);
        free(path);
        PB_TRY(s);
    }
    return PB_OK;
}
