/* simulate.c - builds comparisons from recorded pairs and counts the verdicts of the rule. */
#include "bench/pairs/simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/stats/stats.h"
#include "kernels/engine/bind.h"

/* One pair of a built comparison. */
typedef struct draw {
    int pair;    /* index over the pairs of all sessions */
    double sign; /* 1, or -1: the sides are swapped */
} draw;

typedef struct simulator {
    const pb_sim_row *rows;
    size_t n;
    const pb_sim_session *sessions;
    int nsessions, pairs;
    const pb_sim_opts *o;
    int size;               /* pairs per comparison: look[1] */
    double *noise;          /* [n][pairs] the recorded differences, after centre() */
    double *work;           /* [n][size] the differences of the current comparison */
    draw *draws;            /* [trials][size] the resampled comparisons */
    pb_pair_row *judged;    /* [n] the current comparison, as pb_pair_judge takes it */
    pb_pair_result *result; /* [n] its result */
} simulator;

/* ---- recorded differences ------------------------------------------------------------------------ */

static pb_status check(const pb_sim_row *rows, size_t n, const pb_sim_session *sessions, int nsessions,
                       const pb_sim_opts *o, int *pairs)
{
    *pairs = 0;
    if (!(o->inject > 0 && o->inject < 10))
        return pb_fail(PB_EINVAL, "simulate: inject=%g must be above 0 and below 10", o->inject);
    if (o->trials < 1 || o->trials > 100000)
        return pb_fail(PB_EINVAL, "simulate: %d trials, need 1 to 100000", o->trials);
    for (int i = 0; i < nsessions; i++) {
        bool centred = sessions[i].paired && !o->same_code;
        if (sessions[i].pairs < (centred ? 2 : 1))
            return pb_fail(PB_EINVAL, "simulate: a session has only %d pairs", sessions[i].pairs);
        *pairs += sessions[i].pairs;
    }
    if (*pairs < o->rule.look[0])
        return pb_fail(PB_EINVAL, "simulate: %d pairs were recorded; the first look needs %d", *pairs, o->rule.look[0]);
    if (!n) return pb_fail(PB_EINVAL, "simulate: no rows");
    for (size_t r = 0; r < n; r++)
        for (int i = 0; i < *pairs; i++)
            if (!isfinite(rows[r].log_ratio[i]))
                return pb_fail(PB_EINVAL, "%s: %s has no finite ratio in pair %d", rows[r].key, rows[r].metric, i);
    return PB_OK;
}

/* Copies the differences of one row to `noise`. Subtracts the mean of each session whose sides may differ
 * (simulate.h). */
static void centre(const simulator *m, const double *recorded, double *noise)
{
    int from = 0;
    for (int k = 0; k < m->nsessions; from += m->sessions[k++].pairs) {
        const int n = m->sessions[k].pairs;
        bool centred = m->sessions[k].paired && !m->o->same_code;
        double mean = centred ? pb_sample_of(recorded + from, n).mean : 0;
        double stretch = centred ? sqrt((double)n / (n - 1)) : 1;
        for (int i = from; i < from + n; i++) noise[i] = (recorded[i] - mean) * stretch;
    }
}

/* ---- one comparison ------------------------------------------------------------------------------ */

/* Sets the input of the rule for one row: the drawn pairs' noise plus `change`, a logarithm; positive is worse. */
static void set_row(const simulator *m, size_t r, const draw *d, int pairs, double change)
{
    const double *noise = m->noise + r * (size_t)m->pairs;
    double *x = m->work + r * (size_t)m->size, shift = m->rows[r].higher ? -change : change;
    for (int i = 0; i < pairs; i++) x[i] = d[i].sign * noise[d[i].pair] + shift;
    m->judged[r] = (pb_pair_row){.key = m->rows[r].key,
                                 .metric = m->rows[r].metric,
                                 .higher = m->rows[r].higher,
                                 .gating = true,
                                 .log_ratio = x,
                                 .n = pairs};
}

/* Passes all pairs at once: pb_pair_judge takes both looks itself, and leaves a row that was decided at the first look
 * unchanged. */
static pb_status judge(const simulator *m, size_t from, size_t n, pb_pair_report *report)
{
    return pb_pair_judge(m->judged + from, n, &m->o->rule, m->result, report);
}

