/* pair_report.h - the judgement of a comparison's folder, and its table, Markdown or JUnit XML, by compare.c's
 * renderers. */
#ifndef PB_PAIR_REPORT_H
#define PB_PAIR_REPORT_H
#include "bench/compare/compare_render.h"
#include "bench/pairs/pair_folder.h"
#include "bench/pairs/pair_rows.h"

typedef struct pb_pair_judgement {
    pb_pair_table table;
    pb_pair_result *results; /* [table.n] */
    pb_pair_report report;
    bool hopeless; /* no gating row can get a verdict of figures by more pairs, or none of any row */
} pb_pair_judgement;

/* Judges the pairs that are in the folder. EINVAL, EIO, ENOMEM. */
pb_status pb_pair_judge_folder(const pb_pair_folder *f, const pb_pair_plan *plan, const pb_gates *gates,
                               bool allow_mismatch, pb_pair_judgement *out);
void pb_pair_judgement_free(pb_pair_judgement *j);

typedef struct pb_pair_report_opts {
    const pb_compare_opts *compare;
    bool explain;
    const char *note; /* one more line; NULL: none */
} pb_pair_report_opts;
/* Prints the verdicts; *code is theirs. */
pb_status pb_pair_report_show(const pb_pair_judgement *j, const pb_pair_folder *f, const pb_pair_plan *plan,
                              const pb_pair_report_opts *o, FILE *out, pb_exit *code);
#endif
