/* dataset_impl.h - the state of a data set, for the files that implement it. */
#ifndef PB_DATASET_IMPL_H
#define PB_DATASET_IMPL_H
#include "trainer/data/dataset.h"

typedef struct pb_token_at { /* a token, and the sample it belongs to */
    size_t sample, token;
} pb_token_at;

struct pb_dataset {
    pb_dataset_config cfg;
    pb_samples samples;
    size_t *order; /* [n] the samples in the order of the epoch */
    size_t *next;  /* [n] the sample that follows sample i in its row (PB_PACK_STREAM: in the stream) */
    pb_token_at *row;
    size_t rows; /* number of rows in the epoch; row[i] is the first token of row i */
    pb_data_position at;
};

/* Number of positions that sample i takes in a row. */
static inline size_t pb_sample_positions(const pb_samples *s, size_t i) { return s->first[i + 1] - s->first[i] - 1; }

/* Number of windows of S tokens in an epoch of a stream. Windows with too few loss tokens do not become rows. */
static inline size_t pb_stream_windows(const pb_dataset *d) { return (d->samples.ids.n - 1) / (size_t)d->cfg.S; }

/* Plans the rows of epoch d->at.epoch. d->row has room for pb_stream_windows(d) rows (PB_PACK_STREAM) or for one row
 * per sample (otherwise). */
void pb_dataset_plan(pb_dataset *d);
#endif
