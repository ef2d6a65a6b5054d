/* project_csv.c - writes fits and projections as CSV: a line for each figure. */
#include <math.h>

#include "bench/project/projection.h"
#include "trainer/parallel/buckets.h"

/* A figure without its value. ranks and bytes: 0 if they do not apply. */
typedef struct figure {
    const char *basis, *name, *link;
    int ranks;
    double bytes;
} figure;

static void put(FILE *out, const figure *f, const char *metric, const char *unit, double value)
{
    pb_csv_text(out, f->basis);
    fputc(',', out);
    pb_csv_text(out, f->name);
    fprintf(out, ",%s,", f->link);
    pb_csv_number(out, f->ranks ? f->ranks : (double)NAN);
    fputc(',', out);
    pb_csv_number(out, f->bytes > 0 ? f->bytes : (double)NAN);
    fprintf(out, ",%s,%s,", metric, unit);
    pb_csv_number(out, value);
    fputc('\n', out);
}

static void put_accuracy(FILE *out, const char *name, const char *link, const pb_accuracy *a)
{
    const figure f = {.basis = "kept-out", .name = name, .link = link};
    put(out, &f, "points", "1", a->kept_out);
    put(out, &f, "median_error", "1", a->median);
    put(out, &f, "max_error", "1", a->max);
}

static void put_link(FILE *out, const pb_fit *f, pb_link l)
{
    static const char *const words[PB_NLINKS] = {"in", "out"};
    const struct pb_link_fit *k = &f->link[l];
    const figure x = {k->basis == PB_BASIS_GIVEN ? "given" : "fitted", f->curve->name, words[l], 0, 0};
    if (k->basis == PB_BASIS_NONE) return;
    put(out, &x, "alpha", "s", k->model.alpha);
    put(out, &x, "bandwidth", "B/s", 1 / k->model.seconds_per_byte);
    if (k->basis == PB_BASIS_FITTED) put_accuracy(out, f->curve->name, words[l], &k->accuracy);
}

static void put_projected(FILE *out, const pb_projected *p)
{
    const pb_curve *curve = p->step ? p->step->curve : p->collective->curve;
    const figure f = {"projected", curve->name, "", pb_place_ranks(p->place), p->step ? 0 : PB_BUCKET_BYTES};
    put(out, &f, p->step ? "step_time" : "time", "s", p->seconds);
    if (!p->step) return;
    put(out, &f, "wait_time", "s", p->wait);
    put(out, &f, "contention_time", "s", p->contention_time);
    put(out, &f, "tokens_per_second", "1/s", p->step->tokens / p->seconds);
    put(out, &f, "scaling_efficiency", "1", p->step->one / p->seconds);
}

void pb_projection_csv(const pb_projection *p, FILE *out)
{
    fputs("basis,case,link,ranks,bytes,metric,unit,value\n", out);
    for (int i = 0; i < p->fits; i++)
        for (int l = 0; l < PB_NLINKS; l++) put_link(out, &p->fit[i], (pb_link)l);
    for (int i = 0; i < p->steps; i++) {
        const figure f = {.basis = "fitted", .name = p->step[i].curve->name, .link = ""};
        put(out, &f, "compute_time", "s", p->step[i].compute);
        put(out, &f, "contention", "1", p->step[i].contention);
        put_accuracy(out, p->step[i].curve->name, "", &p->step[i].accuracy);
    }
    for (int i = 0; i < p->n; i++) put_projected(out, &p->projected[i]);
}
