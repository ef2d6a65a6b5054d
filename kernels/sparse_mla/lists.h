/* lists.h - the kinds of key list that tests and benchmarks of sparse_mla use (axis l). */
#ifndef PB_MLA_LISTS_H
#define PB_MLA_LISTS_H

/* All kinds but FULL, CAUSAL and V4 never name the first, the last and every fifth row of kv. `prepare` fills rows that
 * no list names with NaN and infinities. */
enum list_kind {
    FULL,      /* distinct random rows; -1 in slots from S_kv on */
    HOLES,     /* a quarter of the slots is -1, anywhere, and also the last eighth */
    EMPTY_ROW, /* as HOLES, but the first, the last and every third query and all of batch row 1 have only -1 */
    TWICE,     /* the same one to three rows many times, mixed with out-of-range indices of every kind */
    EMPTY,     /* all slots are -1 */
    V4,        /* DeepSeek-V4: W/2 slots for the latest rows, then one slot per group of 4 rows; S_kv = S + S/4 */
    CAUSAL,    /* as FULL, but rows after the query become -1 */
    CUT,       /* the last quarter of the slots is -1 */
    QUARTER,   /* three quarters of the slots are -1, anywhere */
};
#endif
