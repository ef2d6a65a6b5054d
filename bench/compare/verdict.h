/* verdict.h - what happened to each key and metric between two sets of series. Pure: no files, no text.
 *
 * Figures are compared as they were measured; stored_rule.h has the rule. A row is
 *
 *   FAILED        where the candidate is wrong (also by a bound of metrics.def), failed or cut short
 *   INCOMPARABLE  where machines, versions or units differ, or a figure has no logarithm and not both sides are zero
 *   MISSING       where the base's newest session of its suite has it and the candidate has not
 *   INCONCLUSIVE  whatever the figures, where a side has fewer than PB_ENOUGH_LAUNCHES processes behind it, or all of
 *                 a side's were throttled
 *   SUSPECT       instead of REGRESSED or IMPROVED, where a warm-up that was too short could have made the change: it
 *                 would not have been beyond without the trend (series.h) of the side that is slower
 *   INFO          a ceiling that some gate names and that does not gate itself: it is the machine's figure, not the
 *                 code's, and its change is reported by itself */
#ifndef PB_VERDICT_H
#define PB_VERDICT_H
#include "bench/compare/gates.h"
#include "bench/rows/series.h"

/* X(enumerator, meaning), most severe first */
#define PB_VERDICT_MAP(X)                                                                                              \
    X(REGRESSED, "worse by more than the rule allows")                                                                 \
    X(FAILED, "the candidate is wrong, failed, cut short or unsupported where the base was ok")                        \
    X(MISSING, "in the base, not in the candidate")                                                                    \
    X(INCOMPARABLE, "machine, bench_version or unit differ, or a figure is zero")                                      \
    X(SUSPECT, "moved, and the stored sessions are too few or too scattered to say more")                              \
    X(INCONCLUSIVE, "too few processes, or all were throttled; of pairs: neither shown to differ nor to be the same")  \
    X(IMPROVED, "better by as much")                                                                                   \
    X(NEW, "measured by the candidate only")                                                                           \
    X(SAME, "nothing that would make one look")                                                                        \
    X(INFO, "a metric without a direction, a contract, or ok on neither side")
typedef enum pb_verdict_id {
#define X(id, what) PB_VERDICT_##id,
    PB_VERDICT_MAP(X)
#undef X
        PB_NVERDICTS
} pb_verdict_id;
extern const char *const pb_verdict_names[PB_NVERDICTS];

/* What the sessions of the base say of the candidate: stored_rule.h. Natural logs, worse positive. */
typedef struct pb_evidence {
    int sessions;         /* K behind the figures; 0: no figures to hold against each other */
    double centre, sd;    /* of the sessions: K < PB_MIN_SESSIONS the median, else the mean; sd +inf for K < 2 */
    double change;        /* the candidate less the centre */
    double since_oldest;  /* the candidate less the oldest session */
    double p, p_adjusted; /* K >= PB_MIN_SESSIONS: one-sided, in the direction of the change; by Holm if it gates */
    double detects;       /* the least change that would have been REGRESSED: the prediction bound at Holm's first step;
                             +inf: none, as with K < PB_MIN_SESSIONS */
    double ceiling_moved; /* ln of the ceiling that the gate names, the candidate's over the base's; NaN: not both */
} pb_evidence;

typedef struct pb_verdict {
    const pb_series *base, *cand; /* NULL where there is none */
    const pb_gate *gate;
    pb_verdict_id id;
    double ratio, worse; /* cand/base; the same, larger is worse; NaN without both figures */
    bool counts;         /* it gates: only such rows change the exit code; FAILED and INCOMPARABLE always do */
    bool machine;        /* a ceiling that some gate names, and that does not gate */
    const char *why;     /* of INCOMPARABLE and FAILED, some SUSPECT, a ceiling that moved; static, or the row's note */
    pb_evidence evidence;
} pb_verdict;

typedef struct pb_verdicts {
    pb_verdict *v;
    size_t n, capacity;
    int count[PB_NVERDICTS];            /* of the rows that count */
    int base_launches, cand_launches;   /* the fewest behind a row that gates; INT_MAX: there was none */
    int family;                         /* rows that gate: Holm's family */
    int figures;                        /* of them, with figures on both sides, above zero: */
    int sessions_least, sessions_most;  /* K */
    double detects_least, detects_most; /* pb_evidence.detects */
} pb_verdicts;

typedef struct pb_judge_opts {
    bool allow_mismatch; /* compare across machines */
    bool subset;         /* the candidate was filtered: what it lacks is not MISSING */
} pb_judge_opts;

/* Appends the rows to *out, key by key, with what there is to say of each. `suite`: only its keys, and the ceilings;
 * NULL: all. The series and gates must outlive *out. */
pb_status pb_judge(const pb_series_set *base, const pb_series_set *cand, const pb_gates *gates, const char *suite,
                   const pb_judge_opts *o, pb_verdicts *out);
/* The verdicts, over all rows that were appended: call it once, after the last pb_judge. ENOMEM. */
pb_status pb_verdicts_decide(pb_verdicts *v);
void pb_verdicts_free(pb_verdicts *v);
/* Most severe first, what counts before what does not. */
void pb_verdicts_sort(pb_verdicts *v);

/* Why the candidate's figures are wrong though its rows say ok: by themselves, or beside the base's (a relative bound of
 * metric.h, which every process has to keep), which may be NULL. NULL: they are not. */
const char *pb_verdict_wrong(const pb_series *base, const pb_series *cand);

/* The series of suite `ceiling` that bounds this key: its metric is `ceiling`, and it agrees with the key
 * in every axis that both have. NULL: none that was ok. */
const pb_series *pb_ceiling_of(const pb_series_set *set, const char *key, const char *ceiling);
#endif
