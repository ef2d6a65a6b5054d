/* compare_render.h - a comparison as text, as Markdown and as JUnit XML, and the cells that every rendering shares.
 *
 * Text: what both sides share once, then one line a key and metric, most severe first, then notes, and as the last line
 * "bench: regressed=0 improved=0 same=8 suspect=1 missing=0 incomparable=0 failed=0 new=0 detects=1.7%..15% exit=0":
 * counts of the rows that gate (and of every FAILED and INCOMPARABLE one), and the least change for the worse that
 * would have been REGRESSED, over the rows that gate ("none": no change, for want of stored sessions; "detects=-":
 * there was no row to hold against anything). Markdown,
 * fit for a comment on a pull request: the verdict first, then a table of the rows that gate, most severe first, then
 * what else moved, folded. Each table holds at most PB_MARKDOWN_ROWS rows and says how many there are more. JUnit: a
 * test case a row that counts. REGRESSED is a failure; FAILED, MISSING and INCOMPARABLE are errors; SAME and IMPROVED
 * pass; every other verdict, and a baseline that is not there, is skipped with the reason (an error where one is
 * required). */
#ifndef PB_COMPARE_RENDER_H
#define PB_COMPARE_RENDER_H
#include <stdio.h>

#include "bench/compare/compare.h"
#include "bench/compare/verdict.h"
#include "bench/text/markup.h"
#include "bench/text/text.h"

enum { PB_LABEL_TEXT = 160, PB_MARKDOWN_ROWS = 100 };

typedef struct pb_comparison {
    const pb_verdicts *vs;            /* sorted */
    const pb_series_set *base, *cand; /* base NULL: there is none */
    const char *base_name, *cand_name;
    char (*missing)[PB_PATH_TEXT]; /* baselines that there are not */
    int nmissing;
    bool lacking;  /* and one is required */
    bool mismatch; /* machines may differ */
    bool all;      /* text: every row, and what each could have shown */
    bool explain;  /* text: under each row why its verdict fell */
    pb_exit exit;
    const char *notes; /* of pairs: whole lines in place of those for stored results; NULL: those */
} pb_comparison;

/* compare_text.c */
pb_status pb_compare_text(const pb_comparison *c, FILE *out);
/* Lines beginning "note: ": what a reader must know before trusting the verdicts. */
void pb_compare_notes(const pb_comparison *c, FILE *out);
/* Writes a comparison, in the format asked for (compare.c). */
pb_status pb_compare_show(pb_comparison *c, const pb_compare_opts *o, FILE *out);

pb_status pb_compare_markdown(const pb_comparison *c, FILE *out);
pb_status pb_compare_junit(const pb_comparison *c, FILE *out);

/* ---- rows ---- */

/* The candidate's series, or the base's. */
const pb_series *pb_verdict_series(const pb_verdict *v);
/* Rows that change the exit code, and what moved among the others. */
bool pb_verdict_shown(const pb_verdict *v, bool all);
typedef struct pb_verdict_cells {
    char base[PB_FIGURE_TEXT], cand[PB_FIGURE_TEXT], change[32], launches[32];
    const char *name; /* the verdict; "info" */
} pb_verdict_cells;
void pb_verdict_text(const pb_verdict *v, pb_verdict_cells *out);
/* A session's run_id, without what marks it as stored. */
const char *pb_session_name(const pb_session *s);
/* A row that gates and is not REGRESSED, yet worse than the oldest session kept by more than its stored_limit. */
bool pb_verdict_creeps(const pb_verdict *v);
/* "1.7%", "1.7%..15%", "none", or "-" where no row that gates was held against a figure. */
void pb_detects_text(const pb_verdicts *vs, char *out, size_t n);
enum { PB_EXPLAIN_TEXT = 640 };
/* One line: the figures, what they were held against, what decided. Of one verdict of vs. */
void pb_verdict_explain(const pb_verdict *v, const pb_verdicts *vs, char out[PB_EXPLAIN_TEXT]);
#endif
