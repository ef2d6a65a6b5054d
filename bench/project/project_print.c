/* project_print.c - prints fits and projections as tables, and the notes below them. */
#include <math.h>
#include <string.h>

#include "bench/project/projection.h"
#include "bench/text/text.h"
#include "trainer/parallel/buckets.h"

static const char *const link_names[PB_NLINKS] = {"one host", "network"};

/* ---- tables ---------------------------------------------------------------------------------------- */

/* A table that is filled from left to right, row by row. */
typedef struct filler {
    pb_grid g;
    int row, col;
} filler;

static pb_status begin(filler *f, pb_strings *text, int rows, int cols, int labels, const char *const *titles)
{
    f->row = f->col = 0;
    if (!pb_grid_open(&f->g, text, rows, cols, labels)) return pb_fail(PB_ENOMEM, "project: out of memory");
    for (int c = 0; c < cols; c++) pb_grid_set(&f->g, 0, c, titles[c]);
    return PB_OK;
}

static void next_row(filler *f)
{
    f->row++;
    f->col = 0;
}

static void put(filler *f, const char *text) { pb_grid_set(&f->g, f->row, f->col++, text); }

static void put_figure(filler *f, double v, const char *unit)
{
    char text[PB_FIGURE_TEXT];
    pb_figure(text, v, unit);
    put(f, text);
}

static void put_count(filler *f, int n)
{
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    put(f, text);
}

static void put_percent(filler *f, double share)
{
    char text[32] = "-";
    if (isfinite(share)) snprintf(text, sizeof text, "%.1f %%", 100 * share);
    put(f, text);
}

static void finish(filler *f, FILE *out)
{
    pb_grid_print(&f->g, out);
    pb_grid_close(&f->g);
}

static const char *without_suite(const char *key) { return key + pb_suite_length(key) + 1; }

/* The result of a fit's check, in a word; the text above the first table explains it. */
static const char *verdict(const pb_accuracy *a) { return pb_accurate(a) ? "good" : a->kept_out ? "off" : "none"; }

/* ---- fits ------------------------------------------------------------------------------------------ */

static void fit_row(filler *t, const pb_fit *f, int l)
{
    const struct pb_link_fit *k = &f->link[l];
    const bool given = k->basis == PB_BASIS_GIVEN;
    next_row(t);
    put(t, without_suite(f->curve->name));
    put(t, link_names[l]);
    put_figure(t, k->model.alpha, "s");
    put_figure(t, 1 / k->model.seconds_per_byte, "B/s"); /* "-" if infinite: the times do not depend on the bytes */
    if (given) {
        put(t, "given");
        return;
    }
    put_count(t, k->accuracy.fitted);
    put_count(t, k->accuracy.kept_out);
    put_percent(t, k->accuracy.median);
    put_percent(t, k->accuracy.max);
    put(t, verdict(&k->accuracy));
}

static pb_status print_fits(const pb_projection *p, FILE *out)
{
    static const char *const titles[] = {"collective", "link",   "alpha", "bandwidth", "fitted",
                                         "kept out",   "median", "max",   "check"};
    filler t;
    int rows = 1;
    for (int i = 0; i < p->fits; i++)
        for (int l = 0; l < PB_NLINKS; l++) rows += p->fit[i].link[l].basis != PB_BASIS_NONE;
    PB_TRY(begin(&t, p->measured.strings, rows, sizeof titles / sizeof *titles, 2, titles));
    for (int i = 0; i < p->fits; i++)
        for (int l = 0; l < PB_NLINKS; l++)
            if (p->fit[i].link[l].basis != PB_BASIS_NONE) fit_row(&t, &p->fit[i], l);
    fprintf(out,
            "collectives: alpha (latency per step) and bandwidth, fitted to measured times; median and max: error of\n"
            "the points that were kept out; check: good (max at most 10 %%), off, or none (no point was kept out)\n");
    finish(&t, out);
    return PB_OK;
}

static pb_status print_step(const pb_projection *p, const pb_step_fit *f, FILE *out)
{
    static const char *const titles[] = {"ranks", "measured step_time", "step_time of the model", "error", "point"};
    const pb_timed_list *l = &f->curve->points;
    filler t;
    char compute[PB_FIGURE_TEXT], backward[PB_FIGURE_TEXT];
    PB_TRY(begin(&t, p->measured.strings, l->n + 1, sizeof titles / sizeof *titles, 1, titles));
    for (int i = 0; i < l->n; i++) {
        const pb_timed *m = &l->v[i];
        next_row(&t);
        put_count(&t, pb_place_ranks(m->place));
        put_figure(&t, m->seconds, "s");
        put_figure(&t, m->model, "s");
        put_percent(&t, fabs(m->model - m->seconds) / m->seconds);
        put(&t, m->kept_out ? "kept out" : "fitted");
    }
    pb_figure(compute, f->compute, "s");
    pb_figure(backward, f->backward, "s");
    fprintf(out, "\nstep: %s\n", f->curve->name);
    fprintf(out, "compute %s, %d bucket%s of gradients reduced next to a backward pass of %s; check: %s\n", compute,
            f->buckets, f->buckets == 1 ? "" : "s", backward, verdict(&f->accuracy));
    if (f->contended)
        fprintf(out,
                "contention %.2f: seconds by which a second of hidden collectives lengthens the step (fitted to %d "
                "point%s)\n",
                f->contention, f->contended, f->contended == 1 ? "" : "s");
    else fprintf(out, "contention: no other step of several ranks was measured, so it is taken as 0\n");
    finish(&t, out);
    return PB_OK;
}

