/* context.h - context parallelism: which tokens of a row each of C ranks has; pure functions. `row` is the number of
 * tokens of a row.
 *
 * A row is divided into chunks of equal length, and a rank has one or two of them (pb_slicing):
 *
 *     contiguous   C chunks, rank r has chunk r
 *     zigzag       2C chunks, rank r has chunks r and 2C-1-r
 *
 * With a causal mask the queries of chunk c attend to the keys of chunks 0 .. c. Contiguous slices therefore give the
 * last rank (2C-1) times the scores of the first; zigzag gives each rank the same number. Llama 3 training has the
 * second division too: Grattafiori et al. 2024, arXiv:2407.21783, section 3.3.2. Position in the row is not the index
 * in a rank's tokens: a rank's tokens are its chunks, one after the other, so callers pass positions explicitly. */
#ifndef PB_CONTEXT_H
#define PB_CONTEXT_H
#include <stdbool.h>
#include <stddef.h>

typedef struct pb_context {
    int ranks, rank;
    int align; /* chunks are multiples of this number of tokens; 0: 1 */
    bool zigzag;
} pb_context;

/* Number of chunks of a row that each rank has. */
static inline int pb_context_parts(const pb_context *c) { return c->zigzag ? 2 : 1; }
/* Row lengths are multiples of this number. */
static inline int pb_context_unit(const pb_context *c)
{
    return c->ranks * pb_context_parts(c) * (c->align > 1 ? c->align : 1);
}
/* Tokens of a chunk. */
static inline int pb_context_length(const pb_context *c, int row) { return row / (c->ranks * pb_context_parts(c)); }
/* Position in the row, counted in chunks, of this rank's chunk `part`. */
static inline int pb_context_chunk(const pb_context *c, int part)
{
    return part ? 2 * c->ranks - 1 - c->rank : c->rank;
}
/* Index in the row of this rank's token i, 0 <= i < row / ranks. */
static inline int pb_context_token(const pb_context *c, int row, int i)
{
    const int length = pb_context_length(c, row);
    return pb_context_chunk(c, i / length) * length + i % length;
}
/* Attention scores that this rank computes / mean of the ranks. scores(self, i): those of token i of the row. */
static inline double pb_context_load(const pb_context *c, int row, double (*scores)(const void *self, int token),
                                     const void *self)
{
    double own = 0, all = 0;
    for (int i = 0; i < row / c->ranks; i++) own += scores(self, pb_context_token(c, row, i));
    for (int i = 0; i < row; i++) all += scores(self, i);
    return own * c->ranks / all;
}
#endif
