/* row_status.h - the statuses of rows (status.def), such as ok or wrong: the values of the column `status`. */
#ifndef PB_ROW_STATUS_H
#define PB_ROW_STATUS_H
#include <stdbool.h>

/* The statuses from the least to the most severe, so that < and > compare their severity. */
typedef enum pb_row_status {
#define STATUS(id, name, class, what) PB_ROW_##id,
#include "bench/rows/status.def"
#undef STATUS
    PB_ROW_STATUSES /* their number */
} pb_row_status;

typedef enum pb_row_class { PB_ROW_FIGURE, PB_ROW_VERDICT, PB_ROW_NONE, PB_ROW_BROKEN } pb_row_class; /* status.def */

typedef struct pb_row_status_line {
    const char *name; /* the text of the column */
    pb_row_class class;
    const char *what;
} pb_row_status_line;
extern const pb_row_status_line pb_row_statuses[PB_ROW_STATUSES]; /* in the order of status.def */

static inline const char *pb_row_status_name(pb_row_status s) { return pb_row_statuses[s].name; }
static inline pb_row_class pb_row_class_of(pb_row_status s) { return pb_row_statuses[s].class; }
/* Finds the status of this name. False: status.def has no such status; *out is then unchanged. */
bool pb_row_status_find(const char *name, pb_row_status *out);
#endif
