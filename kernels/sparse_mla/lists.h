/* lists.h - the kinds of key list that tests and benchmarks of sparse_mla use (axis l). */
#ifndef PB_MLA_LISTS_H
#define PB_MLA_LISTS_H

/* Added to axis l in the backward pass: dkv is f32. */
enum { WIDE = 16 };

/* Only lists of the kinds FULL, CAUSAL and V4 may name the first, the last or every fifth row of kv. In the other kinds
 * no list names these rows; `prepare` fills rows that no list names with NaN and infinities. */
enum list_kind {
    FULL,      /* distinct random rows; slots from S_kv on are -1 */
    HOLES,     /* distinct random rows, but a random quarter of the slots and the last eighth are -1 */
    EMPTY_ROW, /* like HOLES, but all slots are -1 for the first, the last and every third query and in batch row 1 */
    TWICE,     /* a list names one to three rows many times each, and holds indices that are out of range */
    EMPTY,     /* all slots are -1 */
    V4,        /* DeepSeek-V4: W/2 slots for the latest rows, then one slot per group of 4 rows; S_kv = S + S/4 */
    CAUSAL,    /* like FULL, but slots whose row comes after the query are -1 */
    CUT,       /* distinct random rows, but the last quarter of the slots is -1 */
    QUARTER,   /* distinct random rows, but three quarters of the slots, chosen at random, are -1 */
};
#endif
