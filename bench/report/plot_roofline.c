/* plot_roofline.c - the data of the figure "roofline": the rate of each op of suite kernels by its arithmetic
 * intensity, below the ceilings of the run. */
#include <stdlib.h>
#include <string.h>

#include "bench/report/gnuplot.h"
#include "bench/report/roofline.h"

typedef struct point {
    char family[PB_AXIS_TEXT]; /* the op's name without its last part, such as attention of attention_fwd */
    double intensity, rate;    /* FLOPs per byte, and FLOPs per second */
} point;

static int order(const void *a, const void *b)
{
    const point *x = a, *y = b;
    const int by = strcmp(x->family, y->family);
    return by ? by : (x->intensity > y->intensity) - (x->intensity < y->intensity);
}

/* Makes the point of a series. Returns false if it is no time of suite kernels, or its op computes nothing. */
static bool point_of(const pb_series_set *set, const pb_series *s, point *out)
{
    pb_case c;
    pb_roofline_line l;
    if (strcmp(s->metric, "kernel_time") != 0 || !pb_series_ok(s) || !pb_roofline_of(&set, 1, s->key, &l)) return false;
    if (!(l.flops > 0) || !(l.bytes > 0) || pb_case_parse(s->key, &c) != PB_OK) return false;
    const char *last = strrchr(c.name, '_');
    *out = (point){.intensity = l.flops / l.bytes, .rate = l.flops / l.seconds};
    snprintf(out->family, sizeof out->family, "%.*s", (int)(last ? last - c.name : (long)strlen(c.name)), c.name);
    return true;
}

static double ceiling(const pb_series_set *set, const char *key, const char *metric)
{
    const pb_series *s = pb_series_find(set, key, metric);
    return s && pb_series_ok(s) ? s->median : 0;
}

/* Writes a ceiling from intensity `low` to `high`: memory up to the ridge point, then arithmetic. */
static void write_ceiling(FILE *f, const char *title, double copy, double matmul, double low, double high)
{
    const double ridge = matmul / copy;
    fprintf(f, "intensity \"%s\"\n", title);
    if (low < ridge) fprintf(f, "%.9g %.9g\n", low, copy * low);
    fprintf(f, "%.9g %.9g\n", ridge, matmul);
    if (high > ridge) fprintf(f, "%.9g %.9g\n", high, matmul);
}

int pb_plot_roofline(FILE *f, const pb_series_set *set)
{
    const double copy = ceiling(set, "ceiling/copy", "copy_rate");
    const double bf16 = ceiling(set, "ceiling/matmul", "matmul_rate");
    const double f32 = ceiling(set, "ceiling/matmul_f32", "matmul_f32_rate");
    point *p = calloc(set->n + 1, sizeof *p);
    int n = 0, blocks = 2;
    for (size_t i = 0; p && i < set->n; i++) n += point_of(set, &set->s[i], &p[n]);
    if (!n || !(copy > 0) || !(bf16 > 0)) {
        free(p);
        return 0;
    }
    double low = p[0].intensity, high = low;
    for (int i = 1; i < n; i++) {
        low = p[i].intensity < low ? p[i].intensity : low;
        high = p[i].intensity > high ? p[i].intensity : high;
    }
    write_ceiling(f, f32 > 0 ? "ceilings, bf16" : "ceilings", copy, bf16, low, high);
    fputs("\n\n", f);
    write_ceiling(f, "ceilings, f32", copy, f32 > 0 ? f32 : bf16, low, high); /* one line where f32 has no ceiling */
    qsort(p, (size_t)n, sizeof *p, order);
    for (int i = 0; i < n; i++) {
        if (!i || strcmp(p[i].family, p[i - 1].family) != 0)
            fprintf(f, "\n\nintensity \"%s\"\n", p[i].family), blocks++;
        fprintf(f, "%.9g %.9g\n", p[i].intensity, p[i].rate);
    }
    free(p);
    return blocks;
}
