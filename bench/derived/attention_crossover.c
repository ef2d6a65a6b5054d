/* attention_crossover.c - computes the ratio of sparse to dense time at each length, and from which length it stays
 * below 1. */
#include "bench/derived/attention_crossover.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/derived/graph_gain.h"

bool pb_attn_twin(const pb_case *c, pb_case *dense)
{
    pb_case twin = *c;
    const bool sparse = pb_case_is(c, "variant", "sparse");
    if (strcmp(c->suite, "attention") != 0 || !(sparse || pb_case_is(c, "variant", "dynmask"))) return false;
    if (pb_case_set(&twin, "variant", sparse ? "dense" : "dense_gqa") != PB_OK ||
        pb_case_set(&twin, "list", "causal") != PB_OK || pb_case_set(&twin, "topk", "0") != PB_OK)
        return false;
    pb_case_finish(&twin);
    *dense = twin;
    return true;
}

pb_case pb_attn_other_pass(const pb_case *c)
{
    pb_case other = *c;
    snprintf(other.name, sizeof other.name, "%s", strcmp(c->name, "fwd") == 0 ? "bwd" : "fwd");
    pb_case_finish(&other);
    return other;
}

pb_status pb_attn_family(const pb_case *c, const char *pass, pb_case *out)
{
    pb_case f = {.suite = "crossover", .name = "attention"};
    for (int i = 0; i < c->n; i++) {
        const char *axis = c->axes[i].name;
        if (strcmp(axis, "seq") == 0 || strcmp(axis, "variant") == 0 || strcmp(axis, "masked") == 0) continue;
        PB_TRY(pb_case_set(&f, axis, c->axes[i].value));
    }
    PB_TRY(pb_case_set(&f, "pass", pass));
    pb_case_finish(&f);
    *out = f;
    return PB_OK;
}

/* Sets *seconds to the time of a case, or to the sum of its two passes if `both`. False: a time is missing. */
static bool time_of(const pb_emitter *emitter, const pb_case *c, bool both, double *seconds)
{
    const pb_case other = pb_attn_other_pass(c);
    double more = 0;
    if (!pb_emitted_value(emitter, c->key, "kernel_time", seconds)) return false;
    if (both && !pb_emitted_value(emitter, other.key, "kernel_time", &more)) return false;
    *seconds += more;
    return true;
}

/* Computes one point of a crossover: the ratio of sparse to dense time at one length. `both`: the ratio of the sums of
 * forward and backward time; only a forward case gives such a point, so that each sum counts once. Returns false if the
 * case has no point. */
static bool point_of(const pb_emitter *emitter, const char *key, bool both, pb_family_point *out)
{
    pb_case c, dense;
    double sparse_time, dense_time;
    long seq;
    if (pb_case_parse(key, &c) != PB_OK || !pb_attn_twin(&c, &dense)) return false;
    if ((both && strcmp(c.name, "fwd") != 0) || pb_case_int(&c, "seq", &seq) != PB_OK) return false;
    if (!time_of(emitter, &c, both, &sparse_time) || !time_of(emitter, &dense, both, &dense_time)) return false;
    out->at = (pb_gain_point){(double)seq, sparse_time / dense_time};
    return pb_attn_family(&c, both ? "both" : c.name, &out->family) == PB_OK;
}

static pb_status emit(pb_emitter *emitter, const pb_case *family, pb_gain_point *p, int n)
{
    char note[200];
    double from = (double)NAN;
    if (n < 2) return PB_OK; /* one length has no crossover */
    const pb_crossing how = pb_crossover(p, n, 1, &from);
    snprintf(note, sizeof note, "%d lengths from %.0f to %.0f; %s", n, p[0].tokens, p[n - 1].tokens,
             how == PB_CROSSES       ? "interpolated; dense is faster below, sparse above"
             : how == PB_ALWAYS_PAYS ? "dense is still faster at the longest length"
                                     : "sparse is faster at every length");
    return pb_emit(emitter, family, "sparse_from", from, 0, how == PB_CROSSES ? PB_ROW_OK : PB_ROW_UNSUPPORTED, note);
}

pb_status pb_attn_crossovers(pb_emitter *emitter)
{
    int keys = 0, n = 0;
    while (pb_emitted_key(emitter, keys)) keys++;
    pb_family_point *all = calloc(2 * (size_t)keys + 1, sizeof *all);
    if (!all) return pb_fail(PB_ENOMEM, "no memory for %d lengths", keys);
    /* collects all points before a row is emitted, because each emitted row adds a key */
    for (int i = 0; i < keys; i++) {
        n += point_of(emitter, pb_emitted_key(emitter, i), false, &all[n]);
        n += point_of(emitter, pb_emitted_key(emitter, i), true, &all[n]);
    }
    pb_status s = pb_crossover_families(emitter, all, n, emit);
    free(all);
    return s;
}
