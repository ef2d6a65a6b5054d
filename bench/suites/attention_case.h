/* attention_case.h - a case of suite attention: its sizes, its key lists, and the least work it needs.
 *
 *   pairs       (query, row of kv). "listed" counts all slots of the lists, "valid" those that are not masked.
 *   FLOPs       pairs * H * 2 (D + V) forward, pairs * H * (6 D + 4 V) backward: two and five matrix products. Public
 *               kernels count the same way.
 *   reductions  4 D bytes per valid pair in the backward pass of sparse attention. Each query adds to the f32 sums of
 *               dkv once per listed row, for all heads together. A kernel that merges rows shared by neighbouring
 *               queries needs fewer, so its roofline fraction may exceed 1.
 *
 * The lists are the same on every machine and in every run. */
#ifndef PB_ATTENTION_CASE_H
#define PB_ATTENTION_CASE_H
#include "bench/rows/rows.h"
#include "kernels/engine/dtype.h"
#include "trainer/parallel/context.h"

/* sparse, dense, deterministic: latent attention (MLA), where one row of kv is key and value of all heads;
 * `deterministic` permits only deterministic implementations. dynmask, dense_gqa: grouped-query attention (gqa_call.h),
 * with the key lists of dynamic-mask attention and without lists. */
typedef enum pb_attn_variant {
    PB_VARIANT_SPARSE,
    PB_VARIANT_DENSE,
    PB_VARIANT_DETERMINISTIC,
    PB_VARIANT_DYNMASK,
    PB_VARIANT_DENSE_GQA
} pb_attn_variant;

/* How the key lists are made. W is the number of slots per query.
 * random: W distinct rows of kv in any order; about `masked` per cent of the slots are -1.
 * causal: W distinct rows among those up to the query's own; if there are fewer than W, the last slots are -1.
 * v4:     as kernels/mla_index builds them: the last 128 rows (W rows if W < 128), then W - 128 of the complete groups
 *         of 4 tokens up to the query, drawn at random if there are more. kv has one row per token and one per group:
 *         S_kv = S + S/4.
 * union, exact: one list for each kv head, which dynmask_keys makes in the mode of this name; a query keeps at most W
 *         keys. Only variant dynmask has them, and it has no others. */
typedef enum pb_attn_list { PB_LIST_RANDOM, PB_LIST_CAUSAL, PB_LIST_V4, PB_LIST_UNION, PB_LIST_EXACT } pb_attn_list;

/* The biases of the keys of variant dynmask, which decide which keys a list has; between -2 and 2, other ones for each kv
 * head.
 * random:    independent and uniform, so the kept keys are scattered.
 * clustered: nine tenths are common to PB_BIAS_RUN neighbouring keys, so most kept keys lie in runs, as where a trained
 *            model finds a passage important.
 * blocks:    PB_BIAS_BLOCK neighbouring keys have nearly the same bias, so whole blocks are kept. Within a block the
 *            biases fall by 1e-6 from key to key, so that no two are equal and every top-w selects the same keys. */
typedef enum pb_attn_bias { PB_BIAS_RANDOM, PB_BIAS_CLUSTERED, PB_BIAS_BLOCKS } pb_attn_bias;

enum {
    PB_BIAS_RUN = 32,
    PB_BIAS_BLOCK = 64,
    PB_V4_WINDOW = 128,
    PB_V4_RATIO = 4,
    PB_GQA_GROUP = 4 /* query heads of a kv head in grouped-query attention */
};

/* The parameters of a case with one sequence (B = 1). Dense: each query attends to the rows up to its own; with W > 0
 * only to the last W of them. */
typedef struct pb_attn {
    bool backward;
    pb_attn_variant variant;
    pb_attn_list list;
    pb_attn_bias bias;
    int S, S_kv, H, D, V, W;
    int masked; /* per cent of the slots that are -1 */
    pb_dtype dtype;
    pb_context context; /* ranks that share the row (axes cp and slices), and how they divide it; `rank` is 0 */
} pb_attn;

/* True for the variants with grouped-query attention. */
bool pb_attn_is_gqa(const pb_attn *a);
/* Parses the axes of a case. EINVAL: a value or combination that is not possible. */
pb_status pb_attn_of(const pb_case *c, pb_attn *out);
/* Lists of PB_LIST_V4: how many of a query's slots are for the last tokens up to its own. */
static inline int pb_attn_window(const pb_attn *a) { return a->W < PB_V4_WINDOW ? a->W : PB_V4_WINDOW; }
/* Fills idx[S,W] with the key lists of a sparse case; -1 marks a masked slot. ENOMEM. */
pb_status pb_attn_lists(const pb_attn *a, int32_t *idx);
/* Fills bias[K,S] with the biases of a case of variant dynmask that are not random. */
void pb_attn_biases(const pb_attn *a, int K, float *bias);
/* The w-th of n rows drawn without replacement for query i, 0 <= w < n: element w of a permutation of 0..n-1 that
 * depends on i. */
int32_t pb_attn_draw(int i, int n, int w);

/* Amount of work, defined at the top of this file: valid pairs, listed pairs, FLOPs for a number of pairs, and bytes of
 * reductions. idx is not read for a dense case. */
double pb_attn_pairs(const pb_attn *a, const int32_t *idx);
double pb_attn_listed(const pb_attn *a, const int32_t *idx);
double pb_attn_flops(const pb_attn *a, double pairs);
double pb_attn_reduced(const pb_attn *a, double valid);

/* The roofline time of a case, and what bounds it. It is the largest of the times that the ceilings of this process
 * give for FLOPs, bytes and reductions. A ceiling of 0 was not measured and is left out. */
typedef struct pb_attn_roofline {
    double seconds;
    const char *bound;
} pb_attn_roofline;
typedef struct pb_attn_ceilings {
    double copy, matmul, reduce; /* B/s, FLOP/s, B/s */
} pb_attn_ceilings;
pb_attn_roofline pb_attn_roofline_of(const pb_attn *a, double valid, double bytes, const pb_attn_ceilings *c);
#endif
