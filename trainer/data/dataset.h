/* dataset.h - rows of S tokens from conversations: packed, isolated from each other, in a seeded random order.
 *
 * A conversation of n tokens takes n-1 positions of a row. At each position token t is the input and token t+1 the
 * target; the mask of token t+1 decides whether the target counts in the loss. Rows hold whole conversations only.
 * `start` is the position of the conversation's first token, and `pos` counts from 0 in each conversation. With these
 * two (pb_train_config.packed), a row computes the same as its conversations would alone. Unused positions (padding)
 * attend only to themselves and have mask 0.
 *
 * Each epoch has its own order, drawn from the seed. Rows are filled in that order by best fit among at most 64 open
 * rows. If the last rows of an epoch do not fill a batch, the batch continues with the next epoch. */
#ifndef PB_DATASET_H
#define PB_DATASET_H
#include "trainer/data/encode.h"

/* Treatment of a conversation of more than S+1 tokens. X(enumerator, word on the command line, meaning) */
#define PB_LONG_MAP(X)                                                                                                 \
    X(CUT, "cut", "its first S+1 tokens are kept")                                                                     \
    X(SPLIT, "split",                                                                                                  \
      "it becomes several, S+1 tokens each, that begin with the last token of the one before;"                         \
      " those without a target that counts are left out")                                                              \
    X(DROP, "drop", "it is left out")                                                                                  \
    X(REFUSE, "refuse", "its line is a bad line")
typedef enum pb_long {
#define X(id, word, what) PB_LONG_##id,
    PB_LONG_MAP(X)
#undef X
        PB_NLONGS
} pb_long;

typedef struct pb_dataset_config {
    pb_chat_options chat;
    pb_mask_type mask;
    pb_bad_lines bad_lines;
    pb_long long_ones;
    int S;     /* tokens per row, >= 1 */
    bool pack; /* false: one conversation per row */
    int align; /* conversations begin at multiples of this position (pb_sample_align); 0: 1 */
    uint64_t seed;
    /* The fraction of the conversations that is held out for evaluation, drawn from the seed; 0 <= held_out < 1. */
    double held_out;
    bool evaluation; /* true: read only the held-out conversations; false: only the others */
} pb_dataset_config;

typedef struct pb_dataset_counts {
    pb_jsonl_counts lines;
    size_t cut, split, dropped; /* conversations longer than a row, by what happened to them */
    size_t empty;               /* left out, because no target in them counts */
    size_t elsewhere;           /* in the part of the held_out split that is not read */
    size_t kept;                /* lines.samples = kept + dropped + empty + elsewhere */
    size_t tokens, counted;     /* in the kept conversations: positions, and targets that count */
} pb_dataset_counts;

typedef struct pb_data_position { /* the next row to draw; stored in a checkpoint */
    uint64_t epoch, row;
} pb_data_position;

typedef struct pb_rows { /* arrays of the caller, [B,S] each */
    int32_t *ids, *targets;
    float *mask;
    int32_t *start, *pos;
    int32_t *used; /* [B] positions up to the end of the last conversation; may be NULL */
} pb_rows;

typedef struct pb_dataset pb_dataset;

/* Reads and encodes the whole file. The tokenizer is used only during the call. *counts is filled in any case. EPATH,
 * EIO, EINVAL, EFORMAT as pb_jsonl_read; EINVAL also if `cfg` is invalid, or if no conversation with a target that
 * counts is left. ENOMEM. */
pb_status pb_dataset_open(const char *path, pb_tokenizer *t, const pb_dataset_config *cfg, pb_dataset_counts *counts,
                          pb_dataset **out);
void pb_dataset_close(pb_dataset *d); /* NULL is allowed */
/* Number of rows in the current epoch. Epochs differ, because each is packed anew. */
size_t pb_dataset_rows(const pb_dataset *d);

/* Draws the next B rows. Cannot fail: pb_dataset_open allocates all memory. */
void pb_dataset_next(pb_dataset *d, int B, const pb_rows *out);
/* Makes rows first..B-1 of `out` empty: no position counts. With it a batch can hold the rest of an epoch without
 * drawing from the next epoch, which may have another number of rows. */
void pb_dataset_blank(const pb_dataset *d, int first, int B, const pb_rows *out);
pb_data_position pb_dataset_position(const pb_dataset *d);
/* Continues from a position that pb_dataset_position returned, independent of what was drawn before. EINVAL: the epoch
 * has fewer rows; the dataset is then unchanged. */
pb_status pb_dataset_seek(pb_dataset *d, pb_data_position at);

/* Fills `order` with 0..n-1 in an order drawn from the seed (Fisher-Yates). */
void pb_shuffle(size_t *order, size_t n, uint64_t seed);
#endif
