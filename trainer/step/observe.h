/* observe.h - passes gradients of activations, and activations that are computed again, to the callback of
 * pb_trainer_observe (tensors.h). The next layer of the backward pass overwrites them. */
#ifndef PB_OBSERVE_H
#define PB_OBSERVE_H
#include "trainer/step/tensors.h"

/* Calls the callback, if there is one that wants gradients, with the gradient `name` of layer `layer` (-1: of no layer): [T,cols] at p, in
 * the model's dtype, which `ops` have just computed. head: columns of one head, or 0. Returns the callback's status. */
pb_status pb_observe(const pb_trainer *t, int layer, const char *name, const char *ops, const void *p, size_t cols,
                     int head);
/* With --recompute: calls the callback, if there is one, with all activations of the layer. Those in buffers that the
 * layers share have just been computed again for this layer. */
pb_status pb_observe_layer(const pb_trainer *t, int layer);
/* The same for nf, if the layers' n1 is going to overwrite it. */
pb_status pb_observe_last_norm(const pb_trainer *t);
#endif
