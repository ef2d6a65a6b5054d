/* oracle_model.h - a second opinion on what a model computes: its forward pass and loss as plain loops in double.
 *
 * It shares the list of parameters with the trainer and nothing else: no op, no table of rotations, and its own
 * reading of NF4. So it sees exactly the weights that the model under test has, and makes none of its mistakes. */
#ifndef PB_ORACLE_MODEL_H
#define PB_ORACLE_MODEL_H
#include "trainer/step/trainer.h"

typedef struct oracle {
    const pb_model *m; /* geometry, and which parameter is where */
    double **w;        /* [m->n] the values of every parameter; NF4 as level[code] * absmax */
    double eps, theta; /* the geometry's */
} oracle;

/* Copies the weights as they are now. Memory that cannot be had fails the test. */
oracle oracle_open(const pb_model *m);
void oracle_close(oracle *o);
double *oracle_param(const oracle *o, const pb_param *p); /* [rows,cols] */

/* logits [B*S,V] of ids [B,S]. */
void oracle_logits(const oracle *o, const int32_t *ids, int B, int S, double *logits);
/* Mean of -log softmax(logits)[target] over the n rows where mask is not 0. */
double oracle_cross_entropy(const double *logits, const int32_t *targets, const float *mask, size_t n, int V);
/* Both: the loss of a batch. */
double oracle_loss(const oracle *o, const pb_batch *batch, int B, int S);
#endif
