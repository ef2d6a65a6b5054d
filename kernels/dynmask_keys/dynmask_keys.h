/* dynmask_keys.h - dynamic-mask attention: which keys each query attends to, as one key list for each kv head.
 *
 * A row holds one conversation or several: token j begins one if j = 0 or start[b,j] = j. Keys of a conversation rank
 * by their bias, larger first; of equal ones (-0 equals 0) the lower key ranks first. A key whose bias is -inf is never
 * kept.
 *
 *     exact: the query at position i keeps the first `keep` keys j <= i of its conversation, or all if there are fewer.
 *            This is the selection of transformers 5.23 (models/doge/modeling_doge.py), with a stable order of ties.
 *     union: the first `keep` keys of the whole conversation are kept; the query at position i attends to those with
 *            j <= i. This is another function: which keys a query attends to depends on later tokens, and it may have
 *            none.
 *
 * In both modes one list for each batch row and kv head says it all, because the keys before a query only become more:
 * a key that has left the first `keep` keys of the prefix never returns. list[b,k] holds the keys that any query
 * attends to, in ascending order, and until[b,k] for each the first position that no longer attends to it:
 *
 *     the query at position i attends to key list[l] if and only if list[l] <= i < until[l]
 *
 * until is at most the end of the key's conversation. Unused slots at the end hold list = -1, until = 0. In exact mode
 * a list has about keep (1 + log(S / keep)) keys for random biases, and S keys at most, for ascending ones.
 *
 * A bias that is NaN or +inf has no rank: on a CPU the op refuses it with EINVAL and does not write the lists. A GPU
 * cannot refuse it without a host sync. There NaN ranks first, and every later query of the conversation keeps the key,
 * so that NaN appears in the output of attention.
 *
 * EINVAL: a size below 1; L too small: below S in exact mode or with `start`, else below min(S, keep); a NULL tensor
 * other than start. */
#ifndef PB_DYNMASK_KEYS_H
#define PB_DYNMASK_KEYS_H
#include "kernels/engine/op.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct pb_dynmask_keys_build_args {
    const float *bias;    /* [B,K,S] of dynmask_bias */
    const int32_t *start; /* [B,S] first token of the token's conversation; NULL: one conversation in each row */
    int32_t *list;        /* [B,K,L] out */
    int32_t *until;       /* [B,K,L] out */
    int B, S, K, L;
    int keep;   /* keys that a query keeps at most */
    bool exact; /* true: exact mode; false: union mode */
} pb_dynmask_keys_build_args;

PB_DECLARE_OP(dynmask_keys, build)

#ifdef __cplusplus
}
#endif
#endif
