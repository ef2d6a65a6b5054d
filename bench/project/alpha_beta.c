/* alpha_beta.c - the alpha-beta model of a collective and its fit. */
#include "bench/project/alpha_beta.h"

#include <string.h>

static const struct {
    const char *name, *nccl_tests;
} names[] = {
#define COLLECTIVE(name, nccl_tests, in_steps, in_bytes, out_steps, out_bytes) {#name, #nccl_tests},
#include "bench/project/collectives.def"
#undef COLLECTIVE
};

const char *pb_collective_name(pb_collective c) { return names[c].name; }

pb_collective pb_collective_find(const char *name)
{
    int c = 0;
    while (c < PB_NCOLLECTIVES && strcmp(names[c].name, name) != 0 && strcmp(names[c].nccl_tests, name) != 0) c++;
    return (pb_collective)c;
}

pb_ab_point pb_ab_terms(pb_collective c, double bytes, pb_place place, pb_link link)
{
    const double g = place.each, h = place.hosts;
    const struct {
        double steps, bytes;
    } terms[][PB_NLINKS] = {
#define COLLECTIVE(name, nccl_tests, in_steps, in_bytes, out_steps, out_bytes)                                         \
    {{in_steps, in_bytes}, {out_steps, out_bytes}},
#include "bench/project/collectives.def"
#undef COLLECTIVE
    };
    return (pb_ab_point){.steps = terms[c][link].steps, .bytes = bytes * terms[c][link].bytes};
}

double pb_ab_seconds(const pb_alpha_beta *m, const pb_ab_point *terms)
{
    return m->alpha * terms->steps + m->seconds_per_byte * terms->bytes;
}

/* Sums of products over the points, each divided by its seconds: x steps, y bytes, r the part to explain. */
typedef struct sums {
    double xx, xy, yy, xr, yr;
} sums;

static sums add_up(const pb_ab_point *p, int n)
{
    sums s = {0};
    for (int i = 0; i < n; i++) {
        const double x = p[i].steps / p[i].seconds, y = p[i].bytes / p[i].seconds;
        const double r = (p[i].seconds - p[i].known) / p[i].seconds;
        s.xx += x * x;
        s.xy += x * y;
        s.yy += y * y;
        s.xr += x * r;
        s.yr += y * r;
    }
    return s;
}

/* The sum of squares at a and b, without the constant sum of r^2. */
static double squares(const sums *s, double a, double b)
{
    return a * a * s->xx + 2 * a * b * s->xy + b * b * s->yy - 2 * a * s->xr - 2 * b * s->yr;
}

pb_status pb_ab_fit(const pb_ab_point *p, int n, pb_alpha_beta *out)
{
    const sums s = add_up(p, n);
    const double det = s.xx * s.yy - s.xy * s.xy;
    if (n < 2 || !(det > 1e-9 * s.xx * s.yy))
        return pb_fail(PB_EINVAL, "%d points cannot tell latency from bandwidth: measure more sizes", n);
    double a = (s.xr * s.yy - s.yr * s.xy) / det, b = (s.yr * s.xx - s.xr * s.xy) / det;
    if (!(a >= 0 && b >= 0)) {
        const double only_a = s.xr > 0 ? s.xr / s.xx : 0, only_b = s.yr > 0 ? s.yr / s.yy : 0;
        const int latency = squares(&s, only_a, 0) < squares(&s, 0, only_b);
        a = latency ? only_a : 0;
        b = latency ? 0 : only_b;
    }
    *out = (pb_alpha_beta){a, b};
    return PB_OK;
}
