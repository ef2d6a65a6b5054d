/* verdict.h - what happened to each key and metric between two sets of series. Pure: no files, no text.
 *
 * ratio = cand / base of the medians over launches, after both were scaled by the ceiling that their gate
 * names (lower is better: times the ceiling; higher: over it). w = ratio where lower is better, 1/ratio
 * where higher is. With the gate's limit L:  w > 1+L REGRESSED;  w < 1/(1+L) IMPROVED;  w between
 * 1/(1+L/3) and 1+L/3 SAME;  else SUSPECT. Where every launch of a side was throttled: INCONCLUSIVE, whatever w. Zero
 * on both sides is SAME; a zero or a negative figure on one side only is INCOMPARABLE. */
#ifndef PB_VERDICT_H
#define PB_VERDICT_H
#include "bench/gates.h"
#include "bench/series.h"

/* X(enumerator, meaning), most severe first */
#define PB_VERDICT_MAP(X)                                                                                              \
    X(REGRESSED, "worse by more than the limit")                                                                       \
    X(FAILED, "the candidate is wrong, failed, cut short or unsupported where the base was ok")                        \
    X(MISSING, "in the base, not in the candidate")                                                                    \
    X(INCOMPARABLE, "machine, bench_version or unit differ, or a figure is zero")                                      \
    X(SUSPECT, "between a third of the limit and the limit, either way")                                               \
    X(INCONCLUSIVE, "every launch of a side was throttled; of pairs: neither shown to differ nor to be the same")      \
    X(IMPROVED, "better by more than the limit")                                                                       \
    X(NEW, "measured by the candidate only")                                                                           \
    X(SAME, "within a third of the limit")                                                                             \
    X(INFO, "a metric without a direction, a contract, or ok on neither side")
typedef enum pb_verdict_id {
#define X(id, what) PB_VERDICT_##id,
    PB_VERDICT_MAP(X)
#undef X
        PB_NVERDICTS
} pb_verdict_id;
extern const char *const pb_verdict_names[PB_NVERDICTS];

typedef struct pb_verdict {
    const pb_series *base, *cand; /* NULL where there is none */
    const pb_gate *gate;
    pb_verdict_id id;
    double ratio, worse; /* worse: w of above; NaN without both figures */
    bool counts;         /* it gates: only such rows change the exit code; FAILED and INCOMPARABLE always do */
    const char *why;     /* of INCOMPARABLE and FAILED; static, or the row's note */
} pb_verdict;

typedef struct pb_verdicts {
    pb_verdict *v;
    size_t n, capacity;
    int count[PB_NVERDICTS];          /* of the rows that count */
    int unscaled;                     /* rows compared without the ceiling that their gate names */
    int base_launches, cand_launches; /* the fewest behind a row that gates; INT_MAX: there was none */
} pb_verdicts;

typedef struct pb_judge_opts {
    bool allow_mismatch; /* compare across machines */
    bool subset;         /* the candidate was filtered: what it lacks is not MISSING */
} pb_judge_opts;

/* Appends to *out, key by key. `suite`: only its keys, and the ceilings; NULL: all. The series and gates
 * must outlive *out. */
pb_status pb_judge(const pb_series_set *base, const pb_series_set *cand, const pb_gates *gates, const char *suite,
                   const pb_judge_opts *o, pb_verdicts *out);
void pb_verdicts_free(pb_verdicts *v);
/* Most severe first, what counts before what does not. */
void pb_verdicts_sort(pb_verdicts *v);
/* Of `count` of pb_verdicts, or of pb_pair_report. */
pb_exit pb_counts_exit(const int count[PB_NVERDICTS], bool strict);

/* The series of suite `ceiling` that bounds this key: its metric is `ceiling`, and it agrees with the key
 * in every axis that both have. NULL: none that was ok. */
const pb_series *pb_ceiling_of(const pb_series_set *set, const char *key, const char *ceiling);
#endif