/* Judges rows [from, from+n) as one family and adds the result to *c. */
static pb_status count_family(const simulator *m, size_t from, size_t n, pb_sim_count *c)
{
    pb_pair_report report;
    PB_TRY(judge(m, from, n, &report));
    bool early = true;
    for (size_t i = 0; i < n; i++) early &= m->result[i].look == 1;
    c->comparisons++;
    c->alarms += report.count[PB_VERDICT_REGRESSED] > 0;
    c->improvements += report.count[PB_VERDICT_IMPROVED] > 0;
    c->undecided += report.count[PB_VERDICT_INCONCLUSIVE] > 0;
    c->early += early && !report.count[PB_VERDICT_INCONCLUSIVE];
    return PB_OK;
}

static pb_status count_comparison(const simulator *m, const draw *d, int pairs, pb_sim_count *c)
{
    for (size_t r = 0; r < m->n; r++) set_row(m, r, d, pairs, 0);
    if (m->o->family) return count_family(m, 0, m->n, c);
    for (size_t r = 0; r < m->n; r++) PB_TRY(count_family(m, r, 1, c));
    return PB_OK;
}

/* ---- A/A comparisons ----------------------------------------------------------------------------- */

static pb_status count_recorded(const simulator *m, uint64_t seed, pb_sim_count *c)
{
    draw d[PB_SIGN_FLIP_MAX];
    int from = 0;
    for (int k = 0; k < m->nsessions; from += m->sessions[k++].pairs) {
        const pb_sim_session *s = &m->sessions[k];
        for (int at = 0, pairs; s->pairs - at >= m->o->rule.look[0]; at += pairs) {
            pairs = s->pairs - at < m->size ? s->pairs - at : m->size;
            for (int i = 0; i < pairs; i++) {
                int pair = from + at + i;
                bool flipped = !s->paired && pb_uniform(~seed, (uint64_t)pair) < 0.5;
                d[i] = (draw){pair, flipped ? -1 : 1};
            }
            PB_TRY(count_comparison(m, d, pairs, c));
        }
    }
    return PB_OK;
}

static void draw_trials(const simulator *m, uint64_t seed)
{
    uint64_t u = 0;
    const size_t count = (size_t)m->o->trials * (size_t)m->size;
    for (size_t i = 0; i < count; i++) {
        draw *d = &m->draws[i];
        if (i % (size_t)m->size % PB_SIM_BLOCK == 0) {
            d->pair = (int)(pb_uniform(seed, u++) * m->pairs);
        } else { /* within a block: the pair that follows in the session */
            int from = 0, k = 0;
            while (d[-1].pair >= from + m->sessions[k].pairs) from += m->sessions[k++].pairs;
            d->pair = d[-1].pair + 1 < from + m->sessions[k].pairs ? d[-1].pair + 1 : from;
        }
        d->sign = pb_uniform(seed, u++) < 0.5 ? -1 : 1;
    }
}

/* ---- an injected change -------------------------------------------------------------------------- */

/* Counts the trials, among the first `trials`, in which `change` is missed in row r. Stops early when there are more
 * than `most`. */
static pb_status count_missed(const simulator *m, size_t r, double change, int trials, int most, int *missed,
                              int *early)
{
    pb_pair_report report;
    const size_t from = m->o->family ? 0 : r, to = m->o->family ? m->n : r + 1;
    *missed = *early = 0;
    for (int t = 0; t < trials && *missed <= most; t++) {
        const draw *d = m->draws + (size_t)t * (size_t)m->size;
        for (size_t i = from; i < to; i++) set_row(m, i, d, m->size, i == r ? change : 0);
        PB_TRY(m->o->family ? judge(m, 0, m->n, &report) : judge(m, r, 1, &report));
        const pb_pair_result *result = &m->result[m->o->family ? r : 0];
        bool found = result->id == PB_VERDICT_REGRESSED;
        *missed += !found;
        *early += found && result->look == 1;
    }
    return PB_OK;
}

/* Searches for the detectable change. Larger changes are found in more trials, so it doubles the change until enough
 * trials find it, then bisects on a logarithmic scale. */
