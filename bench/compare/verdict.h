/* verdict.h - gives every row (key and metric) of a base and a candidate a verdict. Pure: no files, no text.
 *
 * The rule of stored_rule.h compares the values of both sides. These cases are decided otherwise:
 *
 *   verdict       case
 *   FAILED        the candidate is wrong (also by a bound of metrics.def), failed, was cut short, or is unsupported
 *                 where the base was ok
 *   INCOMPARABLE  the sides differ in machine, version or unit; or a value is <= 0 (if all are 0, the row is SAME)
 *   MISSING       the newest session of the base has the row, and the candidate does not
 *   NEW           only the candidate has the row; not reported if the base is a baseline, which does not store the
 * metric
 *   INCONCLUSIVE  a side has fewer than PB_ENOUGH_PROCESSES processes, or all processes of a side were throttled
 *   SUSPECT       the rule gives REGRESSED or IMPROVED, but a too short warm-up may be the cause: without the trend of
 *                 the slower side (series.h) the change would not be significant
 *   REFERENCE     the base's sessions are from another host, or from one that cannot be identified: its times say
 *                 nothing about a change of the code. The row, or its absence, never affects the exit code
 *   INFO          the rule gives a verdict other than SAME to a ceiling that does not gate, and that a gate names: the
 *                 machine changed, not the code */
#ifndef PB_VERDICT_H
#define PB_VERDICT_H
#include "bench/compare/gates.h"
#include "bench/rows/rows.h"

/* X(verdict, meaning), most severe first. */
#define PB_VERDICT_MAP(X)                                                                                              \
    X(REGRESSED, "the candidate is worse by more than the rule allows")                                                \
    X(FAILED, "the candidate is wrong, failed, cut short or unsupported where the base was ok")                        \
    X(MISSING, "the base has the row, the candidate does not")                                                         \
    X(INCOMPARABLE, "machine, bench_version or unit differ, or a value is zero or negative")                           \
    X(SUSPECT, "the value changed, but the sessions are too few to say more, or nothing has confirmed it")             \
    X(INCONCLUSIVE, "neither a change nor equality is shown: too noisy, too few processes, or all were throttled")     \
    X(IMPROVED, "the candidate is better by more than the rule requires")                                              \
    X(NEW, "only the candidate has the row")                                                                           \
    X(SAME, "no change beyond the limits of the rule")                                                                 \
    X(REFERENCE, "compared with another host, machine or library, or with a host that is not identified; shown only")  \
    X(INFO, "not judged: a metric without a direction, a requirement, or a row that is ok on neither side")
typedef enum pb_verdict_id {
#define X(id, what) PB_VERDICT_##id,
    PB_VERDICT_MAP(X)
#undef X
        PB_NVERDICTS
} pb_verdict_id;
extern const char *const pb_verdict_names[PB_NVERDICTS];

/* The noise of a group, which is all rows of one suite and metric. Variances of logarithms: w2, p2, c2, v_group and mean
 * b of stored_rule.h. 0: unknown. */
typedef struct pb_stored_noise {
    double processes, placebos, shared, sessions, hosts;
} pb_stored_noise;

/* The comparison of one candidate value with the base's sessions; stored_rule.h has the formulas. Values and differences
 * are natural logarithms; a positive difference means that the candidate is worse. */
typedef struct pb_evidence {
    int sessions; /* sessions of the base that are compared (K); 0: the sides have no values to compare */
    int hosts;    /* hosts of these sessions (H) */
    bool pool;    /* the hosts differ, also from the candidate's */
    pb_stored_noise noise;
    double centre;                     /* of the sessions */
    double change;                     /* candidate - centre */
    double since_oldest;               /* candidate - oldest session */
    double spread, prior, sd, between; /* standard deviations: sqrt of v, prior2, s2 and g2 */
    double se, nu;                     /* standard error of the change; degrees of freedom */
    double p, p_adjusted;  /* one-sided, in the direction of the change. p_adjusted: after Holm if the row gates */
    double detects;        /* detectable change: the least change that would have been beyond the bound */
    double again, p_again; /* the change in the processes that measured the row again; NaN: it was not measured again.
                              p_again: after Holm over the rows that were */
    double ceiling_moved;  /* ln(candidate/base) of the ceiling that the gate names; NaN: a side lacks it */
} pb_evidence;

