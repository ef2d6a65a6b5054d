/* parallel.h - the words of data parallel training: how gradients are reduced, and what is sharded. */
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
#endif
