/* verdict_explain.c - explains in one line why a comparison with stored sessions has its verdict. */
#include <math.h>
#include <string.h>

#include "bench/compare/compare_render.h"
#include "bench/compare/stored_rule.h"

const char *pb_session_name(const pb_session *s)
{
    return s->run_id + (pb_stored(s->run_id) ? strlen(PB_BASELINE_RUN) : 0);
}

bool pb_verdict_creeps(const pb_verdict *v)
{
    return v->counts && v->evidence.sessions > 1 && v->id != PB_VERDICT_REGRESSED &&
           v->evidence.since_oldest > log1p(v->gate->stored_limit) + 1e-9;
}

void pb_detects_text(const pb_verdicts *vs, char *out, size_t n)
{
    char least[PB_FIGURE_TEXT], most[PB_FIGURE_TEXT];
    pb_worsening(least, vs->detects_least, "");
    pb_worsening(most, vs->detects_most, "");
    if (!vs->figures) snprintf(out, n, "-");
    else if (strcmp(least, most) == 0) snprintf(out, n, "%s", most);
    else snprintf(out, n, "%s..%s", least, most);
}

static void say_ceiling(const pb_verdict *v, FILE *f)
{
    const double moved = pb_percent(exp(v->evidence.ceiling_moved), 0.01);
    if (isfinite(moved)) fprintf(f, "; its ceiling %s changed by %+.2f %%", v->gate->ceiling, moved);
}

/* Prints the limit that the change was compared with. */
static void say_rule(const pb_verdict *v, const pb_verdicts *vs, FILE *f)
{
    const pb_evidence *e = &v->evidence;
    char detects[PB_FIGURE_TEXT];
    pb_worsening(detects, e->detects, " ");
    if (e->sessions < PB_MIN_SESSIONS) {
        fprintf(f, "; fewer than %d sessions cannot show the noise, so a change is at most SUSPECT", PB_MIN_SESSIONS);
        return;
    }
    fprintf(f, "; sd %.3g %%, p=%.2g", 100 * e->sd, e->p);
    if (v->gate->gating) fprintf(f, ", %.2g after Holm over %d gating rows", e->p_adjusted, vs->family);
    else fprintf(f, ", not gating");
    fprintf(f, " (alpha %g); detectable change %s", PB_STORED_ALPHA, detects);
}

static void say_suspect(const pb_verdict *v, FILE *f)
{
    const pb_evidence *e = &v->evidence;
    const double limit = 100 * v->gate->stored_limit;
    const bool many = e->sessions >= PB_MIN_SESSIONS;
    if (many && e->p <= PB_STORED_ALPHA)
        fprintf(f, "; significant by itself, but not after the adjustment for the number of rows");
    else if (many && e->detects > log1p(v->gate->stored_limit))
        fprintf(f, "; the sessions are too noisy to detect a change of stored_limit (%.3g %%)", limit);
    else fprintf(f, "; more than a third of stored_limit (%.3g %%)%s", limit / 3, many ? ", but not significant" : "");
    fprintf(f, ": compare the two executables, or %s",
            many ? "reduce the noise of the machine (bench doctor)" : "store more sessions");
}

static void say_same(const pb_verdict *v, FILE *f)
{
    if (v->evidence.sessions >= PB_MIN_SESSIONS)
        fprintf(f, "; no significant change of %g %% or more", 100 * PB_STORED_MIN_EFFECT);
    fprintf(f, "; not more than a third of stored_limit (%.3g %%)", 100 * v->gate->stored_limit / 3);
}

static void say_why(const pb_verdict *v, FILE *f)
{
    switch (v->id) {
    case PB_VERDICT_REGRESSED: fprintf(f, "; significant, and at least %g %%", 100 * PB_STORED_MIN_EFFECT); break;
    case PB_VERDICT_IMPROVED: fprintf(f, "; significantly better: update the baseline"); break;
    case PB_VERDICT_SAME: say_same(v, f); break;
    case PB_VERDICT_SUSPECT: say_suspect(v, f); break;
    case PB_VERDICT_INCONCLUSIVE: fprintf(f, "; %s", v->why); break;
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
    else fprintf(f, " against the %s of %d sessions", e->sessions < PB_MIN_SESSIONS ? "median" : "mean", e->sessions);
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
