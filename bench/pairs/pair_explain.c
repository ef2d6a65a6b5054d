/* pair_explain.c - explains a verdict of pair_rule.h in one line. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bench/pairs/pair_rule.h"

static void say(char *out, const char *fmt, ...)
{
    size_t n = strlen(out);
    va_list args;
    va_start(args, fmt);
    vsnprintf(out + n, PB_PAIR_TEXT - n, fmt, args);
    va_end(args);
}

/* Prints the log of a ratio as a change of the metric: in percent, or as a factor if the ratio is >= 10 or <= 1/10. */
static void say_change(char *out, double log_change, bool higher)
{
    double change = higher ? -log_change : log_change, factor = exp(change);
    if (factor >= 10 || factor <= 0.1) say(out, "x %.3g", factor);
    else say(out, "%+.2f %%", 100 * expm1(change));
}

static void say_figures(const pb_pair_result *r, const pb_pair_opts *o, int looks, char *out)
{
    const bool higher = r->row->higher;
    say_change(out, r->estimate, higher);
    say(out, " [");
    say_change(out, higher ? r->interval.hi : r->interval.lo, higher);
    say(out, ", ");
    say_change(out, higher ? r->interval.lo : r->interval.hi, higher);
    say(out, "] (%.4g %% confidence interval) from %d pairs", 100 * (1 - 2 * o->alpha / looks), r->pairs);
    if (looks > 1) say(out, ", look %d of %d", r->look, looks);
    say(out, ": ");
}

static void say_tests(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report, char *out)
{
    double d[PB_SIGN_FLIP_MAX];
    const bool negated = (r->estimate < 0) != r->row->higher;
    for (int i = 0; i < r->pairs; i++) d[i] = negated ? -r->row->log_ratio[i] : r->row->log_ratio[i];
    say(out, "sign-flip test p=%.2g", pb_sign_flip(d, r->pairs, 0));
    if (r->row->gating) say(out, ", %.2g jointly with %d gating rows", r->p_adjusted, report->gating);
    else say(out, ", %.2g", r->p_adjusted);
    say(out, " for %d look%s%s (alpha %g)", report->looks, report->looks > 1 ? "s" : "",
        r->row->gating ? "" : ", not gating", o->alpha);
}

/* For an INCONCLUSIVE row: prints which change these pairs could find, and what would find a smaller one. */
static void say_remedy(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report, char *out)
{
    const double twice = 200 * pb_pair_min_effect(r->row, o);
    if (!isfinite(r->sd)) return;
    const pb_pair_sensitivity sensitivity = pb_pair_sensitivity_of(r, o, report);
    say(out, "; sd %.2g %%: with probability %g, %d pairs detect ", 100 * r->sd, o->power, r->pairs);
    if (isfinite(sensitivity.detectable)) say(out, "a worsening of %.2g %%", 100 * expm1(sensitivity.detectable));
    else say(out, "no worsening");
    if (sensitivity.pairs_needed) say(out, " and %d pairs one of %.2g %%", sensitivity.pairs_needed, twice);
    else say(out, ", and even 1000 pairs none of %.2g %%", twice);
    if (r->why == PB_PAIR_HIDDEN) {
        if (report->more) say(out, "; measure %d more pairs, or this row alone (--filter)", report->more);
        else say(out, "; plan more pairs (--pairs, --max-pairs), or measure this row alone (--filter)");
        return;
    }
    if (report->more) say(out, "; measure %d more pairs", report->more);
    else if (sensitivity.pairs_needed == 0 || sensitivity.pairs_needed > o->look[1])
        say(out, "; reduce the noise of the machine (bench doctor)");
}

void pb_pair_explain(const pb_pair_result *r, const pb_pair_opts *o, const pb_pair_report *report,
                     char out[PB_PAIR_TEXT])
{
    static const char *const why[] = {
#define X(id, what) [PB_PAIR_##id] = what,
        PB_PAIR_WHY_MAP(X)
#undef X
    };
    *out = 0;
    if (r->look && r->why != PB_PAIR_EARLY) {
        say_figures(r, o, report->looks, out);
        say_tests(r, o, report, out);
        if (r->id == PB_VERDICT_SAME)
            say(out, "; equivalence p=%.2g, %.2g for %d looks (alpha %g)", r->same_p,
                fmin(1, report->looks * r->same_p), report->looks, o->alpha_same);
        say(out, "; ");
    }
    say(out, "%s", why[r->why]);
    if (r->why == PB_PAIR_EARLY) say(out, ": the first look is after %d pairs", o->look[0]);
    else if (r->look) say(out, " (minimum effect %g %%)", 100 * pb_pair_min_effect(r->row, o));
    if (r->why == PB_PAIR_WRONG) say(out, ": %s", r->row->wrong);
    if (r->why == PB_PAIR_OBSTACLE) say(out, ": %s", r->row->obstacle);
    if (r->why == PB_PAIR_NO_RATIO && r->row->n > 0) say(out, ": pair %d", r->bad_pair);
    if (r->id == PB_VERDICT_INCONCLUSIVE && r->why != PB_PAIR_EARLY) say_remedy(r, o, report, out);
    if (r->blind) say(out, "; a change of %g %% could be missed (--must-find)", 100 * o->must_find);
}
