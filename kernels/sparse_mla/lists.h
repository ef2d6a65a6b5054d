/* lists.h - the kinds of key list that tests and benchmarks of sparse_mla use (axis l). */
#ifndef PB_MLA_LISTS_H
#define PB_MLA_LISTS_H

/* All kinds but FULL, CAUSAL and V4 never name the first, the last and every fifth row of kv; `prepare` fills those
 * rows with NaN and infinities. */
enum list_kind {
    FULL,      /* distinct random rows; -1 in slots from S_kv on */
    HOLES,     /* a quarter of the slots is -1, anywhere, and also the last eighth */
    EMPTY_ROW, /* as HOLES, and all slots are -1 for the first, the last and every third query and for batch row 1 */
    TWICE,     /* the same one to three rows many times, mixed with out-of-range indices of every kind */
    EMPTY,     /* all slots are -1 */
    V4,        /* DeepSeek-V4: a window of W/2 rows, then groups of 4 earlier rows; S_kv = S + S/4 */
    CAUSAL,    /* random rows; those after the query become -1 */
    CUT,       /* the last quarter of the slots is -1 */
    QUARTER,   /* three quarters of the slots are -1, anywhere */
};
#endif
