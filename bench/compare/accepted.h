/* accepted.h - rises of exact counters that are intended: accepted.csv in the folder of the baselines.
 *
 * Columns: key,metric,from,to,reason,until
 *
 *   key      the key of a case, or a pattern with * for several (fnmatch)
 *   metric   an exact counter whose larger number is worse
 *   from,to  the number of the base and of the candidate; no other rise is accepted. Numbers that count as equal to
 *            these (EXACT in metrics.def) match too
 *   reason   not empty; comparisons show it
 *   until    the last day on which the line applies, such as 2027-03-31; empty: no such day
 *
 * A line is added in the commit that raises the counter. It applies when that program is compared with an older program
 * or with older stored values. Once the stored values are updated, comparisons report that the line is no longer
 * needed. */
#ifndef PB_ACCEPTED_H
#define PB_ACCEPTED_H
#include "bench/rows/rows.h"

enum { PB_REASON_FIELD = 512, PB_ACCEPTED_MOST = 4096 };

typedef struct pb_accepted {
    char key[PB_KEY_TEXT], metric[PB_AXIS_TEXT], reason[PB_REASON_FIELD], until[16];
    double from, to;
    int line;                 /* number of the line in the file */
    bool expired;             /* `until` has passed */
    bool compared, justified; /* set by pb_accepted_find(): the line matched a case; the case had this rise */
} pb_accepted;

typedef struct pb_accepted_list {
    pb_accepted *a; /* [n] */
    int n, room;
} pb_accepted_list;

/* Reads the file; one that does not exist gives an empty list. today: "2026-11-23", for `until`. EINVAL, with file and
 * line: a field that is missing or invalid, or more than PB_ACCEPTED_MOST lines; EIO, ENOMEM. Free *out with
 * pb_accepted_free(), also after a failure. */
pb_status pb_accepted_read(const char *path, const char *today, pb_accepted_list *out);
void pb_accepted_free(pb_accepted_list *l);
/* Marks every line that matches key and metric as compared. Returns the line that accepts the rise `from` -> `to`,
 * marked as justified. NULL: none. */
const pb_accepted *pb_accepted_find(pb_accepted_list *l, const char *key, const char *metric, double from, double to);
#endif
