/* views.h - the layout of each suite's tables in a report, and the functions that print them. */
#ifndef PB_VIEWS_H
#define PB_VIEWS_H
#include "bench/rows/rows.h"
#include "bench/text/text.h"

enum { PB_VIEW_VARIANTS = 3, PB_VIEW_METRICS = 40, PB_VIEW_RATIOS = 4, PB_VIEW_ROWS = 6 };

typedef struct pb_view {
    const char *suite;
    const char *rows[PB_VIEW_ROWS]; /* axes whose label columns come first, if these axes vary */
    /* Axes whose combined values are the columns (variants), with the order of the values: "mode=eager,graph". No axes:
     * the columns are the metrics. */
    const char *variants[PB_VIEW_VARIANTS];
    struct {
        const char *metric, *title;
        bool range; /* also show the least and greatest value of a process */
    } metrics[PB_VIEW_METRICS];
    struct {
        const char *axis, *over, *under; /* metrics[0] at axis=over divided by that at axis=under, other axes equal */
    } ratios[PB_VIEW_RATIOS];
} pb_view;

/* The view of the suite that the key belongs to. A suite without a view gets an empty one: no suite name, variants or
 * metrics. Never NULL. */
const pb_view *pb_view_of(const char *key);

/* The state of a report while it is printed. */
typedef struct pb_report_page {
    FILE *out;
    bool markdown;
    pb_strings *text; /* owns the text of cells and footnotes */
    const pb_series_set *set;
    int processes;         /* the most processes of any series; a value from fewer gets a footnote */
    const char *notes[99]; /* [nnotes]: footnotes of the current suite */
    int nnotes;
} pb_report_page;

/* Writes the text of a cell: the value, or the status if it has none, and the reference to its footnote. */
void pb_view_cell(pb_report_page *p, const char *key, const char *metric, bool range, char *out, size_t n);
/* Prints the tables of the series [from, to), all of one suite, and their footnotes. */
pb_status pb_view_print(pb_report_page *p, size_t from, size_t to);
#endif
