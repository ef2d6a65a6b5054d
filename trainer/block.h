/* block.h - what a family's layers compute between their two norms: attention with all its products. The norms, the
 * MLP, the residual stream and everything outside the layers are common (forward.c, backward.c, trainer.c).
 *
 * A family of models is a line of families.def; its block is a table of functions, pb_block_NAME. Buffers are carved
 * from t->acts; what the phases use of a block only enqueues, so that it can be timed and recorded. */
#ifndef PB_BLOCK_H
#define PB_BLOCK_H
#include "trainer/trainer.h"

typedef struct pb_block {
    pb_status (*check)(const pb_train_config *c);         /* EINVAL: what its figures do not allow */
    void (*carve_layer)(pb_trainer *t, int layer);        /* what a layer keeps from forward to backward */
    void (*carve_shared)(pb_trainer *t);                  /* tables, and what the layers use in turn */
    void (*carve_backward)(pb_trainer *t);                /* gradients of activations, one set for all layers */
    pb_status (*tables)(pb_trainer *t);                   /* fills the tables; waits */
    pb_status (*begin)(pb_ctx *ctx, const pb_trainer *t); /* once a forward pass, before the layers */
    pb_status (*forward)(pb_ctx *ctx, const pb_trainer *t, int layer);  /* n1 of the layer to t->proj */
    pb_status (*backward)(pb_ctx *ctx, const pb_trainer *t, int layer); /* t->dcur, the gradient of proj, to t->dn */
    /* What pb_trainer_flops adds to the products with parameters, all of which it counts forward and, to their input,
     * backward. */
    pb_flops (*flops)(const pb_trainer *t);
} pb_block;

#define FAMILY(id, block, what) extern const pb_block pb_block_##block;
#include "trainer/families.def"
const pb_block *pb_block_of(const pb_geometry *g);

/* In parts, where they share more with the common ones than with each other. */
pb_status pb_gqa_forward(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_gqa_backward(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_v4_begin(pb_ctx *ctx, const pb_trainer *t);
pb_status pb_v4_forward(pb_ctx *ctx, const pb_trainer *t, int layer);
pb_status pb_v4_backward(pb_ctx *ctx, const pb_trainer *t, int layer);
#endif
