/* fit_step.c - fits the model of a data parallel step, and divides the gradients of its case into buckets. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench/project/fit.h"
#include "bench/project/fit_check.h"
#include "bench/suites/suites.h"
#include "kernels/engine/ctx.h"
#include "trainer/parallel/buckets.h"

static pb_status no_memory(void) { return pb_fail(PB_ENOMEM, "project: out of memory"); }

pb_status pb_step_fit_comm(const pb_step_fit *f, pb_place place, pb_step_comm *out)
{
    *out = (pb_step_comm){0};
    if (pb_place_ranks(place) == 1) return PB_OK;
    double *seconds = calloc((size_t)f->buckets + 1, sizeof *seconds);
    if (!seconds) return no_memory();
    for (int i = 0; i < f->buckets; i++) seconds[i] = pb_fit_seconds(f->reduce, f->bytes[i], place);
    *out = pb_step_schedule(f->bytes, seconds, f->buckets, f->backward);
    free(seconds);
    return PB_OK;
}

static int by_ranks(const void *a, const void *b)
{
    const pb_timed *x = a, *y = b;
    const int rx = pb_place_ranks(x->place), ry = pb_place_ranks(y->place);
    return rx != ry ? (rx > ry) - (rx < ry) : (x->place.hosts > y->place.hosts) - (x->place.hosts < y->place.hosts);
}

static pb_status check_step(const pb_step_fit *f)
{
    const pb_timed_list *l = &f->curve->points;
    if (!l->n || pb_place_ranks(l->v[0].place) != 1)
        return pb_fail(PB_EINVAL, "project: %s: no step of one rank was measured; its backward_time is needed",
                       f->curve->name);
    for (int i = 0; i < l->n; i++)
        if (l->v[i].place.hosts > 1 && f->reduce->link[PB_LINK_OUT].basis == PB_BASIS_NONE)
            return pb_fail(PB_EINVAL, "project: %s is of several hosts, but no network was measured or given",
                           l->v[i].key);
    return PB_OK;
}

pb_status pb_step_fit_make(pb_curve *f, const pb_fit *reduce, double *bytes, int buckets, double tokens,
                           pb_step_fit *out)
{
    pb_timed_list *l = &f->points;
    *out = (pb_step_fit){.curve = f, .reduce = reduce, .bytes = bytes, .buckets = buckets, .tokens = tokens};
    if (l->n) qsort(l->v, (size_t)l->n, sizeof *l->v, by_ranks);
    PB_TRY(check_step(out));
    out->one = l->v[0].seconds;
    out->backward = l->v[0].backward;
    pb_keep_out(l->v, l->n, PB_FEWEST_STEP_RANKS);
    return PB_OK;
}

/* ---- fitting ----------------------------------------------------------------------------------------- */

/* A measured step in the terms of the model. */
static pb_status point_of(const pb_step_fit *f, const pb_timed *t, pb_step_point *out)
{
    *out = (pb_step_point){.seconds = t->seconds, .one = f->one};
    return pb_step_fit_comm(f, t->place, &out->comm);
}

/* The number of ranks that is kept out of a step; more than any other if none is. */
static int kept_out_ranks(const pb_step_fit *f)
{
    for (int i = 0; i < f->curve->points.n; i++)
        if (f->curve->points.v[i].kept_out) return pb_place_ranks(f->curve->points.v[i].place);
    return INT_MAX;
}

/* Collects the points of f[0..n) that determine the contention of `of`; returns their number in *count. p has room for
 * all points. */
static pb_status contended_points(const pb_step_fit *f, int n, const pb_step_fit *of, pb_step_point *p, int *count)
{
    const int kept_out = kept_out_ranks(of);
    for (int others = 0; others < 2; others++) { /* first those of fewer ranks, then those of other steps */
        *count = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < f[i].curve->points.n; j++) {
                const pb_timed *t = &f[i].curve->points.v[j];
                const int ranks = pb_place_ranks(t->place);
                if (ranks > 1 && (others ? &f[i] != of && ranks == kept_out : ranks < kept_out))
                    PB_TRY(point_of(&f[i], t, &p[(*count)++]));
            }
        if (*count) break;
    }
    return PB_OK;
}