/* ---- projections ----------------------------------------------------------------------------------- */

static pb_status print_projected_collectives(const pb_projection *p, int n, FILE *out)
{
    static const char *const titles[] = {"collective", "ranks", "hosts", "projected time of 25 MiB"};
    filler t;
    if (!n) return PB_OK;
    PB_TRY(begin(&t, p->measured.strings, n + 1, sizeof titles / sizeof *titles, 1, titles));
    for (int i = 0; i < n; i++) {
        next_row(&t);
        put(&t, without_suite(p->projected[i].collective->curve->name));
        put_count(&t, pb_place_ranks(p->projected[i].place));
        put_count(&t, p->projected[i].place.hosts);
        put_figure(&t, p->projected[i].seconds, "s");
    }
    fprintf(out, "\nprojected collectives (no figure below was measured)\n");
    finish(&t, out);
    return PB_OK;
}

static pb_status print_projected_steps(const pb_projection *p, const pb_step_fit *f, FILE *out)
{
    static const char *const titles[] = {"ranks",
                                         "hosts",
                                         "projected step",
                                         "projected wait",
                                         "projected contention",
                                         "projected tokens/s per rank",
                                         "projected efficiency"};
    filler t;
    int n = 0;
    for (int i = 0; i < p->n; i++) n += p->projected[i].step == f;
    if (!n) return PB_OK;
    PB_TRY(begin(&t, p->measured.strings, n + 1, sizeof titles / sizeof *titles, 1, titles));
    for (int i = 0; i < p->n; i++) {
        const pb_projected *x = &p->projected[i];
        if (x->step != f) continue;
        next_row(&t);
        put_count(&t, pb_place_ranks(x->place));
        put_count(&t, x->place.hosts);
        put_figure(&t, x->seconds, "s");
        put_figure(&t, x->wait, "s");
        put_figure(&t, x->contention_time, "s");
        put_figure(&t, f->tokens / x->seconds, "1/s");
        put_percent(&t, f->one / x->seconds);
    }
    fprintf(out, "\nprojected steps (no figure below was measured): %s\n", f->curve->name);
    finish(&t, out);
    return PB_OK;
}

pb_status pb_projection_text(const pb_projection *p, const pb_project_opts *o, FILE *out)
{
    int collectives = 0;
    (void)o;
    while (collectives < p->n && p->projected[collectives].collective) collectives++;
    PB_TRY(print_fits(p, out));
    for (int i = 0; i < p->steps; i++) PB_TRY(print_step(p, &p->step[i], out));
    PB_TRY(print_projected_collectives(p, collectives, out));
    for (int i = 0; i < p->steps; i++) PB_TRY(print_projected_steps(p, &p->step[i], out));
    return PB_OK;
}

/* ---- notes ----------------------------------------------------------------------------------------- */

static void note_accuracy(const char *name, const char *part, const pb_accuracy *a, bool unchecked, FILE *notes)
{
    const char *then = unchecked ? "projected all the same (--unchecked)"
                                 : "nothing is projected from it; --unchecked projects all the same";
    if (pb_accurate(a)) return;
    if (a->kept_out)
        fprintf(notes,
                "bench: note: %s%s: kept-out points differ by up to %.1f %% from the model, more than 10 %%: %s\n",
                name, part, 100 * a->max, then);
    else
        fprintf(notes, "bench: note: %s%s: too few points to keep some out and check the model: %s\n", name, part,
                then);
}

static void note_bytes(const pb_fit *f, double bytes, FILE *notes)
{
    double most = 0;
    for (int i = 0; i < f->curve->points.n; i++)
        if (f->curve->points.v[i].bytes > most) most = f->curve->points.v[i].bytes;
    if (most < bytes)
        fprintf(notes, "bench: note: %s: measured up to %.0f bytes, projected for %.0f\n", f->curve->name, most, bytes);
}

void pb_projection_notes(const pb_projection *p, const pb_project_opts *o, FILE *notes)
{
    for (int i = 0; i < p->fits; i++)
        for (int l = 0; l < PB_NLINKS; l++)
            if (p->fit[i].link[l].basis == PB_BASIS_FITTED)
                note_accuracy(p->fit[i].curve->name, l == PB_LINK_OUT ? ", network" : "", &p->fit[i].link[l].accuracy,
                              o->unchecked, notes);
    for (int i = 0; i < p->steps; i++)
        note_accuracy(p->step[i].curve->name, "", &p->step[i].accuracy, o->unchecked, notes);
    for (int i = 0; i < p->fits; i++) note_bytes(&p->fit[i], PB_BUCKET_BYTES, notes);
    for (int i = 0; i < p->steps; i++)
        for (int b = 0; b < p->step[i].buckets; b++)
            if (p->step[i].bytes[b] > PB_BUCKET_BYTES) {
                note_bytes(p->step[i].reduce, p->step[i].bytes[b], notes);
                break;
            }
    if (p->measured.left_out)
        fprintf(notes,
                "bench: note: %d measured times are left out: throttled or failed, of one rank, or without "
                "backward_time\n",
                p->measured.left_out);
}
