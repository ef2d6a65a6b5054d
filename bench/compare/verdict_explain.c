/* verdict_explain.c - explains in one line why a comparison with stored sessions has its verdict. */
#include <math.h>
#include <string.h>

#include "bench/compare/compare_render.h"
#include "bench/compare/stored_rule.h"
#include "bench/stats/stats.h"

const char *pb_session_name(const pb_session *s)
{
    return s->run_id + (pb_stored(s->run_id) ? strlen(PB_BASELINE_RUN) : 0);
}

bool pb_verdict_creeps(const pb_verdict *v)
{
    return v->counts && !v->reference && v->evidence.sessions > 1 && v->id != PB_VERDICT_REGRESSED &&
           v->evidence.since_oldest > log1p(v->gate->stored_limit) + 1e-9;
}

void pb_detects_text(const pb_verdicts *vs, const pb_outlook *outlook, char *out, size_t n)
{
    char least[PB_FIGURE_TEXT], most[PB_FIGURE_TEXT];
    const bool ahead = !vs->figures && outlook && outlook->rows;
    pb_worsening(least, ahead ? outlook->detects_least : vs->detects_least, "");
    pb_worsening(most, ahead ? outlook->detects_most : vs->detects_most, "");
    if (!vs->figures && !ahead) snprintf(out, n, "-");
    else if (strcmp(least, most) == 0) snprintf(out, n, "%s", most);
    else snprintf(out, n, "%s..%s", least, most);
}

static void say_ceiling(const pb_verdict *v, FILE *f)
{
    const double moved = pb_percent(exp(v->evidence.ceiling_moved), 0.01);
    if (isfinite(moved)) fprintf(f, "; its ceiling %s changed by %+.2f %%", v->gate->ceiling, moved);
}

static double percent(double change) { return pb_percent(exp(change), 0.01); }

/* Prints the spread of a session and where it comes from: what the row's sessions show, and the prior. The prior is
 * made from processes (w) and placebo pairs (p), and from what a session shares or from the sessions of the group. */
static void say_noise(const pb_verdict *v, FILE *f)
{
    const pb_evidence *e = &v->evidence;
    const bool of_group = e->sessions - e->hosts >= 2 && !v->all_rows;
    fprintf(f, "; sd of a session %.3g %% (", 100 * e->sd);
    if (e->sessions > e->hosts) fprintf(f, "shown %.3g %%, ", 100 * e->spread);
    fprintf(f, "prior %.3g %%: w %.3g %%", 100 * e->prior, 100 * sqrt(e->noise.processes));
    if (e->noise.placebos > 0) fprintf(f, ", p %.3g %%", 100 * sqrt(e->noise.placebos));
    fprintf(f, of_group ? ", sessions of the group %.3g %%)" : ", shared %.3g %%)",
            100 * sqrt(of_group ? e->noise.sessions : e->noise.shared));
    if (e->pool) fprintf(f, ", between %d host%s %.3g %%", e->hosts, e->hosts == 1 ? "" : "s", 100 * e->between);
}

/* Prints the noise, the test of the change (se, nu, p, p after Holm) and the detectable change. */
static void say_rule(const pb_verdict *v, const pb_verdicts *vs, FILE *f)
{
    const pb_evidence *e = &v->evidence;
    char detects[PB_FIGURE_TEXT];
    pb_worsening(detects, e->detects, " ");
    say_noise(v, f);
    fprintf(f, "; se %.3g %%, nu %g, p=%.2g", 100 * e->se, e->nu, e->p);
    if (v->reference) return;
    if (v->gate->gating) fprintf(f, ", %.2g after Holm over %d gating rows", e->p_adjusted, vs->family);
    else fprintf(f, ", not gating");
    fprintf(f, " (alpha %g); detectable change %s", PB_STORED_ALPHA, detects);
}

static void say_reference(const pb_verdict *v, FILE *f)
{
    pb_verdict_cells cells;
    pb_verdict_text(v, &cells);
    fprintf(f, "; %s; the sessions are not known to be from this host", cells.interval);
}

