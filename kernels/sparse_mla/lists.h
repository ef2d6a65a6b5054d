/* lists.h - the kinds of list that tests and benchmarks of sparse_mla run on, its axis l. */
#ifndef PB_MLA_LISTS_H
#define PB_MLA_LISTS_H

/* All but FULL, CAUSAL and V4 leave out the first, the last and every fifth row of kv, which hold NaN and infinities
 * then. */
enum list_kind {
    FULL,      /* distinct random rows; -1 in slots beyond S_kv */
    HOLES,     /* a quarter of the slots -1, within the list and at its end */
    EMPTY_ROW, /* so are all slots of the first, the last and every third query, and of batch row 1 */
    TWICE,     /* few rows, many times, among indices of every kind out of range */
    EMPTY,     /* nothing but -1 */
    V4,        /* a window of W/2 rows, then groups of 4 of the rows before: S_kv = S + S/4 */
    CAUSAL,    /* random rows; those after the query -1 */
    CUT,       /* the last quarter of the slots -1 */
    QUARTER,   /* three of four slots -1, anywhere */
};
#endif
