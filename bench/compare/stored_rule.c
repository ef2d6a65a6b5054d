/* stored_rule.c - implements the rule whose table is in stored_rule.h. */
#include "bench/compare/stored_rule.h"
#include "bench/stats/stats.h"

#include <math.h>

static const double slack = 1e-9; /* so that a change of exactly the limit is within it, despite rounding */

double pb_stored_w2(const pb_stored_processes *p, int n)
{
    double sum = 0;
    int sides = 0;
    for (int i = 0; i < n; i++) {
        if (p[i].n < PB_ENOUGH_PROCESSES || !isfinite(p[i].variance)) continue;
        sum += pb_median_variance(p[i].n) * p[i].variance;
        sides++;
    }
    return sides ? sum / sides : 0;
}

double pb_stored_p2(const double *difference, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += difference[i] * difference[i];
    return n > 0 ? sum / n / 2 : 0;
}

void pb_stored_group(const pb_stored_row *rows, int n, pb_stored_noise *noise)
{
    double inside = 0, between = 0;
    int df = 0, pools = 0;
    for (int i = 0; i < n; i++) {
        const pb_groups g = pb_groups_of(rows[i].x, rows[i].host, rows[i].k);
        if (g.within_df >= 2) inside += g.within_df * g.within, df += g.within_df;
        if (g.groups > 1) between += pb_between_variance(&g, g.within), pools++;
    }
    noise->sessions = df ? inside / df : 0;
    noise->hosts = pools ? between / pools : 0;
}

/* prior2 of the table. */
static double prior_of(const pb_stored_noise *n, const pb_groups *g, int averaged)
{
    const double u2 = fmax(n->processes, n->placebos);
    if (averaged > 1) return fmax(n->shared + u2 / averaged, g->within);
    return g->within_df < 2 ? u2 + n->shared : fmax(u2, n->sessions);
}

/* g2 of the table. */
static double between_hosts(const pb_stored_noise *n, const pb_groups *g, double s2, int averaged)
{
    const double own = pb_between_variance(g, s2), least = PB_STORED_HOSTS_SD * PB_STORED_HOSTS_SD;
    return pb_shrunk_variance(fmax(least, averaged > 1 ? own : n->hosts), PB_STORED_PRIOR_DF, own, g->groups - 1);
}

/* P(T > size/se); without noise, 0 or 1. */
static double tail(double size, const pb_evidence *e)
{
    return e->se > 0 ? pb_t_tail(size / e->se, e->nu) : size > 0 ? 0 : 1;
}

void pb_stored_weigh(const pb_stored_row *row, const pb_stored_noise *noise, int averaged, pb_evidence *out)
{
    const pb_groups g = pb_groups_of(row->x, row->host, row->k);
    const double prior = prior_of(noise, &g, averaged);
    const double s2 = pb_shrunk_variance(prior, PB_STORED_PRIOR_DF, g.within, g.within_df);
    const bool pool = g.groups > 1 || row->another_host;
    const double g2 = pool ? between_hosts(noise, &g, s2, averaged) : 0;
    out->sessions = row->k;
    out->hosts = g.groups;
    out->pool = pool;
    out->noise = *noise;
    out->centre = g.mean;
    out->change = row->y - g.mean;
    out->since_oldest = row->y - row->x[0];
    out->spread = sqrt(g.within);
    out->prior = sqrt(prior);
    out->sd = sqrt(s2);
    out->between = sqrt(g2);
    out->se = sqrt(s2 + g2 + (g2 + s2 * g.inverse) / g.groups);
    out->nu = fmin(PB_STORED_PRIOR_DF - 1 + (pool ? g.groups : row->k), PB_STORED_MOST_DF);
    out->p = tail(fabs(out->change), out);
    out->p_adjusted = out->p;
}

double pb_stored_bound(const pb_evidence *e, double t) { return fmax(t * e->se, log1p(PB_STORED_MIN_EFFECT)); }

bool pb_stored_enough(const pb_evidence *e)
{
    return e->sessions >= PB_STORED_SESSIONS && (!e->pool || e->hosts >= PB_STORED_HOSTS);
}

bool pb_stored_beyond(double change, double p, double alpha)
{
    return p <= alpha && fabs(change) >= log1p(PB_STORED_MIN_EFFECT) - slack;
}

/* True if the row was measured again, and these processes alone are worse beyond the bound. */
static bool confirmed(const pb_evidence *e)
{
    return e->again > 0 && pb_stored_beyond(e->again, e->p_again, PB_STORED_ALPHA_AGAIN);
}

pb_verdict_id pb_stored_verdict(const pb_evidence *e, double limit)
{
    const bool beyond = pb_stored_beyond(e->change, e->p_adjusted, PB_STORED_ALPHA);
    if (beyond && pb_stored_enough(e) && e->change < 0) return PB_VERDICT_IMPROVED;
    if (beyond && pb_stored_enough(e) && confirmed(e)) return PB_VERDICT_REGRESSED;
    if (beyond || pb_stored_beyond(e->change, e->p, PB_STORED_ALPHA)) return PB_VERDICT_SUSPECT;
    return tail(log1p(limit) - fabs(e->change), e) <= PB_STORED_ALPHA_SAME ? PB_VERDICT_SAME : PB_VERDICT_INCONCLUSIVE;
}