static void say_suspect(const pb_verdict *v, FILE *f)
{
    const pb_evidence *e = &v->evidence;
    if (*v->why && !v->unconfirmed) fprintf(f, "; %s", v->why);
    else if (v->unconfirmed && isnan(e->again)) fprintf(f, "; significant, but not confirmed by measuring it again");
    else if (v->unconfirmed)
        fprintf(f, "; significant, but not confirmed: measured again, it is %+.2f %%, p=%.2g (alpha %g)",
                percent(e->again), e->p_again, PB_STORED_ALPHA_AGAIN);
    else if (v->gate->gating && e->p_adjusted <= PB_STORED_ALPHA && e->pool)
        fprintf(f, "; significant, but REGRESSED and IMPROVED need %d sessions of %d hosts", PB_STORED_SESSIONS,
                PB_STORED_HOSTS);
    else if (v->gate->gating && e->p_adjusted <= PB_STORED_ALPHA)
        fprintf(f, "; significant, but REGRESSED and IMPROVED need %d sessions", PB_STORED_SESSIONS);
    else if (v->gate->gating)
        fprintf(f, "; significant by itself, but not after the adjustment for the number of rows");
    else fprintf(f, "; significant");
    fprintf(f, ": compare the two executables");
}

static void say_inconclusive(const pb_verdict *v, FILE *f)
{
    const pb_evidence *e = &v->evidence;
    char most[PB_FIGURE_TEXT];
    pb_worsening(most, fabs(e->change) + pb_t_quantile(PB_STORED_ALPHA_SAME, e->nu) * e->se, " ");
    if (*v->why) fprintf(f, "; %s", v->why);
    else
        fprintf(f, "; not significant, and not shown to be within stored_limit (%.3g %%): the change may be %s",
                100 * v->gate->stored_limit, most);
}

static void say_why(const pb_verdict *v, FILE *f)
{
    switch (v->id) {
    case PB_VERDICT_REGRESSED:
        fprintf(f, "; significant; measured again, it is %+.2f %%, p=%.2g (alpha %g)", percent(v->evidence.again),
                v->evidence.p_again, PB_STORED_ALPHA_AGAIN);
        break;
    case PB_VERDICT_IMPROVED: fprintf(f, "; significantly better: update the baseline"); break;
    case PB_VERDICT_SAME: fprintf(f, "; within stored_limit (%.3g %%)", 100 * v->gate->stored_limit); break;
    case PB_VERDICT_SUSPECT: say_suspect(v, f); break;
    case PB_VERDICT_INCONCLUSIVE: say_inconclusive(v, f); break;
    case PB_VERDICT_REFERENCE: say_reference(v, f); break;
    default: break;
    }
}

static void say_figures(const pb_verdict *v, const pb_verdicts *vs, FILE *f)
{
    const pb_evidence *e = &v->evidence;
    char oldest[PB_FIGURE_TEXT];
    if (v->ratio >= 10 || v->ratio <= 0.1) fprintf(f, "x %.3g", v->ratio);
    else fprintf(f, "%+.2f %%", pb_percent(v->ratio, 0.01));
    if (e->sessions == 1) fprintf(f, " against session %s", pb_session_name(v->base->session));
    else fprintf(f, " against the mean of %d sessions", e->sessions);
    say_rule(v, vs, f);
    say_why(v, f);
    say_ceiling(v, f);
    if (!pb_verdict_creeps(v)) return;
    pb_worsening(oldest, e->since_oldest, " ");
    fprintf(f, "; %s worse than the oldest session", oldest);
}

void pb_verdict_explain(const pb_verdict *v, const pb_verdicts *vs, char out[PB_EXPLAIN_TEXT])
{
    static const char *const what[] = {
#define X(id, text) text,
        PB_VERDICT_MAP(X)
#undef X
    };
    memset(out, 0, PB_EXPLAIN_TEXT);
    FILE *f = fmemopen(out, PB_EXPLAIN_TEXT - 1, "w"); /* cuts off what does not fit; the last byte stays 0 */
    if (!f) return;
    fprintf(f, "%s: ", pb_verdict_names[v->id]);
    if (v->evidence.sessions) say_figures(v, vs, f);
    else if (v->base && v->cand && v->id == PB_VERDICT_SAME && !*v->why) fprintf(f, "the value is zero on both sides");
    else fprintf(f, "%s%s%s", what[v->id], *v->why ? ": " : "", v->why);
    if (v->machine && v->evidence.sessions && *v->why) fprintf(f, "; %s", v->why);
    fclose(f);
}
