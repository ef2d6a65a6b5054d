/* layout.h - which case goes where in a suite's tables: rows by the axes that vary, columns by the arms. */
#ifndef PB_LAYOUT_H
#define PB_LAYOUT_H
#include "bench/report/views.h"
#include "bench/text/text.h"

enum { PB_LAYOUT_LABELS = PB_CASE_AXES + 1, PB_LAYOUT_ARMS = 64 };

typedef struct pb_layout pb_layout;
typedef struct pb_placed {
    const pb_layout *l;
    const char *key;
    pb_case c;
    int row, arm; /* arm -1: beyond PB_LAYOUT_ARMS */
} pb_placed;

struct pb_layout {
    const pb_view *view;
    pb_axes axes;
    int nlabels;
    const char *labels[PB_LAYOUT_LABELS]; /* axis names; "" is the case's name */
    int n, nrows, narms;
    pb_placed *cases, **order;            /* [n]; sorted by row, then arm */
    const pb_placed *arm[PB_LAYOUT_ARMS]; /* a case of every arm, in order */
};

/* Places the cases of s[0..n), all of one suite. */
pb_status pb_layout_make(pb_layout *l, const pb_view *view, const pb_series *s, size_t n);
void pb_layout_free(pb_layout *l);
/* An axis's value, or the case's name for ""; empty where the case lacks the axis. */
const char *pb_layout_label(const pb_placed *e, const char *axis);
/* "graph fused": the values of an arm, but for one axis (NULL: of all). */
void pb_arm_title(const pb_view *v, const pb_placed *e, const char *without, char *out, size_t n);
/* The axis of "mode=eager,graph". */
void pb_arm_axis(const char *arm, char out[PB_AXIS_TEXT]);
#endif
