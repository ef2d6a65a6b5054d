/* block.h - the block interface: the part of a transformer layer that differs between model families.
 *
 * A block computes attention and its projections, from the output of the layer's first norm to the input of the
 * residual addition. All families share the norms, the MLP, the residual stream, the embedding and the head
 * (trainer/step).
 *
 * A family is one line of families.def, which names its block; the block is a table of functions, pb_block_NAME. Blocks
 * reserve their buffers in the arena t->acts. The functions `begin`, `forward` and `backward` only enqueue work, so
 * that they can be timed and captured in a graph. */
#ifndef PB_BLOCK_H
#define PB_BLOCK_H
#include "trainer/step/trainer.h"

/* A tensor that a block gives, by its name within the layer. ops, head, by_head: see pb_tensor. */
typedef struct pb_given {
    const char *name, *ops;
    const void *p;
    size_t rows, cols;
    pb_dtype dtype;
    int head;
    bool by_head;
} pb_given;
typedef void (*pb_give_tensor)(void *self, const pb_given *x);

typedef struct pb_block {
    size_t state_bytes, layer_bytes; /* sizes of *t->block_state and of each *t->layers[].block; both start zeroed */
    pb_status (*check)(const pb_train_config *c); /* EINVAL: a setting that this family does not support */
    void (*carve_layer)(pb_trainer *t,
                        int layer); /* reserves the activations of one layer; of all, if they share them */
    /* Reserves what attention computes from q, k and v, of a layer that shares its other activations with layer 0, whose
     * struct the layer's has been copied from. NULL: this family cannot keep that apart. */
    void (*carve_attended)(pb_trainer *t, int layer);
    void (*carve_shared)(pb_trainer *t);   /* reserves tables, and buffers that all layers share */
    void (*carve_backward)(pb_trainer *t); /* reserves gradients of activations, one set for all layers */
    /* Reserves what is in use only inside backward(): other buffers of the layer get the same memory, so it has no
     * defined values when backward() is called. NULL: nothing. */
    void (*carve_scratch)(pb_trainer *t);
    pb_status (*tables)(pb_trainer *t); /* computes and uploads the RoPE tables; host syncs */
    /* Uploads what the block needs of a batch's rows of S tokens, besides t->start and t->pos. NULL: nothing. Host
     * syncs. */
    pb_status (*rows)(pb_trainer *t, const pb_batch *b, int S);
    pb_status (*begin)(pb_ctx *ctx, const pb_trainer *t); /* enqueued once per forward pass, before the first layer */
    pb_status (*forward)(pb_ctx *ctx, const pb_trainer *t, int layer); /* reads the layer's n1, writes t->proj */
    /* Computes the layer's activations again, from n1. It may overwrite t->proj, with no defined value; if the layer
     * keeps what its attention has computed (pb_keeps_attended), it computes the others, and t->proj as forward does. */
    pb_status (*recompute)(pb_ctx *ctx, const pb_trainer *t, int layer);
    pb_status (*backward)(pb_ctx *ctx, const pb_trainer *t, int layer); /* reads t->dcur = dproj, writes t->dn = dn1 */
    /* Adds the indexers' weighted loss of the last micro-batch to *loss. NULL: the block refuses index_loss > 0.
     * Host syncs. */
    pb_status (*own_loss)(const pb_trainer *t, double *loss);
    /* Gives the activations of a layer, with the shapes of the current batch (trainer/step/tensors.h). */
    void (*tensors)(const pb_trainer *t, int layer, pb_give_tensor give, void *self);
    /* Attention scores of a query per head, summed over the layers: token `token` of a row that is not packed. */
    double (*scores)(const pb_trainer *t, int token);
    /* FLOPs that pb_trainer_flops adds to its count of the weight matrices. That count has, for every weight matrix,
     * one product in the forward pass and one in the backward pass (two if the matrix is trained). A negative term
     * subtracts a product that the block does not compute. */
    pb_flops (*flops)(const pb_trainer *t);
} pb_block;

#define FAMILY(id, block, what) extern const pb_block pb_block_##block;
#include "trainer/model/families.def"
const pb_block *pb_block_of(const pb_geometry *g);
#endif
