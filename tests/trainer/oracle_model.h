/* oracle_model.h - computes a model's logits and loss with plain loops in double precision, to check the trainer.
 *
 * It shares the list of parameters with the trainer and nothing else: no op, no table of rotations, and it decodes
 * NF4 itself. It uses exactly the weights of the model under test, but cannot repeat a mistake of the trainer's
 * code. */
#ifndef PB_ORACLE_MODEL_H
#define PB_ORACLE_MODEL_H
#include "trainer/step/trainer.h"

typedef struct oracle {
    const pb_model *m; /* the geometry and the list of parameters */
    double **w;        /* [m->n] the values of every parameter; NF4 decoded as level[code] * absmax */
    double eps, theta; /* copied from the geometry */
} oracle;

/* Copies the current weights of m. Fails the test when memory runs out. */
oracle oracle_open(const pb_model *m);
void oracle_close(oracle *o);
double *oracle_param(const oracle *o, const pb_param *p); /* values [rows,cols] */

/* Computes logits [B*S,V] for ids [B,S]. */
void oracle_logits(const oracle *o, const int32_t *ids, int B, int S, double *logits);
/* Returns the mean of -log softmax(logits)[target] over the rows whose mask is not 0; n: number of rows. */
double oracle_cross_entropy(const double *logits, const int32_t *targets, const float *mask, size_t n, int V);
/* oracle_logits followed by oracle_cross_entropy: the loss of a batch. */
double oracle_loss(const oracle *o, const pb_batch *batch, int B, int S);
#endif
