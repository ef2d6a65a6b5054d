/* verdict_decide.c - applies stored_rule.h to all rows with values: collects what the rule reads, group by group,
 * adjusts for the number of rows, and decides. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "bench/compare/placebo.h"
#include "bench/compare/session_hosts.h"
#include "bench/compare/stored_rule.h"
#include "bench/compare/verdict_impl.h"
#include "bench/stats/stats.h"

enum { MOST_PLACEBOS = 256 };

/* The rows with values, those of one group next to each other, and the rows `all rows` last in their group. */
typedef struct samples {
    size_t n;
    size_t *at;                 /* [n]: index in pb_verdicts.v */
    pb_stored_row *row;         /* [n] */
    const pb_session **session; /* the sessions of all rows, with their values and hosts in x and host */
    double *x;
    int *host;
    pb_stored_processes *processes; /* [2n]: row i has 2i for the base, 2i + 1 for candidate or confirmation */
} samples;

static void free_samples(samples *s)
{
    free(s->at);
    free(s->row);
    free(s->session);
    free(s->x);
    free(s->host);
    free(s->processes);
}

/* ---- what the rule reads of a row ------------------------------------------------------------------ */

/* The processes of a side that is a run; none for a stored baseline. */
static pb_stored_processes processes_of(const pb_series *s)
{
    return (pb_stored_processes){isfinite(s->scatter) ? s->processes : 0, s->scatter};
}

/* Returns a number for the host of session used[k]: the number of the first earlier session that may be from the same
 * host, or k if no earlier session may be. */
static int host_number(const pb_session *const *used, const int *host, int k, bool foreign)
{
    for (int i = 0; i < k; i++)
        if (!pb_hosts_differ(used[i]->host, used[k]->host, foreign)) return host[i];
    return k;
}

/* Fills sample i from the sessions that the rule uses. They begin at *used of s->session, s->x and s->host. */
static void read_row(const pb_verdicts *vs, samples *s, size_t i, size_t *used)
{
    const pb_verdict *v = &vs->v[s->at[i]];
    const pb_session **session = s->session + *used;
    double *x = s->x + *used;
    int *host = s->host + *used;
    const double sign = strcmp(v->base->better, "lower") ? -1 : 1;
    const int n = pb_sessions_used(v->base, v->cand->host, v->reference, session);
    pb_stored_row row = {.x = x, .host = host, .k = n, .y = pb_series_log(v->cand), .another_host = true};
    for (int k = 0; k < n; k++) {
        x[k] = sign * log(session[k]->value);
        host[k] = host_number(session, host, k, v->reference);
        if (!pb_hosts_differ(session[k]->host, v->cand->host, v->reference)) row.another_host = false;
    }
    s->row[i] = row;
    *used += (size_t)n;
    s->processes[2 * i] = processes_of(v->base);
    s->processes[2 * i + 1] = processes_of(v->cand);
}

/* Appends the indices of rows of v[first]'s group to s->at. all_rows: only its row `all rows`; else only its measured
 * rows. */
static void add_group(const pb_verdicts *vs, size_t first, bool all_rows, bool *taken, samples *s)
{
    for (size_t i = first; i < vs->n; i++) {
        if (taken[i] || vs->v[i].all_rows != all_rows || !pb_verdicts_alike(&vs->v[i], &vs->v[first])) continue;
        taken[i] = true;
        s->at[s->n++] = i;
    }
}

/* Lists the rows with values by groups. `taken`: room for all rows. */
static void order_rows(const pb_verdicts *vs, bool *taken, samples *s)
{
    for (size_t i = 0; i < vs->n; i++) taken[i] = !vs->v[i].evidence.sessions;
    for (size_t i = 0; i < vs->n; i++) {
        if (taken[i]) continue;
        add_group(vs, i, false, taken, s);
        add_group(vs, i, true, taken, s);
    }
}

static pb_status read_samples(const pb_verdicts *vs, samples *s)
{
    size_t sessions = 0, used = 0;
    for (size_t i = 0; i < vs->n; i++)
        if (vs->v[i].evidence.sessions) sessions += (size_t)vs->v[i].base->sessions;
    bool *taken = malloc(vs->n + 1);
    *s = (samples){.at = malloc((vs->n + 1) * sizeof *s->at),
                   .row = malloc((vs->n + 1) * sizeof *s->row),
                   .session = malloc((sessions + 1) * sizeof *s->session),
                   .x = malloc((sessions + 1) * sizeof *s->x),
                   .host = malloc((sessions + 1) * sizeof *s->host),
                   .processes = malloc((2 * vs->n + 1) * sizeof *s->processes)};
    const bool enough = taken && s->at && s->row && s->session && s->x && s->host && s->processes;
    if (enough) order_rows(vs, taken, s);
    for (size_t i = 0; enough && i < s->n; i++) read_row(vs, s, i, &used);
    free(taken);
    return enough ? PB_OK : pb_fail(PB_ENOMEM, "compare: out of memory");
}

