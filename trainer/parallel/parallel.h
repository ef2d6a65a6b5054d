/* parallel.h - the words of training on several ranks: how gradients are reduced, what is sharded, and how rows are
 * divided. */
#ifndef PB_PARALLEL_H
#define PB_PARALLEL_H

/* The type in which gradients travel between ranks. Each entry: X(enumerator, word on the command line, meaning). */
#define PB_REDUCE_MAP(X)                                                                                               \
    X(F32, "f32", "gradients are added in f32")                                                                        \
    X(BF16, "bf16", "each rank's gradient is rounded to bf16, which halves the bytes that travel")
typedef enum pb_reduce {
#define X(id, word, what) PB_REDUCE_##id,
    PB_REDUCE_MAP(X)
#undef X
        PB_NREDUCES
} pb_reduce;

/* The part of the training state of which each rank keeps only its slices (slices.h, units.h). arXiv:1910.02054 calls
 * them ZeRO stages 1, 2 and 3. Each entry: X(enumerator, word on the command line, meaning). */
#define PB_SHARD_MAP(X)                                                                                                \
    X(NONE, "none", "nothing: every rank keeps all and makes the whole optimizer step")                                \
    X(OPTIMIZER, "optimizer", "moments and f32 master weights; the updated weights are gathered after the step")       \
    X(GRADIENTS, "gradients", "also the gradients of the step, which each bucket adds to when it is reduced")          \
    X(PARAMETERS, "parameters", "also the weights, trained or not; those of a layer are gathered before their use")
typedef enum pb_shard {
#define X(id, word, what) PB_SHARD_##id,
    PB_SHARD_MAP(X)
#undef X
        PB_NSHARDS
} pb_shard;

/* How the ranks of a context parallel group divide a row (context.h). Each entry: X(enumerator, word on the command
 * line, meaning). */
#define PB_SLICING_MAP(X)                                                                                              \
    X(AUTO, "auto", "zigzag; contiguous for models that compress keys, which need it")                                 \
    X(ZIGZAG, "zigzag", "two chunks per rank, so that all ranks compute equally many scores")                          \
    X(CONTIGUOUS, "contiguous", "one chunk per rank; with two ranks, the last one computes three times as many scores")
typedef enum pb_slicing {
#define X(id, word, what) PB_SLICING_##id,
    PB_SLICING_MAP(X)
#undef X
        PB_NSLICINGS
} pb_slicing;
#endif