static pb_status search(const simulator *m, size_t r, double *detectable)
{
    const int trials = m->o->trials < PB_SIM_SEARCH ? m->o->trials : PB_SIM_SEARCH;
    const int most = (int)((1 - m->o->rule.power) * trials + 1e-9);
    double lo = fmax(0.8 * log(1 + m->o->rule.min_effect), 1e-6), hi = lo;
    int missed = trials, early;
    do {
        lo = hi;
        hi *= 2;
        PB_TRY(count_missed(m, r, hi, trials, most, &missed, &early));
    } while (missed > most && hi < 5);
    while (missed <= most && hi / lo > 1.03) {
        double mid = sqrt(lo * hi);
        int mid_missed;
        PB_TRY(count_missed(m, r, mid, trials, most, &mid_missed, &early));
        if (mid_missed <= most) hi = mid;
        else lo = mid;
    }
    *detectable = missed <= most ? hi : HUGE_VAL;
    return PB_OK;
}

static pb_status inject(const simulator *m, pb_sim_found *found, pb_simulation *sum)
{
    double *median = malloc(m->n * sizeof *median);
    if (!median) return pb_fail(PB_ENOMEM, "simulate: out of memory for %zu rows", m->n);
    pb_status s = PB_OK;
    for (size_t r = 0; r < m->n && s == PB_OK; r++) {
        int missed;
        found[r].sd = pb_sample_of(m->noise + r * (size_t)m->pairs, m->pairs).sd;
        s = count_missed(m, r, log(1 + m->o->inject), m->o->trials, m->o->trials, &missed, &found[r].early);
        if (s == PB_OK) s = search(m, r, &found[r].detectable);
        if (s != PB_OK) break;
        found[r].found = m->o->trials - missed;
        median[r] = found[r].detectable;
        sum->injected += m->o->trials;
        sum->found += found[r].found;
        sum->early += found[r].early;
    }
    if (s == PB_OK) sum->detectable = pb_median(median, (int)m->n);
    free(median);
    return s;
}

/* ---- the whole simulation ------------------------------------------------------------------------ */

static pb_status run(simulator *m, pb_sim_found *found, pb_simulation *sum)
{
    uint64_t seed = 0;
    for (size_t r = 0; r < m->n; r++) {
        seed = seed * 31 + pb_seed_of(m->rows[r].log_ratio, m->pairs);
        centre(m, m->rows[r].log_ratio, m->noise + r * (size_t)m->pairs);
    }
    draw_trials(m, seed);
    PB_TRY(count_recorded(m, seed, &sum->recorded));
    for (int t = 0; t < m->o->trials; t++)
        PB_TRY(count_comparison(m, m->draws + (size_t)t * (size_t)m->size, m->size, &sum->resampled));
    return inject(m, found, sum);
}

pb_status pb_simulate(const pb_sim_row *rows, size_t n, const pb_sim_session *sessions, int nsessions,
                      const pb_sim_opts *o, pb_sim_found *found, pb_simulation *out)
{
    simulator m = {.rows = rows, .n = n, .sessions = sessions, .nsessions = nsessions, .o = o, .size = o->rule.look[1]};
    PB_TRY(pb_pair_judge(NULL, 0, &o->rule, NULL, &(pb_pair_report){0})); /* only to check the options */
    PB_TRY(check(rows, n, sessions, nsessions, o, &m.pairs));
    pb_simulation sum = {.pairs = m.pairs};
    pb_sim_found *filled = malloc(n * sizeof *filled);
    m.noise = malloc(n * (size_t)m.pairs * sizeof *m.noise);
    m.work = malloc(n * (size_t)m.size * sizeof *m.work);
    m.draws = malloc((size_t)o->trials * (size_t)m.size * sizeof *m.draws);
    m.judged = malloc(n * sizeof *m.judged);
    m.result = malloc(n * sizeof *m.result);
    pb_status s = PB_ENOMEM;
    if (filled && m.noise && m.work && m.draws && m.judged && m.result) s = run(&m, filled, &sum);
    else pb_fail(s, "simulate: out of memory for %zu rows and %d trials", n, o->trials);
    if (s == PB_OK) {
        memcpy(found, filled, n * sizeof *found);
        *out = sum;
    }
    free(filled);
    free(m.noise);
    free(m.work);
    free(m.draws);
    free(m.judged);
    free(m.result);
    return s;
}
