/* corpus_ids.c - the program corpus_ids B S prints the first batch that the training benchmarks use: the token ids, one
 * row per line, then their targets, with -100 at positions that do not count in the loss. peers_test compares it with
 * the batch that scripts/peers makes. */
#include <stdio.h>
#include <stdlib.h>

#include "trainer/data/shipped.h"
#include "trainer/step/trainer.h"

static void print(const int32_t *v, int B, int S)
{
    for (int b = 0; b < B; b++)
        for (int s = 0; s < S; s++) printf("%d%c", (int)v[b * S + s], s + 1 < S ? ' ' : '\n');
}

int main(int argc, char **argv)
{
    char path[1024];
    pb_dataset *d = NULL;
    const pb_geometry *g;
    const int B = argc == 3 ? atoi(argv[1]) : 0, S = argc == 3 ? atoi(argv[2]) : 0, n = B * S;
    if (B < 1 || S < 1) return fputs("usage: corpus_ids B S\n", stderr), 2;
    int32_t *ids = malloc(2 * (size_t)n * sizeof *ids), *targets = ids + n;
    float *mask = malloc((size_t)n * sizeof *mask);
    pb_status s = ids && mask ? pb_geometry_find("tiny", &g) : PB_ENOMEM;
    if (s == PB_OK) s = pb_byte_stream_open(pb_shipped_path(path, sizeof path), S, pb_train_defaults(g).model.seed, &d);
    if (s == PB_OK) pb_dataset_batch(d, B, 0, &(pb_rows){ids, targets, mask});
    pb_dataset_close(d);
    for (int i = 0; s == PB_OK && i < n; i++)
        if (!(mask[i] > 0)) targets[i] = -100;
    if (s == PB_OK) print(ids, B, S), print(targets, B, S);
    else fprintf(stderr, "corpus_ids: %s\n", pb_error());
    free(ids);
    free(mask);
    return s == PB_OK ? 0 : 1;
}
