/* group_counter.c - counts the events of a metric group, and emits its metrics. */
#include "bench/measure/group_counter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/rows/rows.h"
#include "bench/stats/stats.h"

/* ---- opening ---------------------------------------------------------------------------------------- */

static pb_status check_metrics(const pb_counter_group *g)
{
    for (int i = 0; i < g->metrics; i++) {
        const pb_metric *m = pb_metric_find(g->metric[i].name);
        if (!m)
            return pb_fail(PB_EINVAL, "group %s: there is no metric '%s'; `bench list metrics` shows all", g->name,
                           g->metric[i].name);
        if (strcmp(m->unit, g->metric[i].unit) != 0)
            return pb_fail(PB_EINVAL, "group %s: metric %s has the unit %s, not %s", g->name, m->name, m->unit,
                           g->metric[i].unit);
    }
    return PB_OK;
}

pb_status pb_group_counter_find(const char *name, pb_backend_id device, pb_counter_group *out)
{
    PB_TRY(pb_group_find(name, out));
    if (out->sampled)
        return pb_fail(PB_EINVAL,
                       "--counters %s: this group is sampled over time, not counted: train --profile-sampling %s", name,
                       name);
    PB_TRY(check_metrics(out));
    if (pb_group_on_cpu(out) == (device == PB_CPU)) return PB_OK;
    return pb_fail(PB_EINVAL, "--counters %s: this group is for %s%s, and the run is on %s", name,
                   pb_group_on_cpu(out) ? "" : "the chip ", out->chip, pb_backend_name(device));
}

pb_status pb_group_counter_open(const char *name, const pb_ctx *ctx, pb_group_counter *out)
{
    pb_device_facts facts = {.l2 = 0};
    *out = (pb_group_counter){.n = 0};
    PB_TRY(pb_group_counter_find(name, ctx->id, &out->group));
    if (ctx->id == PB_CPU) return pb_cpu_counters_open(&out->group, &out->cpu);
    if (ctx->be->facts && ctx->be->facts(0, &facts) == PB_OK) out->l2 = facts.l2;
    return pb_gpu_counters_open(&out->group, &out->gpu);
}

void pb_group_counter_close(pb_group_counter *c)
{
    pb_cpu_counters_close(&c->cpu);
    pb_gpu_counters_close(c->gpu);
    c->gpu = NULL;
}

/* ---- counting --------------------------------------------------------------------------------------- */

pb_status pb_group_counter_begin(pb_group_counter *c)
{
    if (!c->n) *c->why = 0;
    return c->gpu ? pb_gpu_counters_begin(c->gpu) : pb_cpu_counters_begin(&c->cpu);
}

pb_status pb_group_counter_end(pb_group_counter *c, bool ran)
{
    double unused[PB_GROUP_EVENTS], *counts = ran ? c->counts[c->n] : NULL;
    char why[PB_COUNTS_WHY] = "";
    if (c->gpu) PB_TRY(pb_gpu_counters_end(c->gpu, counts));
    else PB_TRY(pb_cpu_counters_end(&c->cpu, counts ? counts : unused, why));
    if (*why && !*c->why) snprintf(c->why, sizeof c->why, "%s", why);
    c->n += ran;
    return PB_OK;
}

/* ---- rows ------------------------------------------------------------------------------------------- */

/* A metric over the counted calls. */
typedef struct figures {
    double median, least, most; /* NaN: a call has no value */
} figures;

static figures figures_of(const pb_group_counter *k, int metric)
{
    double v[PB_REPLAYS];
    figures f = {(double)NAN, INFINITY, -INFINITY};
    for (int i = 0; i < k->n; i++) {
        v[i] = pb_group_value(&k->group, metric, k->counts[i]);
        if (!isfinite(v[i])) return (figures){(double)NAN, (double)NAN, (double)NAN};
        f.least = fmin(f.least, v[i]), f.most = fmax(f.most, v[i]);
    }
    f.median = k->n ? pb_median_of(v, k->n) : (double)NAN;
    return f;
}

enum { NOTE = 240 };

/* Writes why a metric has no value. False: it has one. */
static bool refuses(const pb_group_counter *k, const char *metric, const figures *f, double bytes, char why[NOTE])
{
    const pb_exact_counter *x = pb_exact_find(metric);
    const double times = pb_metric_large(metric), least = times * (double)k->l2;
    *why = 0;
    if (k->n < PB_REPLAYS) snprintf(why, NOTE, "interrupted after %d of %d calls", k->n, PB_REPLAYS);
    else if (*k->why) snprintf(why, NOTE, "%s", k->why);
    else if (!isfinite(f->median)) snprintf(why, NOTE, "the formula divides by a count of 0");
    else if (times > 0 && !(k->l2 && bytes > least))
        snprintf(why, NOTE,
                 "depends on what L2 holds: the call's tensors have %.4g bytes, and need more than %.4g "
                 "(%g times L2)",
                 bytes, least, times);
    else if (x && !pb_exact_same(x, f->least, f->most))
        snprintf(why, NOTE, "%d equal calls gave %.10g to %.10g, which is outside the bound of this exact counter",
                 k->n, f->least, f->most);
    return *why != 0;
}

pb_status pb_emit_group(pb_emitter *e, const pb_case *c, const pb_group_counter *counter, double bytes)
{
    char note[NOTE];
    for (int i = 0; i < counter->group.metrics; i++) {
        const char *metric = counter->group.metric[i].name;
        const figures f = figures_of(counter, i);
        if (refuses(counter, metric, &f, bytes, note)) {
            PB_TRY(pb_emit(e, c, metric, (double)NAN, 0, PB_ROW_UNSUPPORTED, note));
            continue;
        }
        if (f.most > f.least) snprintf(note, sizeof note, "%d calls gave %.6g to %.6g", counter->n, f.least, f.most);
        PB_TRY(pb_emit(e, c, metric, f.median, counter->n, PB_ROW_OK, note));
    }
    return PB_OK;
}

pb_status pb_emit_counter_error(pb_emitter *e, const pb_case *c, const pb_group_counter *counter, const char *metric,
                                double known)
{
    const pb_metric_bound *b = pb_metric_bound_find(c->key, "counter_error");
    char note[NOTE];
    for (int i = 0; i < counter->group.metrics; i++) {
        if (strcmp(counter->group.metric[i].name, metric) != 0) continue;
        const figures f = figures_of(counter, i);
        const double error = fabs(f.median - known) / known;
        const bool right = b && pb_metric_bound_keeps(b, 0, error);
        snprintf(note, sizeof note, "%s: counted %.6g, known %.6g%s%s", metric, f.median, known, right ? "" : ": ",
                 right ? ""
                 : b   ? b->text
                       : "no bound");
        return pb_emit(e, c, "counter_error", error, 0, right ? PB_ROW_OK : PB_ROW_WRONG, note);
    }
    return pb_emit(e, c, "counter_error", (double)NAN, 0, PB_ROW_UNSUPPORTED,
                   "this group does not count what is known");
}
