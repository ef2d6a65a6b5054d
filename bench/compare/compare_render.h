/* compare_render.h - prints a comparison as text, Markdown or JUnit XML, and formats the cells that all three share.
 *
 * Text: the axes with one value for all rows; a line per key and metric, most severe first; notes; and a last line for
 * scripts, such as
 *
 *   bench: regressed=0 improved=0 same=8 suspect=1 missing=0 incomparable=0 failed=0 new=0 inconclusive=0
 *   reference=0 detects=1.7%..15% exit=0
 *
 * The counts are those of gating rows, and of every FAILED and INCOMPARABLE row. `detects` is the range of the gating
 * rows' detectable changes. Before a gating row was compared with a session of its host, it is that against one more
 * run like the candidate (outlook.h); "-": a gating row with three processes is missing.
 *
 * Markdown, for a comment on a pull request: a headline, a table of the gating rows, most severe first, and a folded
 * table of other rows that changed. A table has at most PB_MARKDOWN_ROWS rows, and then says how many are left out.
 *
 * JUnit: a test case per row that counts (affects the exit code). REGRESSED is a failure. FAILED, MISSING and
 * INCOMPARABLE are errors. SAME and IMPROVED pass. Other verdicts are skipped, with the reason. A missing baseline is
 * skipped too, or an error if it is required. */
#ifndef PB_COMPARE_RENDER_H
#define PB_COMPARE_RENDER_H
#include <stdio.h>

#include "bench/compare/compare_results.h"
#include "bench/compare/outlook.h"
#include "bench/compare/verdict.h"
#include "bench/text/text.h"

enum { PB_LABEL_TEXT = 160, PB_MARKDOWN_ROWS = 100 };

typedef struct pb_comparison {
    const pb_verdicts *vs;            /* sorted by pb_verdicts_sort() */
    const pb_series_set *base, *cand; /* base NULL: no baseline exists */
    const char *base_name, *cand_name;
    char (*missing)[PB_PATH_TEXT]; /* [nmissing]: paths of baselines that do not exist */
    int nmissing;
    bool lacking;  /* a baseline is required but missing */
    bool mismatch; /* rows of different machines are compared */
    bool all;      /* text: show every row, with its detectable change */
    bool explain;  /* text: print the reason of each verdict under its row */
    pb_exit exit;
    const char *exact;         /* notes on exact counters (exact.h), complete lines; NULL: none */
    bool counters;             /* exact counters were compared */
    const pb_outlook *outlook; /* the noise of the candidate by itself; NULL: two results or pairs are compared */
    const char *notes; /* for pairs: complete lines, which replace the notes on stored results; NULL: stored results */
} pb_comparison;

/* compare_text.c */
pb_status pb_compare_text(const pb_comparison *c, FILE *out);
/* Prints lines that begin with "note: ": what a reader must know before trusting the verdicts. */
void pb_compare_notes(const pb_comparison *c, FILE *out);
/* Prints a comparison in the format o->format (compare_results.c). */
pb_status pb_compare_show(pb_comparison *c, const pb_compare_opts *o, FILE *out);

pb_status pb_compare_markdown(const pb_comparison *c, FILE *out);
pb_status pb_compare_junit(const pb_comparison *c, FILE *out);

/* ---- cells and rows, shared by text, Markdown and JUnit XML --- */

/* The candidate's series; the base's if the candidate lacks the row. */
const pb_series *pb_verdict_series(const pb_verdict *v);
/* Writes the axes of the row's case that vary, or "all rows". */
void pb_verdict_label(pb_axes_set *axes, const pb_verdict *v, char *out, size_t n);
/* Adds the row's key to the axes; the row `all rows` has none. */
void pb_verdict_add_axes(pb_axes_set *axes, const pb_verdict *v);
/* True if the row is to be shown. `all`: every row is. Else rows that affect the exit code, and other rows that
 * changed. */
bool pb_verdict_shown(const pb_verdict *v, bool all);
typedef struct pb_verdict_cells {
    char base[PB_FIGURE_TEXT], cand[PB_FIGURE_TEXT], change[32], processes[32];
    char interval[96]; /* of a REFERENCE: the 90 % interval of the change; else "" */
    const char *name;  /* the verdict's name, or "info" */
    const char *why;   /* pb_verdict.why, or the interval */
} pb_verdict_cells;
void pb_verdict_text(const pb_verdict *v, pb_verdict_cells *out);
/* A session's run_id, without the prefix "baseline:". */
const char *pb_session_name(const pb_session *s);
/* True if a gating row is not REGRESSED, yet worse than the oldest stored session by more than its stored_limit: many
 * small regressions have added up. */
bool pb_verdict_creeps(const pb_verdict *v);
/* The range of the gating rows' detectable changes: "1.7%", "1.7%..15%". If no gating row was compared with a session
 * of its host: the range against one more such run, by `outlook`; "-" if that is NULL or has no rows. */
void pb_detects_text(const pb_verdicts *vs, const pb_outlook *outlook, char *out, size_t n);
enum { PB_EXPLAIN_TEXT = 1024 };
/* Explains one verdict of vs in a line: the values, the limits they were compared with, and which of them decided. */
void pb_verdict_explain(const pb_verdict *v, const pb_verdicts *vs, char out[PB_EXPLAIN_TEXT]);
#endif
