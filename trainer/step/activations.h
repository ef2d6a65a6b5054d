/* activations.h - the device memory of a trainer's step but the weights, gradients and moments of its parameters. */
#ifndef PB_ACTIVATIONS_H
#define PB_ACTIVATIONS_H
#include "trainer/step/trainer_impl.h"

/* Reserves all pieces of t->acts and sets the pointers to them; see arena.h for the two passes. */
void pb_activations_carve(pb_trainer *t);
#endif
