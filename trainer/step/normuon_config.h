/* normuon_config.h - which optimizer trains which tensors, and the settings of NorMuon.
 *
 * With PB_OPTIMIZER_NORMUON, NorMuon (kernels/normuon/normuon.h) trains the matrices of the layers and the matrices of
 * adapters: all trained tensors of kind MATRIX or ADAPTER. AdamW trains all others: embedding, head, gains, biases.
 *
 * Weights that share their input are one tensor. It is divided into the blocks that Hugging Face stores separately, and
 * each is orthogonalised alone: q, k and v; gate and up; the parts of V4's latent and index_in; the groups of V4's o_a.
 * With per_head, the heads of q, k and v (V4: q_b and index_q) are blocks, too. A matrix of adapters is one block. */
#ifndef PB_NORMUON_CONFIG_H
#define PB_NORMUON_CONFIG_H
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/normuon/normuon.h"

/* Each entry: X(enumerator, word on the command line, meaning). */
#define PB_OPTIMIZER_MAP(X)                                                                                            \
    X(ADAMW, "adamw", "AdamW trains all tensors")                                                                      \
    X(NORMUON, "normuon", "NorMuon trains the matrices of layers and adapters, AdamW the other tensors")
typedef enum pb_optimizer {
#define X(id, word, what) PB_OPTIMIZER_##id,
    PB_OPTIMIZER_MAP(X)
#undef X
        PB_NOPTIMIZERS
} pb_optimizer;

/* The type in which updates are orthogonalised. */
#define PB_NS_DTYPE_MAP(X)                                                                                             \
    X(AUTO, "auto", "the type of the weights")                                                                         \
    X(F32, "f32", "f32")                                                                                               \
    X(BF16, "bf16", "bf16, with sums in f32")
typedef enum pb_ns_dtype {
#define X(id, word, what) PB_NS_DTYPE_##id,
    PB_NS_DTYPE_MAP(X)
#undef X
        PB_NNS_DTYPES
} pb_ns_dtype;

/* The momentum after a step that the NaN guard skips. */
#define PB_GUARD_MAP(X)                                                                                                \
    X(RESTORE, "restore", "the momentum is as before the step")                                                        \
    X(KEEP, "keep", "the momentum has added the step's gradient")
typedef enum pb_guard_momentum {
#define X(id, word, what) PB_GUARD_##id,
    PB_GUARD_MAP(X)
#undef X
        PB_NGUARDS
} pb_guard_momentum;

typedef struct pb_normuon_config {
    pb_ns_variant variant;
    int steps; /* of Newton-Schulz: 1 to PB_NS_STEPS */
    pb_ns_dtype products;
    pb_normuon_adjust_kind adjust;
    float rate;              /* the matrices' learning rate divided by that of AdamW; >= 0 */
    float mu, beta2;         /* 0 to below 1 */
    bool nesterov, cautious; /* see normuon.h */
    bool per_head;
    /* The NaN guard: a step in which an orthogonalised update is not finite, on any rank, changes no weight and no
     * second moment, of AdamW's tensors neither. The ranks agree on the device; no host reads it. Off: not a single
     * check is enqueued. If all updates are finite, a step has the bits of one without the guard. */
    bool guard;
    pb_guard_momentum momentum;
} pb_normuon_config;
#endif
