/* outlook.c - computes the spread between the processes of a run, and what a comparison with one more run would
 * find. */
#include "bench/compare/outlook.h"

#include <math.h>
#include <stdlib.h>

#include "bench/compare/placebo.h"
#include "bench/compare/stored_rule.h"
#include "bench/compare/verdict_impl.h"
#include "bench/stats/stats.h"

enum { MOST_PLACEBOS = 256 };

/* The judged rows of a run that have enough processes, ordered as in the set. */
typedef struct judged_rows {
    const pb_series **s; /* [n] */
    size_t n;
    int family; /* their number, plus one for each suite and metric that has two or more: its row `all rows` */
} judged_rows;

/* Which rows are judged, in the order in which they are tried. */
typedef enum choice { GATING, GATING_PAIRS, TIMED } choice;

static bool chosen(const pb_series *s, const pb_gates *gates, choice which)
{
    const pb_gate *g = pb_gates_find(gates, s->key, s->metric);
    switch (which) {
    case GATING: return g->gating;
    case GATING_PAIRS: return g->gating_pairs;
    default: return strcmp(s->unit, "s") == 0 && strcmp(s->better, "lower") == 0 && !pb_key_of(s->key, "ceiling");
    }
}

static bool usable(const pb_series *s)
{
    return pb_series_ok(s) && s->median > 0 && isfinite(s->scatter) && s->processes >= PB_ENOUGH_PROCESSES;
}

static bool alike(const pb_series *a, const pb_series *b)
{
    const size_t n = pb_suite_length(a->key);
    return n == pb_suite_length(b->key) && !strncmp(a->key, b->key, n) && !strcmp(a->metric, b->metric);
}

/* The number of rows before index `end` that are of one suite and metric with `s`. */
static int like_before(const judged_rows *r, size_t end, const pb_series *s)
{
    int n = 0;
    for (size_t i = 0; i < end; i++) n += alike(r->s[i], s);
    return n;
}

static choice choice_of(const pb_series_set *run, const pb_gates *gates)
{
    for (choice which = GATING; which < TIMED; which++)
        for (size_t i = 0; i < run->n; i++)
            if (usable(&run->s[i]) && chosen(&run->s[i], gates, which)) return which;
    return TIMED;
}

static pb_status judged_rows_of(const pb_series_set *run, const pb_gates *gates, choice which, judged_rows *out)
{
    *out = (judged_rows){.s = malloc((run->n + 1) * sizeof *out->s)};
    if (!out->s) return pb_fail(PB_ENOMEM, "compare: out of memory");
    for (size_t i = 0; i < run->n; i++) {
        const pb_series *s = &run->s[i];
        if (!usable(s) || !chosen(s, gates, which)) continue;
        out->family += 1 + (like_before(out, out->n, s) == 1);
        out->s[out->n++] = s;
    }
    return PB_OK;
}

/* The detectable change of row `s`. `processes` has room for all rows. */
static double detects(const pb_series_set *run, const judged_rows *r, const pb_series *s, bool locked_clocks,
                      pb_stored_processes *processes)
{
    pb_placebo pair[MOST_PLACEBOS];
    double difference[MOST_PLACEBOS];
    const double x = pb_series_log(s);
    const pb_stored_row row = {.x = &x, .k = 1, .y = x};
    int n = 0;
    pb_evidence e;
    for (size_t i = 0; i < r->n; i++)
        if (alike(r->s[i], s)) processes[n++] = (pb_stored_processes){r->s[i]->processes, r->s[i]->scatter};
    const int pairs = pb_placebo_pairs(run, s->key, s->metric, pair, MOST_PLACEBOS);
    const pb_stored_noise noise = {
        .processes = pb_stored_w2(processes, n),
        .placebos = pb_stored_p2(difference, pb_placebo_differences(pair, pairs, s->key, difference)),
        .shared = pb_verdict_shared_variance(s, locked_clocks)};
    pb_stored_weigh(&row, &noise, 1, &e);
    return pb_stored_bound(&e, pb_t_quantile(PB_STORED_ALPHA / r->family, e.nu));
}

pb_status pb_outlook_of(const pb_series_set *run, const pb_gates *gates, bool locked_clocks, pb_outlook *out)
{
    judged_rows r;
    double sum = 0;
    const choice which = choice_of(run, gates);
    *out = (pb_outlook){.gating = which != TIMED};
    PB_TRY(judged_rows_of(run, gates, which, &r));
    pb_stored_processes *processes = malloc((r.n + 1) * sizeof *processes);
    for (size_t i = 0; processes && i < r.n; i++) {
        const double d = detects(run, &r, r.s[i], locked_clocks, processes);
        sum += r.s[i]->scatter;
        out->detects_least = i ? fmin(out->detects_least, d) : d;
        out->detects_most = fmax(out->detects_most, d);
    }
    if (processes) out->rows = (int)r.n, out->spread = r.n ? sqrt(sum / (double)r.n) : 0;
    free(processes);
    free(r.s);
    return processes ? PB_OK : pb_fail(PB_ENOMEM, "compare: out of memory");
}
