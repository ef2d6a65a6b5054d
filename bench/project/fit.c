/* fit.c - fits the alpha-beta model to measured collectives, and checks it on points that were kept out. */
#include "bench/project/fit.h"

#include <math.h>
#include <stdlib.h>

#include "bench/project/fit_check.h"

static const char *const link_words[PB_NLINKS] = {"inside a host", "between hosts"};

bool pb_accurate(const pb_accuracy *a) { return a->kept_out > 0 && a->max <= PB_PROJECT_ERROR; }

double pb_fit_seconds(const pb_fit *f, double bytes, pb_place place)
{
    double t = 0;
    for (int l = 0; l < (place.hosts > 1 ? PB_NLINKS : 1); l++) {
        const pb_ab_point terms = pb_ab_terms(f->curve->op, bytes, place, (pb_link)l);
        t += pb_ab_seconds(&f->link[l].model, &terms);
    }
    return t;
}

bool pb_fit_accurate(const pb_fit *f, pb_place place)
{
    bool yes = true;
    for (int l = 0; l < (place.hosts > 1 ? PB_NLINKS : 1); l++)
        yes &= f->link[l].basis == PB_BASIS_GIVEN ||
               (f->link[l].basis == PB_BASIS_FITTED && pb_accurate(&f->link[l].accuracy));
    return yes;
}

pb_status pb_fit_place(const pb_fit *f, int ranks, pb_place *out)
{
    if (ranks <= f->host_ranks) {
        *out = (pb_place){1, ranks};
        return PB_OK;
    }
    if (f->link[PB_LINK_OUT].basis == PB_BASIS_NONE)
        return pb_fail(PB_EINVAL,
                       "project: %d ranks need several hosts of %d ranks, but no network was measured; give "
                       "--network alpha=SECONDS,bandwidth=BYTES/S, or --host-ranks N if a host has more ranks",
                       ranks, f->host_ranks);
    if (ranks % f->host_ranks)
        return pb_fail(PB_EINVAL, "project: %d ranks are not a multiple of the %d ranks of a host (--host-ranks)",
                       ranks, f->host_ranks);
    *out = (pb_place){ranks / f->host_ranks, f->host_ranks};
    return PB_OK;
}

/* ---- fitting a link -------------------------------------------------------------------------------- */

static pb_link link_of(const pb_timed *t) { return t->place.hosts > 1 ? PB_LINK_OUT : PB_LINK_IN; }

/* A measured collective in the terms of its link. */
static pb_ab_point point_of(const pb_fit *f, const pb_timed *t)
{
    const pb_link l = link_of(t);
    pb_ab_point p = pb_ab_terms(f->curve->op, t->bytes, t->place, l);
    p.seconds = t->seconds;
    if (l == PB_LINK_OUT) {
        const pb_ab_point in = pb_ab_terms(f->curve->op, t->bytes, t->place, PB_LINK_IN);
        p.known = pb_ab_seconds(&f->link[PB_LINK_IN].model, &in);
    }
    return p;
}

/* Fits the link of the points t[0..n), n > 0, which are sorted by bytes. */
static pb_status fit_link(pb_fit *f, pb_timed *t, int n)
{
    struct pb_link_fit *to = &f->link[link_of(t)];
    pb_ab_point *p = calloc((size_t)n, sizeof *p);
    if (!p) return pb_fail(PB_ENOMEM, "project: out of memory");
    int fitted = 0;
    pb_keep_out(t, n, PB_FEWEST_RANKS);
    for (int i = 0; i < n; i++)
        if (!t[i].kept_out) p[fitted++] = point_of(f, &t[i]);
    const pb_status s = pb_ab_fit(p, fitted, &to->model);
    free(p);
    if (s == PB_EINVAL)
        return pb_fail(s, "project: %s, %s: %d points that cannot tell latency from bandwidth: measure more sizes",
                       f->curve->name, link_words[link_of(t)], fitted);
    PB_TRY(s);
    to->basis = PB_BASIS_FITTED;
    for (int i = 0; i < n; i++) t[i].model = pb_fit_seconds(f, t[i].bytes, t[i].place);
    return pb_check_points(t, n, &to->accuracy);
}

/* Points of one host before those of several, each by bytes, then by ranks. */
static int by_link_and_bytes(const void *a, const void *b)
{
    const pb_timed *x = a, *y = b;
    const int lx = link_of(x), ly = link_of(y), rx = pb_place_ranks(x->place), ry = pb_place_ranks(y->place);
    if (lx != ly) return lx - ly;
    return x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes) : (rx > ry) - (rx < ry);
}

pb_status pb_fit_make(pb_curve *f, int host_ranks, const pb_alpha_beta *network, pb_fit *out)
{
    pb_timed_list *l = &f->points;
    int one_host = 0, most = 0;
    *out = (pb_fit){.curve = f};
    if (l->n) qsort(l->v, (size_t)l->n, sizeof *l->v, by_link_and_bytes);
    for (; one_host < l->n && link_of(&l->v[one_host]) == PB_LINK_IN; one_host++)
        if (l->v[one_host].place.each > most) most = l->v[one_host].place.each;
    if (!one_host) return pb_fail(PB_EINVAL, "project: %s: no collectives of one host were measured", f->name);
    if (host_ranks && host_ranks < most)
        return pb_fail(PB_EINVAL, "project: --host-ranks %d, but %s was measured with %d ranks on one host", host_ranks,
                       f->name, most);
    out->host_ranks = host_ranks ? host_ranks : most;
    PB_TRY(fit_link(out, l->v, one_host));
    if (one_host < l->n) PB_TRY(fit_link(out, l->v + one_host, l->n - one_host));
    if (network) out->link[PB_LINK_OUT] = (struct pb_link_fit){.basis = PB_BASIS_GIVEN, .model = *network};
    return PB_OK;
}
