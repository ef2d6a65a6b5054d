/* products.h - the matrix products of a layer and their gradients: with dense or NF4 weights, biases and adapters. */
#ifndef PB_PRODUCTS_H
#define PB_PRODUCTS_H
#include "trainer/step/trainer_impl.h"

/* A weight matrix of a layer, its bias, and the adapter targets whose outputs are column ranges of its output. */
typedef struct pb_product {
    int param, bias; /* ids in model.def; bias -1: none */
    pb_target first;
    int targets;
} pb_product;
/* The adapter targets of a product are first, first+1, ..., first+targets-1. */
extern const pb_product pb_product_qkv, pb_product_o, pb_product_gate_up, pb_product_down;

/* Tokens of the batch: n of them, the first of which is number `first`. The tensors x and y of a product, and their
 * gradients, are given at the first of these tokens. */
typedef struct pb_rows {
    int first, n;
} pb_rows;
static inline pb_rows pb_all_rows(const pb_trainer *t) { return (pb_rows){0, t->T}; }

/* Computes y [n,rows] = x w^T (+ bias) (+ adapters), where w is dense or NF4. */
pb_status pb_product_fwd(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r, const void *x,
                         void *y);
/* Adds to y the output of the adapters of a product with input x, and stores x A^T of each in t->layers[layer].xa for
 * the backward pass. pb_product_fwd calls it. Does nothing if the product has no adapters. */
pb_status pb_product_adapters(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r,
                              const void *x, void *y);
/* Computes dx = dy w plus the adapters' contribution, and the adapters' gradients, which are added to those of the
 * tokens before the first. x, the input of the product, is only read if the product has adapters. */
pb_status pb_product_dx(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r, const void *dy,
                        const void *x, void *dx);
/* Computes dw = dy^T x and the gradient of the bias, or adds them to those of the tokens before the first; does nothing
 * unless the weight is trained. */
pb_status pb_product_dw(pb_ctx *ctx, const pb_trainer *t, int layer, const pb_product *pr, pb_rows r, const void *dy,
                        const void *x);
/* Names the ops that compute the output of a product: of the weight, and of its adapters if it has any, such as
 * "nf4_linear_fwd+lora_fwd". */
const char *pb_product_ops(const pb_trainer *t, int layer, const pb_product *pr);
/* Names the ops that compute the gradient of a product's input, such as "nf4_linear_dx+lora_bwd". */
const char *pb_product_back_ops(const pb_trainer *t, int layer, const pb_product *pr);
bool pb_has_adapter(const pb_trainer *t, int layer, pb_target target);
/* True if the backward pass of a product reads its input: for the gradient of its weight, or of an adapter. */
bool pb_product_reads_input(const pb_trainer *t, int layer, const pb_product *pr);
/* Returns the gradient of a parameter; NULL: the parameter is not trained. */
static inline float *pb_grad_of(const pb_param *p) { return p && p->trained ? p->grad : NULL; }
#endif
