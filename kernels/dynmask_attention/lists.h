/* lists.h - the key lists that tests and benchmarks of dynmask_attention use, and NaN in what no query attends to. */
#ifndef PB_DYNMASK_ATTENTION_LISTS_H
#define PB_DYNMASK_ATTENTION_LISTS_H
#include "kernels/dynmask_attention/dynmask_attention.h"

/* The kinds of list (axis l). */
enum pb_dynmask_lists {
    PB_LISTS_EXACT,  /* dynmask_keys in exact mode, of random biases */
    PB_LISTS_UNION,  /* dynmask_keys in union mode; only this kind has fewer slots than keys */
    PB_LISTS_PACKED, /* like EXACT, with three conversations in a row */
    PB_LISTS_HOLES, /* like EXACT, but a quarter of the slots is unused, some of these with keys out of range, and every
                        third list is empty */
    PB_LISTS_BLOCKS, /* like EXACT, but no query attends to a key of another block of 64 than its own, and none to a key of
                        an even block: blocks of queries without and with keys alternate */
};

/* Returns the slots L of a list of this kind. */
int pb_dynmask_lists_size(enum pb_dynmask_lists kind, int S_kv, int keep);
/* Fills list and until [B,K,L] on the host. They do not depend on the biases that the op then reads. ENOMEM. */
pb_status pb_dynmask_lists_fill(enum pb_dynmask_lists kind, int B, int S_kv, int K, int keep, int32_t *list,
                                int32_t *until);
/* Overwrites keys, values and biases that no query attends to with NaN and infinities, so that an implementation which
 * uses them gives a wrong result. The tensors are in host memory. ENOMEM. */
pb_status pb_dynmask_plant(const pb_dynmask_attention_fwd_args *a);
#endif