typedef struct pb_verdict {
    const pb_series *base, *cand; /* NULL: this side lacks the row */
    const pb_gate *gate;          /* never NULL */
    pb_verdict_id id;
    double ratio, worse; /* candidate/base; the same or its inverse, so that > 1 is worse. NaN: a side has no value */
    bool counts;         /* the row affects the exit code: it gates, or is FAILED or INCOMPARABLE */
    bool machine;        /* the row is a ceiling that a gate names and that does not gate */
    bool all_rows;       /* the row `all rows`: the geometric mean of the gating rows of a suite and metric */
    bool reference;      /* no session of the base is from the candidate's machine */
    bool unconfirmed;    /* SUSPECT, but REGRESSED if measuring it again in fresh processes confirms it */
    const char *why;     /* the reason, or "": static text, or the note of a series */
    pb_evidence evidence;
} pb_verdict;

typedef struct pb_verdicts {
    pb_verdict *v;
    size_t n, capacity;
    int count[PB_NVERDICTS];            /* rows with each verdict, of those that count */
    int base_processes, cand_processes; /* the fewest processes of a row that counts; INT_MAX: no such row */
    int family;  /* number of gating rows, rows `all rows` included: the family of Holm's adjustment */
    int figures; /* number of rows that count and have evidence */
    int sessions_least, sessions_most;     /* over the rows of `figures`: least and most sessions of the base */
    double detects_least, detects_most;    /* over the rows of `figures`: least and greatest pb_evidence.detects */
    const pb_series_set *cand, *confirmed; /* of the last pb_judge() */
    struct pb_all_rows *all_rows;          /* owns the series of the rows `all rows` */
} pb_verdicts;

typedef struct pb_judge_opts {
    bool allow_mismatch; /* compare rows of different machines */
    bool subset;         /* the candidate was filtered, so rows that it lacks are not MISSING */
    bool locked_clocks;  /* the candidate was measured on a GPU with locked clocks */
    /* Rows of the candidate's build that were measured again after the run, in fresh processes; NULL: none. Borrowed. A
     * row is confirmed by its own key, the row `all rows` by all gating rows of its suite and metric. */
    const pb_series_set *confirmed;
} pb_judge_opts;

/* Compares two sets of series, and appends a row to *out for every key and metric that is worth reporting. `suite`:
 * only the keys of this suite and the ceilings; NULL: all. The sets and the gates must outlive *out. Several calls for
 * one *out have the same candidate and confirmation. */
pb_status pb_judge(const pb_series_set *base, const pb_series_set *cand, const pb_gates *gates, const char *suite,
                   const pb_judge_opts *o, pb_verdicts *out);
/* Appends the rows `all rows`, and gives all rows their verdicts. Call it once, after the last pb_judge(): Holm's
 * adjustment needs all gating rows. ENOMEM. */
pb_status pb_verdicts_decide(pb_verdicts *v);
void pb_verdicts_free(pb_verdicts *v);
/* Sorts the rows: those that count first, then by severity. */
void pb_verdicts_sort(pb_verdicts *v);
/* True for a row that must be measured again to confirm a regression: it is unconfirmed, or it gates and the row `all
 * rows` of its suite and metric is. */
bool pb_verdict_needs_confirmation(const pb_verdicts *vs, const pb_verdict *v);

/* The reason why the candidate is wrong although its rows have status ok: it is refuted (series.h), or a process of it
 * exceeds a relative bound of metrics.def against the base's median. `base` may be NULL. NULL: the candidate is not
 * wrong. */
const char *pb_verdict_wrong(const pb_series *base, const pb_series *cand);

/* Finds the ceiling of a case: the series of suite `ceiling` whose metric is `ceiling` and whose axes agree with the
 * key wherever both have an axis. NULL: no such series with status ok. */
const pb_series *pb_ceiling_of(const pb_series_set *set, const char *key, const char *ceiling);
#endif
