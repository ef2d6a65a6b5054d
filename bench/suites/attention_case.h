/* attention_case.h - a case of the suite attention: its sizes, its lists, and the least work of it.
 *
 *   pairs       of a query and a row of kv: listed are all slots of the lists, valid those that are not masked
 *   FLOPs       pairs H 2 (D + V) forward, pairs H (6 D + 4 V) backward: the two and the five matrix products, as every
 *               public kernel counts them
 *   reductions  4 D bytes a valid pair in the backward pass of sparse attention: the f32 sums of dkv are added to once
 *               for every row that a query lists, all its heads together. A kernel that first joins the rows that neighbouring
 *               queries share does fewer, and its share of this floor may pass 1
 *
 * Lists hold the same rows on every machine and in every run. */
#ifndef PB_ATTENTION_CASE_H
#define PB_ATTENTION_CASE_H
#include "bench/rows/rows.h"
#include "kernels/core/dtype.h"

typedef enum pb_attn_arm { PB_ARM_SPARSE, PB_ARM_DENSE, PB_ARM_DETERMINISTIC } pb_attn_arm;

/* random: W distinct rows of kv in any order; of a hundred slots about `masked` are -1.
 * causal: the same of the rows up to the query's own; where there are fewer than W, the last slots are -1.
 * v4: as kernels/mla_index builds them: the last 128 rows (W of them when W < 128), then W - 128 of the groups of 4
 * that lie before, drawn at random where there are more; S_kv = S + S/4. */
typedef enum pb_attn_list { PB_LIST_RANDOM, PB_LIST_CAUSAL, PB_LIST_V4 } pb_attn_list;

enum { PB_V4_WINDOW = 128, PB_V4_RATIO = 4 };

/* One sequence. Dense: every query sees the rows up to its own, W > 0: only the last W of them. */
typedef struct pb_attn {
    bool backward;
    pb_attn_arm arm;
    pb_attn_list list;
    int S, S_kv, H, D, V, W;
    int masked; /* per cent of the slots */
    pb_dtype dtype;
} pb_attn;

/* EINVAL: a value that no run can take. */
pb_status pb_attn_of(const pb_case *c, pb_attn *out);
/* The lists of a sparse case: idx [S,W]. ENOMEM. */
pb_status pb_attn_lists(const pb_attn *a, int32_t *idx);
/* Slot w of query i of n rows without replacement, w < n: a permutation of 0..n-1 that belongs to i. */
int32_t pb_attn_draw(int i, int n, int w);

/* Valid pairs; idx as above, not read for dense. */
double pb_attn_pairs(const pb_attn *a, const int32_t *idx);
double pb_attn_listed(const pb_attn *a, const int32_t *idx);
double pb_attn_flops(const pb_attn *a, double pairs);
double pb_attn_reduced(const pb_attn *a, double valid);

/* The largest of the times that the ceilings of the same run leave for the work, and which it is; a ceiling of 0 was
 * not measured and leaves none. */
typedef struct pb_attn_floor {
    double seconds;
    const char *bound;
} pb_attn_floor;
typedef struct pb_attn_ceilings {
    double copy, matmul, reduce; /* B/s, FLOP/s, B/s */
} pb_attn_ceilings;
pb_attn_floor pb_attn_floor_of(const pb_attn *a, double valid, double bytes, const pb_attn_ceilings *c);
#endif