/* Fits the compute time of f, whose contention is known, and checks it. */
static pb_status fit_compute(pb_step_fit *f, pb_step_point *p)
{
    const pb_timed_list *l = &f->curve->points;
    int fitted = 0;
    for (int i = 0; i < l->n; i++)
        if (!l->v[i].kept_out) PB_TRY(point_of(f, &l->v[i], &p[fitted++]));
    f->compute = pb_step_compute(p, fitted, f->contention);
    for (int i = 0; i < l->n; i++) {
        pb_step_comm c;
        PB_TRY(pb_step_fit_comm(f, l->v[i].place, &c));
        l->v[i].model = f->compute + c.wait + f->contention * c.hidden;
    }
    return pb_check_points(l->v, l->n, &f->accuracy);
}

pb_status pb_step_fit_all(pb_step_fit *f, int n)
{
    int points = 0;
    for (int i = 0; i < n; i++) points += f[i].curve->points.n;
    pb_step_point *p = calloc((size_t)points + 1, sizeof *p);
    pb_status s = p ? PB_OK : no_memory();
    for (int i = 0; i < n && s == PB_OK; i++) {
        s = contended_points(f, n, &f[i], p, &f[i].contended);
        if (s != PB_OK) break;
        f[i].contention = pb_step_contention(p, f[i].contended);
        s = fit_compute(&f[i], p);
    }
    free(p);
    return s;
}

void pb_step_fit_free(pb_step_fit *f) { free(f->bytes); }

/* ---- buckets --------------------------------------------------------------------------------------- */

/* Fails if a setting of the step differs from the only value that the model of step_model.h supports. A case whose key
 * does not name the setting has that value. */
static pb_status check_settings(const pb_case *c)
{
    static const char *const covered[][2] = {{"shard", "none"}, {"accumulate", "1"}};
    for (size_t i = 0; i < sizeof covered / sizeof *covered; i++)
        if (pb_case_get(c, covered[i][0]) && !pb_case_is(c, covered[i][0], covered[i][1]))
            return pb_fail(PB_EINVAL, "project: %s: the model of a step covers only %s=%s", c->key, covered[i][0],
                           covered[i][1]);
    return PB_OK;
}

static pb_status bucket_bytes(const pb_model *m, double element, double **bytes, int *n)
{
    pb_buckets b = {0};
    if (m->ordered) PB_TRY(pb_buckets_make(m, PB_BUCKET_BYTES / sizeof(float), false, &b));
    double *out = calloc((size_t)b.n + 1, sizeof *out);
    for (int i = 0; out && i < b.n; i++) out[i] = element * (double)b.bucket[i].n;
    *bytes = out;
    *n = b.n;
    free(b.bucket);
    return out ? PB_OK : no_memory();
}

pb_status pb_step_buckets(const pb_case *c, double **bytes, int *n, double *tokens)
{
    pb_train_config cfg;
    pb_ctx ctx;
    pb_model model;
    *bytes = NULL;
    *n = 0;
    PB_TRY(check_settings(c));
    PB_TRY(pb_train_case_config(c, &cfg));
    *tokens = (double)cfg.B * cfg.S;
    cfg.model.blank = true; /* the weights are not needed */
    PB_TRY(pb_ctx_open_plan(&ctx, PB_CPU));
    pb_status s = pb_model_open(&ctx, &cfg.model, &model);
    if (s == PB_OK) {
        s = bucket_bytes(&model, pb_case_is(c, "reduce", "bf16") ? 2 : sizeof(float), bytes, n);
        pb_model_close(&model);
    }
    pb_ctx_close(&ctx);
    return s;
}
