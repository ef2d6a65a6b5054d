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
    X(SUSPECT, "the value changed, but the stored sessions are too few or too noisy to say more")                      \
    X(INCONCLUSIVE, "too few processes, or all were throttled; of pairs: neither a change nor equality is shown")      \
    X(IMPROVED, "the candidate is better by more than the rule requires")                                              \
    X(NEW, "only the candidate has the row")                                                                           \
    X(SAME, "no change beyond the limits of the rule")                                                                 \
    X(REFERENCE, "shown beside values of another or an unverified machine; not in the exit code")                      \
    X(INFO, "not judged: a metric without a direction, a requirement, or a row that is ok on neither side")
typedef enum pb_verdict_id {
#define X(id, what) PB_VERDICT_##id,
    PB_VERDICT_MAP(X)
#undef X
        PB_NVERDICTS
} pb_verdict_id;
extern const char *const pb_verdict_names[PB_NVERDICTS];

/* The comparison of one candidate value with the base's sessions, by stored_rule.h. Values and differences are natural
 * logarithms; a positive difference means that the candidate is worse. */
typedef struct pb_evidence {
    int sessions;         /* sessions of the base (K); 0: the sides have no values to compare */
    double centre, sd;    /* of the sessions: the median if K < PB_MIN_SESSIONS, else the mean; sd is +inf if K < 2 */
    double change;        /* candidate - centre */
    double since_oldest;  /* candidate - oldest session */
    double p, p_adjusted; /* one-sided, in the direction of the change; 1 if K < PB_MIN_SESSIONS. p_adjusted: after
                             Holm if the row gates */
    double detects;       /* detectable change: the least change that would have been REGRESSED; +inf: no change would,
                             because K < PB_MIN_SESSIONS */
    double ceiling_moved; /* ln(candidate/base) of the ceiling that the gate names; NaN: a side lacks it */
} pb_evidence;

typedef struct pb_verdict {
    const pb_series *base, *cand; /* NULL: this side lacks the row */
    const pb_gate *gate;          /* never NULL */
    pb_verdict_id id;
    double ratio, worse; /* candidate/base; the same or its inverse, so that > 1 is worse. NaN: a side has no value */
    bool counts;         /* the row affects the exit code: it gates, or is FAILED or INCOMPARABLE */
    bool machine;        /* the row is a ceiling that a gate names and that does not gate */
    const char *why;     /* the reason, or "": static text, or the note of a series */
    pb_evidence evidence;
} pb_verdict;

typedef struct pb_verdicts {
    pb_verdict *v;
    size_t n, capacity;
    int count[PB_NVERDICTS];            /* rows with each verdict, of those that count */
    int base_processes, cand_processes; /* the fewest processes of a row that counts; INT_MAX: no such row */
    int family;                         /* number of gating rows: the family of Holm's adjustment */
    int figures;                        /* number of rows that count and have evidence */
    int sessions_least, sessions_most;  /* over the rows of `figures`: least and most sessions of the base */
    double detects_least, detects_most; /* over the rows of `figures`: least and greatest pb_evidence.detects */
} pb_verdicts;

typedef struct pb_judge_opts {
    bool allow_mismatch; /* compare rows of different machines */
    bool subset;         /* the candidate was filtered, so rows that it lacks are not MISSING */
} pb_judge_opts;

/* Compares two sets of series, and appends a row to *out for every key and metric that is worth reporting. `suite`:
 * only the keys of this suite and the ceilings; NULL: all. The series and the gates must outlive *out. */
pb_status pb_judge(const pb_series_set *base, const pb_series_set *cand, const pb_gates *gates, const char *suite,
                   const pb_judge_opts *o, pb_verdicts *out);
/* Gives all appended rows their verdicts. Call it once, after the last pb_judge(): Holm's adjustment needs all gating
 * rows. ENOMEM. */
pb_status pb_verdicts_decide(pb_verdicts *v);
void pb_verdicts_free(pb_verdicts *v);
/* Sorts the rows: those that count first, then by severity. */
void pb_verdicts_sort(pb_verdicts *v);

/* The reason why the candidate is wrong although its rows have status ok: it is refuted (series.h), or a process of it
 * exceeds a relative bound of metrics.def against the base's median. `base` may be NULL. NULL: the candidate is not
 * wrong. */
const char *pb_verdict_wrong(const pb_series *base, const pb_series *cand);

/* Finds the ceiling of a case: the series of suite `ceiling` whose metric is `ceiling` and whose axes agree with the
 * key wherever both have an axis. NULL: no such series with status ok. */
const pb_series *pb_ceiling_of(const pb_series_set *set, const char *key, const char *ceiling);
#endif
