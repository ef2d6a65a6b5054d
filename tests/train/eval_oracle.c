/* eval_oracle.c - recomputes the loss that `train eval` prints from the logits it wrote: the mean over loss tokens
 * of log sum exp(logits) - logits[target], in double precision. usage: eval_oracle FILE */
#include <math.h>
#include <stdio.h>

#include "trainer/io/safetensors.h"

int main(int argc, char **argv)
{
    pb_safetensors *f = NULL;
    if (argc != 2 || pb_st_open(argv[1], &f) != PB_OK) return 1;
    const pb_st_tensor *l = pb_st_find(f, "logits"), *t = pb_st_find(f, "targets"), *m = pb_st_find(f, "mask");
    if (!l || !t || !m || l->dims != 3) return 1;
    const float *logits = (const void *)l->data, *mask = (const void *)m->data;
    const int *target = (const void *)t->data;
    double sum = 0, count = 0;
    for (size_t i = 0, V = l->shape[2]; i < m->n; i++) {
        double z = 0;
        for (size_t v = 0; v < V && mask[i] > 0; v++) z += exp((double)logits[i * V + v]);
        if (mask[i] > 0) sum += log(z) - (double)logits[i * V + (size_t)target[i]], count++;
    }
    printf("tokens %.0f\nloss %.9g\n", count, sum / count);
    pb_st_close(f);
    return 0;
}
