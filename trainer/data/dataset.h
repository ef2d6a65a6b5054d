/* dataset.h - rows of S tokens out of conversations: packed, isolated from each other, in a seeded order.
 *
 * A conversation of n tokens takes n-1 places of a row: token t goes in, token t+1 is the target, and counts when the
 * mask says so. Rows hold whole conversations only. `start` is the first token of a place's own conversation and `pos`
 * counts from 0 in each, so that with them (pb_train_config.packed) a row computes what each conversation alone does.
 * Places behind a conversation that none takes see only themselves, and do not count.
 *
 * Every epoch has an order of its own, drawn from the seed; rows are filled in that order, best fit among few open
 * ones, and a batch that an epoch's last rows do not fill goes on with the next epoch. */
#ifndef PB_DATASET_H
#define PB_DATASET_H
#include "trainer/data/encode.h"

/* What becomes of a conversation of more than S+1 tokens. X(enumerator, option's word, meaning) */
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
    int S;     /* >= 1 */
    bool pack; /* false: one conversation a row */
    int align; /* conversations begin at multiples of it (pb_sample_align); 0: 1 */
    uint64_t seed;
    double held_out; /* 0 <= held_out < 1: this share of the conversations, drawn from the seed, is for evaluation */
    bool evaluation; /* read that share instead of the rest */
} pb_dataset_config;

typedef struct pb_dataset_counts {
    pb_jsonl_counts lines;
    size_t cut, split, dropped; /* longer than a row */
    size_t empty;               /* left out: no token of theirs is a target that counts */
    size_t elsewhere;           /* in the other part of a split by held_out */
    size_t kept;                /* lines.samples = kept + dropped + empty + elsewhere */
    size_t tokens, counted;     /* of the kept ones: places they take, and targets that count */
} pb_dataset_counts;

typedef struct pb_data_position { /* the next row: what a checkpoint saves */
    uint64_t epoch, row;
} pb_data_position;

typedef struct pb_rows { /* the caller's, [B,S] each */
    int32_t *ids, *targets;
    float *mask;
    int32_t *start, *pos;
    int32_t *used; /* [B] places up to the end of the last conversation; NULL: not wanted */
} pb_rows;

typedef struct pb_dataset pb_dataset;

/* Reads all of the file. The tokenizer is used during the call only. *counts is filled in any case. EPATH, EIO: see
 * jsonl.h, or nothing to learn from is left. */
pb_status pb_dataset_open(const char *path, pb_tokenizer *t, const pb_dataset_config *cfg, pb_dataset_counts *counts,
                          pb_dataset **out);
void pb_dataset_close(pb_dataset *d);        /* NULL is fine */
size_t pb_dataset_rows(const pb_dataset *d); /* of the present epoch; each is packed anew */

/* The next B rows. ENOMEM never: all memory is there from the beginning. */
void pb_dataset_next(pb_dataset *d, int B, const pb_rows *out);
/* Rows first..B-1 of `out` without a conversation: no place counts. So a batch can hold what is left of an epoch
 * without drawing from the next one, which may be packed into another number of rows. */
void pb_dataset_blank(const pb_dataset *d, int first, int B, const pb_rows *out);
pb_data_position pb_dataset_position(const pb_dataset *d);
/* Goes on as after the position was taken, whatever was drawn before. EINVAL: the epoch has no such row. */
pb_status pb_dataset_seek(pb_dataset *d, pb_data_position at);

/* 0..n-1 in an order drawn from the seed (Fisher-Yates). */
void pb_shuffle(size_t *order, size_t n, uint64_t seed);
#endif