/* ---- weighing the rows of each group --------------------------------------------------------------- */

/* Samples [from, to) of one group; [from, measured) are not `all rows`. averaged: the number of rows that the row `all
 * rows` averages. */
typedef struct group {
    size_t from, measured, to;
    int averaged;
} group;

/* The group that begins at sample `from`. */
static group group_at(const pb_verdicts *vs, const samples *s, size_t from)
{
    group g = {from, from, from, 0};
    for (; g.to < s->n && pb_verdicts_alike(&vs->v[s->at[g.to]], &vs->v[s->at[from]]); g.to++) {
        const pb_verdict *v = &vs->v[s->at[g.to]];
        g.measured += !v->all_rows;
        g.averaged += pb_verdict_averaged(v);
    }
    return g;
}

/* The placebo pairs of a group, in the candidate's run or in the confirmation. */
typedef struct placebos {
    pb_placebo pair[MOST_PLACEBOS];
    int n;
} placebos;

static void find_placebos(const pb_series_set *set, const pb_series *like, placebos *out)
{
    out->n = pb_placebo_pairs(set, like->key, like->metric, out->pair, MOST_PLACEBOS);
}

/* Weighs sample i of the group with the placebo pairs that a change of its case does not widen. */
static void weigh_row(const samples *s, const group *g, size_t i, const pb_stored_noise *of_group, const placebos *p,
                      const char *key, pb_evidence *out)
{
    double difference[MOST_PLACEBOS];
    pb_stored_noise noise = *of_group;
    noise.placebos = pb_stored_p2(difference, pb_placebo_differences(p->pair, p->n, key, difference));
    pb_stored_weigh(&s->row[i], &noise, i < g->measured ? 1 : g->averaged, out);
}

static void weigh_group(pb_verdicts *vs, const samples *s, const group *g)
{
    const pb_verdict *like = &vs->v[s->at[g->from]];
    const int n = (int)(g->measured - g->from);
    pb_stored_noise noise = {.processes = pb_stored_w2(s->processes + 2 * g->from, 2 * n),
                             .shared = like->evidence.noise.shared};
    placebos p;
    find_placebos(vs->cand, like->cand, &p);
    pb_stored_group(s->row + g->from, n, &noise);
    for (size_t i = g->from; i < g->to; i++) {
        pb_verdict *v = &vs->v[s->at[i]];
        weigh_row(s, g, i, &noise, &p, v->cand->key, &v->evidence);
    }
}

/* ---- confirming rows by their second measurement --------------------------------------------------- */

/* True if the row becomes REGRESSED once a confirmation finds it worse too. */
static bool beyond_for_the_worse(const pb_verdict *v)
{
    const pb_evidence *e = &v->evidence;
    return v->gate->gating && !v->reference && e->sessions && e->change > 0 && pb_stored_enough(e) &&
           pb_stored_beyond(e->change, e->p_adjusted, PB_STORED_ALPHA);
}

/* Replaces the candidates and their processes in a group's samples by those that were measured again; y becomes NaN
 * where a row was not. The row `all rows` needs all its rows. */
static void read_again(const pb_verdicts *vs, samples *s, const group *g)
{
    double sum = 0;
    for (size_t i = g->from; i < g->measured; i++) {
        const pb_verdict *v = &vs->v[s->at[i]];
        const pb_series *c = pb_series_find(vs->confirmed, v->cand->key, v->cand->metric);
        const bool has_value = c && pb_series_ok(c) && c->median > 0 && c->processes >= PB_ENOUGH_PROCESSES;
        s->row[i].y = has_value ? pb_series_log(c) : (double)NAN;
        s->processes[2 * i] = (pb_stored_processes){0};
        s->processes[2 * i + 1] = has_value ? processes_of(c) : (pb_stored_processes){0};
        if (pb_verdict_averaged(v)) sum += s->row[i].y;
    }
    for (size_t i = g->measured; i < g->to; i++) s->row[i].y = sum / g->averaged;
}

/* Weighs the rows beyond the bound by the processes that measured them again, without those of the run. */
static void weigh_again(pb_verdicts *vs, samples *s, const group *g)
{
    const int n = (int)(g->measured - g->from);
    read_again(vs, s, g);
    pb_stored_noise noise = vs->v[s->at[g->from]].evidence.noise;
    placebos p;
    noise.processes = pb_stored_w2(s->processes + 2 * g->from, 2 * n);
    find_placebos(vs->confirmed, vs->v[s->at[g->from]].cand, &p);
    for (size_t i = g->from; i < g->to; i++) {
        pb_verdict *v = &vs->v[s->at[i]];
        pb_evidence again = {0};
        if (!beyond_for_the_worse(v) || !isfinite(s->row[i].y)) continue;
        weigh_row(s, g, i, &noise, &p, v->cand->key, &again);
        v->evidence.again = again.change;
        v->evidence.p_again = again.change > 0 ? again.p : 1;
    }
}

