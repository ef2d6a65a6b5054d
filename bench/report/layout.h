/* layout.h - places the cases of a suite in its tables: a row per combination of the axes that vary, a column per
 * variant. */
#ifndef PB_LAYOUT_H
#define PB_LAYOUT_H
#include "bench/report/views.h"
#include "bench/text/text.h"

enum { PB_LAYOUT_LABELS = PB_CASE_AXES + 1, PB_LAYOUT_VARIANTS = 64 };

typedef struct pb_layout pb_layout;
typedef struct pb_placed {
    const pb_layout *l;
    const char *key;
    pb_case c;
    int row, variant; /* variant -1: the suite has more than PB_LAYOUT_VARIANTS variants */
} pb_placed;

struct pb_layout {
    const pb_view *view;
    pb_axes axes;
    int nlabels;
    const char *labels[PB_LAYOUT_LABELS]; /* [nlabels]: axes of the label columns; "" stands for the case's name */
    int n, nrows, nvariants;
    pb_placed *cases, **order;                    /* [n]: the cases; pointers to them, sorted by row, then variant */
    const pb_placed *variant[PB_LAYOUT_VARIANTS]; /* [nvariants]: a case of each variant, in the order of the columns */
};

/* Places the cases of s[0..n), all of one suite. Call pb_layout_free() also after a failure. */
pb_status pb_layout_make(pb_layout *l, const pb_view *view, const pb_series *s, size_t n);
void pb_layout_free(pb_layout *l);
/* Returns the value of an axis, "" if the case lacks it; for axis "" the case's name. */
const char *pb_layout_label(const pb_placed *e, const char *axis);
/* Writes the values of a variant, such as "graph fused", without the axis `without` (NULL: all axes). */
void pb_variant_title(const pb_view *v, const pb_placed *e, const char *without, char *out, size_t n);
/* Copies the axis of a list such as "mode=eager,graph": "mode". */
void pb_variant_axis(const char *variant, char out[PB_AXIS_TEXT]);
#endif
