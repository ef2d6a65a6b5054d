/* dataset.h - rows of S tokens from conversations, in a seeded random order.
 *
 * At each position token t is the input and token t+1 the target; the mask of token t+1 decides whether the target
 * counts in the loss. Each epoch has its own order of conversations, drawn from the seed. If the last rows of an epoch
 * do not fill a batch, the batch continues with the next epoch.
 *
 * PB_PACK_ON and PB_PACK_OFF: a conversation of n tokens takes n-1 positions of a row, and rows hold whole
 * conversations only. `start` is the position of the conversation's first token, and `pos` counts from 0 in each
 * conversation. With these two (pb_train_config.packed), a row computes the same as its conversations would alone.
 * Unused positions (padding) attend only to themselves and have mask 0. PB_PACK_ON fills rows in the epoch's order by
 * best fit among at most 64 open rows.
 *
 * PB_PACK_STREAM: the conversations of an epoch, one after the other, are a stream of n tokens. It is cut into windows
 * of S+1 tokens, each of which begins with the last token of the one before; a window is a row of S positions. What is
 * left at the end, fewer than S positions, is not used. A window is passed over if no target in it counts, or fewer
 * than `min_counted` of its S targets. A conversation may begin in one row and end in the next, and its tokens attend
 * to the conversations before it in the row: `start` is 0 and `pos` the index in the row. */
#ifndef PB_DATASET_H
#define PB_DATASET_H
#include "trainer/data/encode.h"

/* The ways to make rows of conversations. Each entry: X(enumerator, word on the command line, meaning). */
#define PB_PACK_MAP(X)                                                                                                 \
    X(ON, "on", "several conversations a row, isolated from each other")                                               \
    X(OFF, "off", "one conversation a row")                                                                            \
    X(STREAM, "stream", "all conversations one after the other, cut every S tokens")
typedef enum pb_pack {
#define X(id, word, what) PB_PACK_##id,
    PB_PACK_MAP(X)
#undef X
        PB_NPACKS
} pb_pack;

/* The ways to treat a conversation of more than S+1 tokens. Each entry: X(enumerator, word on the command line,
 * meaning). */
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
    pb_long long_ones; /* with PB_PACK_STREAM it has no effect and must be PB_LONG_SPLIT */
    int S;             /* tokens per row, >= 1 */
    pb_pack pack;
    double min_counted; /* PB_PACK_STREAM: least share of loss tokens in a row, 0 to 1; otherwise 0 */
    int align;          /* conversations begin at multiples of this position (pb_sample_align); 0 or 1 in a stream */
    uint64_t seed;
    /* The fraction of the conversations that is held out for evaluation, drawn from the seed; 0 <= held_out < 1. */
    double held_out;
    bool evaluation; /* true: read only the held-out conversations; false: only the others */
} pb_dataset_config;

typedef struct pb_dataset_counts {
    pb_jsonl_counts lines;
    size_t cut, split, dropped; /* numbers of conversations longer than a row that were cut, split or dropped */
    size_t empty;               /* conversations left out, because they have no loss token */
    size_t elsewhere;           /* conversations in the part of the held_out split that is not read */
    size_t kept;                /* conversations kept: lines.samples = kept + dropped + empty + elsewhere */
    /* tokens: positions of the kept conversations; counted: their targets that count in the loss. In a stream, the
     * first token of a conversation is also a target. */
    size_t tokens, counted;
    /* stream: windows of S tokens of epoch 0 that are not rows, because they have too few loss tokens */
    size_t passed_over;
} pb_dataset_counts;

typedef struct pb_data_position { /* the next row to draw; stored in a checkpoint */
    uint64_t epoch, row;
} pb_data_position;

typedef struct pb_rows { /* arrays of the caller, [B,S] each */
    int32_t *ids, *targets;
    float *mask;
    int32_t *start, *pos; /* may be NULL */
    int32_t *used;        /* [B] positions up to the end of the last conversation; may be NULL */
} pb_rows;

typedef struct pb_dataset pb_dataset;

/* Reads and encodes the whole file. The tokenizer is used only during the call. *counts is filled in any case. EPATH,
 * EIO, EINVAL, EFORMAT as pb_jsonl_read; EINVAL also if `cfg` is invalid, if no conversation with a loss token is left,
 * or if no window of epoch 0 becomes a row. ENOMEM. */
pb_status pb_dataset_open(const char *path, pb_tokenizer *t, const pb_dataset_config *cfg, pb_dataset_counts *counts,
                          pb_dataset **out);
void pb_dataset_close(pb_dataset *d); /* NULL is allowed */
/* Number of rows in the current epoch, at least 1. It differs between epochs, because each epoch is packed anew. An
 * epoch of a stream in which no window has enough loss tokens uses the order of epoch 0. */
size_t pb_dataset_rows(const pb_dataset *d);

/* Draws the next B rows. Cannot fail: pb_dataset_open allocates all memory. */
void pb_dataset_next(pb_dataset *d, int B, const pb_rows *out);
/* Fills batch number `index` of the current epoch: row b of the batch is row (index*B + b) mod pb_dataset_rows of the
 * epoch. The position of pb_dataset_next does not change. */
void pb_dataset_batch(const pb_dataset *d, int B, size_t index, const pb_rows *out);
/* Makes rows first..B-1 of `out` empty: no position counts. With it a batch can hold the rest of an epoch without
 * drawing from the next epoch, which may have another number of rows. */
void pb_dataset_blank(const pb_dataset *d, int first, int B, const pb_rows *out);
/* The row length of a batch or step: the positions that the longest of n rows uses, rounded up to a multiple of
 * `bucket`, but at most S and at least 1; bucket 0: S. pb_rows_shorten shortens the n rows in place from `from` to `to`
 * positions each. */
int pb_rows_length(const pb_rows *r, size_t n, int S, int bucket);
void pb_rows_shorten(const pb_rows *r, size_t n, int from, int to);
pb_data_position pb_dataset_position(const pb_dataset *d);
/* Continues from a position that pb_dataset_position returned, independent of what was drawn before. EINVAL: the epoch
 * has fewer rows; the dataset is then unchanged. */
pb_status pb_dataset_seek(pb_dataset *d, pb_data_position at);
#endif