/* Adjusts p_again over the rows that were measured again. */
static pb_status adjust_again(pb_verdicts *vs, double *p, double *adjusted)
{
    size_t n = 0;
    for (size_t i = 0; i < vs->n; i++)
        if (vs->v[i].evidence.sessions && isfinite(vs->v[i].evidence.again)) p[n++] = vs->v[i].evidence.p_again;
    PB_TRY(pb_holm(p, n, n, adjusted));
    n = 0;
    for (size_t i = 0; i < vs->n; i++)
        if (vs->v[i].evidence.sessions && isfinite(vs->v[i].evidence.again)) vs->v[i].evidence.p_again = adjusted[n++];
    return PB_OK;
}

static pb_status confirm(pb_verdicts *vs, samples *s, double *p, double *adjusted)
{
    for (size_t i = 0; vs->confirmed && i < s->n;) {
        const group g = group_at(vs, s, i);
        weigh_again(vs, s, &g);
        i = g.to;
    }
    return vs->confirmed ? adjust_again(vs, p, adjusted) : PB_OK;
}

bool pb_verdict_needs_confirmation(const pb_verdicts *vs, const pb_verdict *v)
{
    if (v->unconfirmed && !v->all_rows) return true;
    for (size_t i = 0; i < vs->n && pb_verdict_averaged(v); i++)
        if (vs->v[i].all_rows && vs->v[i].unconfirmed && pb_verdicts_alike(&vs->v[i], v)) return true;
    return false;
}

/* ---- deciding the verdicts ----------------------------------------------------------------------- */

/* Updates the minima and maxima in *vs (processes, sessions, detectable changes) with a row that counts. */
static void least_and_most(pb_verdicts *vs, const pb_verdict *v)
{
    const pb_evidence *e = &v->evidence;
    if (v->base->processes < vs->base_processes) vs->base_processes = v->base->processes;
    if (v->cand->processes < vs->cand_processes) vs->cand_processes = v->cand->processes;
    if (!e->sessions || v->reference) return;
    if (!vs->figures++) {
        vs->sessions_least = vs->sessions_most = e->sessions;
        vs->detects_least = vs->detects_most = e->detects;
    }
    if (e->sessions < vs->sessions_least) vs->sessions_least = e->sessions;
    if (e->sessions > vs->sessions_most) vs->sessions_most = e->sessions;
    vs->detects_least = fmin(vs->detects_least, e->detects);
    vs->detects_most = fmax(vs->detects_most, e->detects);
}

/* The quantiles t(alpha, nu) of the rule at one alpha, computed when first asked for: they are slow, and nu has few
 * values. */
typedef struct quantiles {
    double alpha, t[PB_STORED_MOST_DF + 1];
} quantiles;

static double quantile(quantiles *q, double nu)
{
    double *t = &q->t[(int)nu];
    if (*t == 0) *t = pb_t_quantile(q->alpha, nu);
    return *t;
}

/* Makes a change SUSPECT if a too short warm-up may have caused it: without the slower side's trend, the change would
 * not be significant by itself. */
static void suspect_warmup(pb_verdict *v, quantiles *alone)
{
    const pb_evidence *e = &v->evidence;
    if (v->id != PB_VERDICT_REGRESSED && v->id != PB_VERDICT_IMPROVED && v->id != PB_VERDICT_SUSPECT) return;
    const double made = log1p(e->change > 0 ? v->cand->trend : v->base->trend);
    if (!(made > 0) || fabs(e->change) - made >= pb_stored_bound(e, quantile(alone, e->nu))) return;
    v->id = PB_VERDICT_SUSPECT;
    v->why = "a warm-up that was too short may have caused the change";
}

/* Makes a row INCONCLUSIVE if a side has too few processes, or only throttled ones. */
static void need_evidence(pb_verdict *v)
{
    const bool of_base = v->base->processes < PB_ENOUGH_PROCESSES, of_cand = v->cand->processes < PB_ENOUGH_PROCESSES;
    if (of_base || of_cand) {
        v->id = PB_VERDICT_INCONCLUSIVE;
        v->why = of_cand ? "too few processes of the candidate" : "too few processes of the base";
    }
    if (pb_series_throttled(v->base) || pb_series_throttled(v->cand)) {
        v->id = PB_VERDICT_INCONCLUSIVE;
        v->why = pb_series_throttled(v->cand) ? v->cand->note : v->base->note;
    }
}

