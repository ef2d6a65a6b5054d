/* pair_report.h - judges the folder of a paired comparison and prints the verdicts as a table, Markdown or JUnit XML
 * with the renderers of compare_render.h. */
#ifndef PB_PAIR_REPORT_H
#define PB_PAIR_REPORT_H
#include "bench/compare/compare.h"
#include "bench/pairs/pair_folder.h"
#include "bench/pairs/pair_rows.h"

typedef struct pb_pair_judgement {
    pb_pair_table table;
    pb_pair_result *results; /* [table.n] */
    pb_pair_report report;
    bool hopeless; /* more pairs cannot decide any gating row (any row, if none gates) */
} pb_pair_judgement;

/* Judges the pairs stored so far; free *out with pb_pair_judgement_free. EINVAL (also without a pair), EIO, ENOMEM. */
pb_status pb_pair_judge_folder(const pb_pair_folder *f, const pb_pair_plan *plan, const pb_gates *gates,
                               bool allow_mismatch, pb_pair_judgement *out);
void pb_pair_judgement_free(pb_pair_judgement *j);

typedef struct pb_pair_report_opts {
    const pb_compare_opts *compare;
    bool explain;
    const char *note; /* text of an additional note; NULL: none */
} pb_pair_report_opts;
/* Prints the verdicts and notes to `out`. *code: the exit code that follows from them. ENOMEM, EIO. */
pb_status pb_pair_report_show(const pb_pair_judgement *j, const pb_pair_folder *f, const pb_pair_plan *plan,
                              const pb_pair_report_opts *o, FILE *out, pb_exit *code);
#endif
