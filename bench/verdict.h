/* verdict.h - what happened to each key and metric between two sets of series. Pure: no files, no text.
 *
 * Each side's figures are scaled first by the ceiling that their gate names, session by session (lower is better: times
 * the ceiling; higher: over it); stored_rule.h then has the rule. Zero on both sides is SAME; a zero or a negative
 * figure otherwise is INCOMPARABLE. A row is MISSING when the base's newest session of its suite has it and the
 * candidate has not. A ceiling that some gate names, and that does not gate itself, is the machine's figure, not the
 * code's: it gets no verdict. A REGRESSED that would not be beyond the least change that is one (pb_evidence.detects)
 * without t, the candidate's trend (series.h), is SUSPECT; so is an IMPROVED without the base's. Where every launch of
 * a side was throttled: INCONCLUSIVE, whatever the figures. */
#ifndef PB_VERDICT_H
#define PB_VERDICT_H
#include "bench/gates.h"
#include "bench/series.h"

/* X(enumerator, meaning), most severe first */
#define PB_VERDICT_MAP(X)                                                                                              \
    X(REGRESSED, "worse by more than the rule allows")                                                                 \
    X(FAILED, "the candidate is wrong, failed, cut short or unsupported where the base was ok")                        \
    X(MISSING, "in the base, not in the candidate")                                                                    \
    X(INCOMPARABLE, "machine, bench_version or unit differ, or a figure is zero")                                      \
    X(SUSPECT, "moved, and the stored sessions are too few or too scattered to say more")                              \
    X(INCONCLUSIVE, "every launch of a side was throttled; of pairs: neither shown to differ nor to be the same")      \
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

/* Whether a row was divided by its ceiling. */
typedef enum pb_scaling {
    PB_SCALING_NONE,   /* its gate names none */
    PB_SCALING_DONE,   /* each session by its own */
    PB_SCALING_LACKING /* a side has none of the same case: as measured */
} pb_scaling;

/* What the sessions of the base say of the candidate: stored_rule.h. Natural logs, worse positive, scaled. */
typedef struct pb_evidence {
    int sessions;         /* K behind the figures; 0: no figures to hold against each other */
    double centre, sd;    /* of the sessions: K < PB_MIN_SESSIONS the median, else the mean; sd +inf for K < 2 */
    double change;        /* the candidate less the centre */
    double since_oldest;  /* the candidate less the oldest session */
    double p, p_adjusted; /* K >= PB_MIN_SESSIONS: one-sided, in the direction of the change; by Holm if it gates */
    double detects;       /* the least change that would have been REGRESSED: stored_limit, or the prediction bound at
                             Holm's first step; +inf: none */
    pb_scaling scaling;
    double ceiling_moved; /* ln of the candidate's ceiling over the sessions' median; 0 unless PB_SCALING_DONE */
} pb_evidence;

typedef struct pb_verdict {
    const pb_series *base, *cand; /* NULL where there is none */
    const pb_gate *gate;
    pb_verdict_id id;
    double ratio, worse; /* cand/base, scaled; the same, larger is worse; NaN without both figures */
    bool counts;         /* it gates: only such rows change the exit code; FAILED and INCOMPARABLE always do */
    bool machine;        /* a ceiling that some gate divides by, and that does not gate */
    const char *why;     /* of INCOMPARABLE and FAILED, some SUSPECT, a ceiling that moved; static, or the row's note */
    pb_evidence evidence;
} pb_verdict;

typedef struct pb_verdicts {
    pb_verdict *v;
    size_t n, capacity;
    int count[PB_NVERDICTS];            /* of the rows that count */
    int unscaled;                       /* rows compared without the ceiling that their gate names */
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
/* Of `count` of pb_verdicts, or of pb_pair_report. */
pb_exit pb_counts_exit(const int count[PB_NVERDICTS], bool strict);

/* The series of suite `ceiling` that bounds this key: its metric is `ceiling`, and it agrees with the key
 * in every axis that both have. NULL: none that was ok. */
const pb_series *pb_ceiling_of(const pb_series_set *set, const char *key, const char *ceiling);
#endif
