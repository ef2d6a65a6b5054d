/* intervals.c - implements intervals.h. */
#include "bench/analyze/intervals.h"

#include <stdlib.h>

void pb_intervals_add(pb_intervals *l, double begin, double end) { l->at[l->n++] = (pb_interval){begin, end}; }

double pb_intervals_common(const pb_intervals *a, const pb_intervals *b)
{
    double sum = 0;
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        const double from = a->at[i].begin > b->at[k].begin ? a->at[i].begin : b->at[k].begin;
        const double to = a->at[i].end < b->at[k].end ? a->at[i].end : b->at[k].end;
        if (to > from) sum += to - from;
        if (a->at[i].end < b->at[k].end) i++;
        else k++;
    }
    return sum;
}

void pb_intervals_cut(const pb_intervals *a, const pb_intervals *b, pb_intervals *out)
{
    out->n = 0;
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        const double from = a->at[i].begin > b->at[k].begin ? a->at[i].begin : b->at[k].begin;
        const double to = a->at[i].end < b->at[k].end ? a->at[i].end : b->at[k].end;
        if (to > from) pb_intervals_add(out, from, to);
        if (a->at[i].end < b->at[k].end) i++;
        else k++;
    }
}

void pb_intervals_without(const pb_intervals *a, const pb_intervals *b, pb_intervals *out)
{
    size_t k = 0;
    out->n = 0;
    for (size_t i = 0; i < a->n; i++) {
        double from = a->at[i].begin;
        while (k < b->n && b->at[k].end <= from) k++;
        for (size_t next = k; next < b->n && b->at[next].begin < a->at[i].end; next++) {
            if (b->at[next].begin > from) pb_intervals_add(out, from, b->at[next].begin);
            from = b->at[next].end;
            k = next; /* it may reach into the next interval of `a` */
        }
        if (from < a->at[i].end) pb_intervals_add(out, from, a->at[i].end);
    }
}

static int by_begin(const void *x, const void *y)
{
    const pb_interval *a = x, *b = y;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

void pb_intervals_unite(pb_intervals *l)
{
    size_t n = 0;
    if (l->n) qsort(l->at, l->n, sizeof *l->at, by_begin);
    for (size_t i = 0; i < l->n; i++) {
        if (n && l->at[i].begin <= l->at[n - 1].end) {
            if (l->at[i].end > l->at[n - 1].end) l->at[n - 1].end = l->at[i].end;
        } else l->at[n++] = l->at[i];
    }
    l->n = n;
}