/* The verdict of a row with values. family, alone: quantiles for a gating row and for a row by itself. */
static void decide_by_rule(pb_verdict *v, quantiles *family, quantiles *alone)
{
    pb_evidence *e = &v->evidence;
    const bool flagged = beyond_for_the_worse(v);
    v->worse = exp(e->change);
    v->ratio = !strcmp(v->cand->better, "lower") ? v->worse : exp(-e->change);
    e->detects = pb_stored_bound(e, quantile(v->gate->gating ? family : alone, e->nu));
    v->id = v->reference ? PB_VERDICT_REFERENCE : pb_stored_verdict(e, v->gate->stored_limit);
    if (v->reference) return;
    suspect_warmup(v, alone);
    need_evidence(v);
    v->unconfirmed = flagged && v->id == PB_VERDICT_SUSPECT && !*v->why;
    if (v->unconfirmed) v->why = isnan(e->again) ? "not confirmed" : "not confirmed when measured again";
}

/* True if the row is counted in pb_verdicts.count. A row whose base is from another host is counted only as REFERENCE
 * or FAILED. */
static bool counts(const pb_verdict *v)
{
    if (v->id == PB_VERDICT_FAILED) return true;
    if (v->reference && v->id != PB_VERDICT_REFERENCE) return false;
    return v->id == PB_VERDICT_INCOMPARABLE || (v->gate->gating && v->id != PB_VERDICT_INFO);
}

static void decide(pb_verdicts *vs, pb_verdict *v, quantiles *family, quantiles *alone)
{
    if (v->evidence.sessions) decide_by_rule(v, family, alone);
    if (v->machine && v->evidence.sessions && v->id != PB_VERDICT_SAME) {
        v->id = PB_VERDICT_INFO;
        v->why = "a ceiling measures the machine, not the code";
    }
    v->counts = counts(v);
    if (v->counts) vs->count[v->id]++;
    if (v->counts && v->base && v->cand && !isnan(v->worse)) least_and_most(vs, v);
}

/* True for rows whose p-value Holm's procedure adjusts: gating rows that were compared with sessions of their host. */
static bool adjusts(const pb_verdict *v) { return v->gate->gating && v->evidence.sessions && !v->reference; }

/* Adjusts the p-values of the gating rows by Holm, once for each direction: a row that changed in the other direction
 * enters with p = 1. p and adjusted have room for every row. */
static pb_status adjust(pb_verdicts *vs, double *p, double *adjusted)
{
    for (int sign = 1; sign >= -1; sign -= 2) {
        size_t n = 0;
        for (size_t i = 0; i < vs->n; i++)
            if (adjusts(&vs->v[i])) p[n++] = sign * vs->v[i].evidence.change > 0 ? vs->v[i].evidence.p : 1;
        PB_TRY(pb_holm(p, n, (size_t)vs->family, adjusted));
        n = 0;
        for (size_t i = 0; i < vs->n; i++) {
            pb_evidence *e = &vs->v[i].evidence;
            if (!adjusts(&vs->v[i])) continue;
            if (sign * e->change > 0) e->p_adjusted = adjusted[n];
            n++;
        }
    }
    return PB_OK;
}

/* True for every gating row, whatever its verdict (INFO and references excepted). The family of Holm's adjustment must
 * not depend on the values. */
static bool of_family(const pb_verdict *v) { return v->gate->gating && v->id != PB_VERDICT_INFO && !v->reference; }

static pb_status decide_all(pb_verdicts *vs, samples *s, double *p, double *adjusted)
{
    for (size_t i = 0; i < s->n;) {
        const group g = group_at(vs, s, i);
        weigh_group(vs, s, &g);
        i = g.to;
    }
    PB_TRY(adjust(vs, p, adjusted));
    PB_TRY(confirm(vs, s, p, adjusted));
    quantiles family = {.alpha = PB_STORED_ALPHA / (vs->family ? vs->family : 1)}, alone = {.alpha = PB_STORED_ALPHA};
    for (size_t i = 0; i < vs->n; i++) decide(vs, &vs->v[i], &family, &alone);
    return PB_OK;
}

pb_status pb_verdicts_decide(pb_verdicts *vs)
{
    samples s = {0};
    PB_TRY(pb_all_rows_append(vs));
    vs->base_processes = vs->cand_processes = INT_MAX;
    for (size_t i = 0; i < vs->n; i++) vs->family += of_family(&vs->v[i]);
    double *p = malloc((vs->n + 1) * sizeof *p), *adjusted = malloc((vs->n + 1) * sizeof *adjusted);
    pb_status st = p && adjusted ? read_samples(vs, &s) : pb_fail(PB_ENOMEM, "compare: out of memory");
    if (st == PB_OK) st = decide_all(vs, &s, p, adjusted);
    free_samples(&s);
    free(p);
    free(adjusted);
    return st;
}
