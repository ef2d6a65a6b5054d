/* verdict_all_rows.c - the rows `all rows`: geometric means over the gating rows of a suite and metric, which show what
 * slows everything by less than any single row could show. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/compare/session_hosts.h"
#include "bench/compare/verdict_impl.h"
#include "bench/stats/stats.h"

struct pb_all_rows {
    pb_all_rows *next;
    char key[PB_AXIS_TEXT + 16];
    pb_series base, cand;
    pb_session of_cand, of_base[]; /* of_base: [base.sessions] */
};

bool pb_verdicts_alike(const pb_verdict *a, const pb_verdict *b)
{
    const size_t n = pb_suite_length(a->cand->key);
    return n == pb_suite_length(b->cand->key) && !strncmp(a->cand->key, b->cand->key, n) &&
           !strcmp(a->cand->metric, b->cand->metric);
}

bool pb_verdict_averaged(const pb_verdict *v)
{
    return v->gate->gating && v->evidence.sessions && !v->reference && !v->all_rows;
}

double pb_series_log(const pb_series *s) { return strcmp(s->better, "lower") ? -log(s->median) : log(s->median); }

/* The session of this run in a series; NULL: the series has none. */
static const pb_session *session_of(const pb_series *s, const char *run_id)
{
    for (int k = 0; k < s->sessions; k++)
        if (!strcmp(s->session[k].run_id, run_id)) return &s->session[k];
    return NULL;
}

/* Sets *out to the session whose value is the geometric mean of the values that the rows with the suite and metric of
 * vs->v[first] have in session `run`. False: one of these rows has no value in that session. */
static bool mean_session(const pb_verdicts *vs, size_t first, size_t n, const pb_session *run, pb_session *out)
{
    long double sum = 0;
    int rows = 0;
    for (size_t i = first; i < n; i++) {
        const pb_verdict *v = &vs->v[i];
        if (!pb_verdict_averaged(v) || !pb_verdicts_alike(v, &vs->v[first])) continue;
        const pb_session *s = session_of(v->base, run->run_id);
        if (!s) return false;
        sum += log(s->value);
        rows++;
    }
    *out = *run;
    out->value = (double)expl(sum / rows);
    return true;
}

/* Fills the candidate's series with the geometric mean over the rows, and sets the processes of both sides to the
 * smallest number over the rows. */
static void mean_candidate(const pb_verdicts *vs, size_t first, size_t n, pb_all_rows *a)
{
    long double sum = 0;
    int rows = 0, least = INT_MAX;
    for (size_t i = first; i < n; i++) {
        const pb_verdict *v = &vs->v[i];
        if (!pb_verdict_averaged(v) || !pb_verdicts_alike(v, &vs->v[first])) continue;
        sum += pb_series_log(v->cand);
        if (v->cand->processes < least) least = v->cand->processes;
        if (v->base->processes < a->base.processes) a->base.processes = v->base->processes;
        rows++;
    }
    const double mean = (double)(sum / rows);
    a->cand.processes = least;
    a->of_cand = vs->v[first].cand->session[vs->v[first].cand->sessions - 1];
    a->of_cand.value = a->cand.median = exp(strcmp(a->cand.better, "lower") ? -mean : mean);
}

static pb_status append_one(pb_verdicts *vs, size_t first, size_t n)
{
    const pb_verdict like = vs->v[first];
    const size_t room = (size_t)like.base->sessions;
    pb_all_rows *a = calloc(1, sizeof *a + room * sizeof *a->of_base);
    const pb_session **used = malloc((room + 1) * sizeof *used);
    if (!a || !used) return free(a), free(used), pb_fail(PB_ENOMEM, "compare: out of memory");
    int k = 0;
    const int sessions = pb_sessions_used(like.base, like.cand->host, false, used);
    for (int i = 0; i < sessions; i++) k += mean_session(vs, first, n, used[i], &a->of_base[k]);
    free(used);
    if (!k) return free(a), PB_OK;
    a->next = vs->all_rows;
    vs->all_rows = a;
    snprintf(a->key, sizeof a->key, "%.*s/all rows", (int)pb_suite_length(like.cand->key), like.cand->key);
    a->base = *like.base, a->cand = *like.cand;
    a->base.key = a->cand.key = a->key;
    a->base.trend = a->cand.trend = 0;
    a->base.scatter = a->cand.scatter = (double)NAN;
    a->base.session = a->of_base, a->base.sessions = k;
    a->cand.session = &a->of_cand, a->cand.sessions = 1;
    mean_candidate(vs, first, n, a);
    double x[PB_MEDIAN_MOST];
    const int m = k < PB_MEDIAN_MOST ? k : PB_MEDIAN_MOST;
    for (int i = 0; i < m; i++) x[i] = a->of_base[k - m + i].value;
    a->base.median = pb_median(x, m);
    pb_verdict v = {.base = &a->base,
                    .cand = &a->cand,
                    .gate = like.gate,
                    .id = PB_VERDICT_SAME,
                    .ratio = 1,
                    .worse = 1,
                    .why = "",
                    .all_rows = true};
    v.evidence.sessions = k;
    v.evidence.again = v.evidence.ceiling_moved = (double)NAN;
    v.evidence.noise.shared = like.evidence.noise.shared;
    return pb_verdicts_append(vs, v);
}

/* True if the row `all rows` of the suite and metric of row i exists already, or if it would average row i alone. */
static bool made_or_alone(const pb_verdicts *vs, size_t i, size_t n)
{
    for (size_t k = n; k < vs->n; k++)
        if (pb_verdicts_alike(&vs->v[k], &vs->v[i])) return true;
    for (size_t k = i + 1; k < n; k++)
        if (pb_verdict_averaged(&vs->v[k]) && pb_verdicts_alike(&vs->v[k], &vs->v[i])) return false;
    return true;
}

pb_status pb_all_rows_append(pb_verdicts *vs)
{
    const size_t n = vs->n;
    for (size_t i = 0; i < n; i++)
        if (pb_verdict_averaged(&vs->v[i]) && !made_or_alone(vs, i, n)) PB_TRY(append_one(vs, i, n));
    return PB_OK;
}

void pb_all_rows_free(pb_all_rows *list)
{
    for (pb_all_rows *next; list; list = next) {
        next = list->next;
        free(list);
    }
}
