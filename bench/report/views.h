/* views.h - how each suite is laid out, and the part of the report that lays it out. */
#ifndef PB_VIEWS_H
#define PB_VIEWS_H
#include "bench/rows/series.h"
#include "bench/text/grid.h"

enum { PB_VIEW_ARMS = 3, PB_VIEW_METRICS = 16, PB_VIEW_RATIOS = 4, PB_VIEW_ROWS = 6 };

typedef struct pb_view {
    const char *suite;
    const char *rows[PB_VIEW_ROWS]; /* axes whose columns of labels come first, if they vary */
    /* "mode=eager,graph": axes whose values stand side by side, in this order. With none: the metrics do. */
    const char *arms[PB_VIEW_ARMS];
    struct {
        const char *metric, *title;
        bool range; /* with the least and the largest launch */
    } metrics[PB_VIEW_METRICS];
    struct {
        const char *axis, *over, *under; /* of metrics[0], everything else alike */
    } ratios[PB_VIEW_RATIOS];
} pb_view;

/* The suite's, or one without arms and metrics. Never NULL. */
const pb_view *pb_view_of(const char *key);

/* What is being written: where, the text of its cells, and its footnotes. */
typedef struct pb_report_page {
    FILE *out;
    bool markdown;
    pb_strings *text;
    const pb_series_set *set;
    int launches; /* the most behind any figure; fewer get a footnote */
    const char *notes[99];
    int nnotes;
} pb_report_page;

/* One cell's text: the figure, or the status in words; with the number of its footnote. */
void pb_view_cell(pb_report_page *p, const char *key, const char *metric, bool range, char *out, size_t n);
/* Prints the series [from, to), all of one suite, and the footnotes. */
pb_status pb_view_print(pb_report_page *p, size_t from, size_t to);
#endif
