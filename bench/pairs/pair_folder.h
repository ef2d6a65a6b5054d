/* pair_folder.h - the folder of a paired comparison, which grows by a pair at a time and can be judged at any time.
 *
 *   base/, cand/    results.csv, samples.csv and run.json as of a run; `launch` is the number of the pair in both.
 *                   run.json is the first launch's, with `runs`: that of every launch as its process wrote it
 *   pairs.csv       a line an attempt at a pair: pair,attempt,order,seed,base_padding,cand_padding,base_seconds,
 *                   cand_seconds,base_exit,cand_exit,status and, for each side, how many bytes of results.csv and
 *                   samples.csv belong to what came before and to it
 *   compare.json    what is compared: paths and digests of the executables, the options of both, the seed, the rule
 *   base.log, cand.log    what the launches wrote to their terminal
 *
 * The line of pairs.csv comes last and makes the pair: what the other files hold behind the lengths of the last line
 * is a part of one and is cut off by --resume. */
#ifndef PB_PAIR_FOLDER_H
#define PB_PAIR_FOLDER_H
#include <jansson.h>

#include "bench/pairs/pair_rule.h"
#include "bench/run/kept.h"
#include "trainer/checkpoint/digest.h"

typedef enum pb_side { PB_BASE, PB_CAND, PB_SIDES } pb_side;
extern const char *const pb_side_names[PB_SIDES];

typedef struct pb_pair_plan {
    char path[PB_SIDES][PB_PATH_TEXT]; /* the executables */
    pb_digest_text digest[PB_SIDES];
    json_t *options; /* words for `run` of both; belongs to `about` */
    json_t *about;   /* compare.json */
    char run_id[128];
    uint64_t seed;
    double slowdown; /* of the candidate; 0: none */
    double turns;    /* seconds (turns.h); 0: one launch behind the other */
    pb_pair_opts rule;
} pb_pair_plan;

/* X(enumerator, word): what became of an attempt */
#define PB_PAIR_STATUS_MAP(X)                                                                                          \
    X(OK, "ok")           /* its rows are there */                                                                     \
    X(KEPT, "kept")       /* likewise, though a launch had a case that failed, as it did when tried again */           \
    X(RETRIED, "retried") /* a launch failed, and the pair is measured again */                                        \
    X(FAILED, "failed")   /* a launch gave nothing, also when tried again; the comparison ended */
typedef enum pb_pair_status {
#define X(id, word) PB_PAIR_IS_##id,
    PB_PAIR_STATUS_MAP(X)
#undef X
} pb_pair_status;

typedef struct pb_pair_line {
    int pair, attempt; /* from 0 */
    bool cand_first;
    uint64_t seed; /* of the order of the cases, the same on both sides */
    long padding[PB_SIDES];
    double seconds[PB_SIDES];
    int code[PB_SIDES];
    pb_pair_status status;
    pb_kept kept[PB_SIDES];
} pb_pair_line;

typedef struct pb_pair_folder {
    char dir[PB_PATH_TEXT];
    int pairs;   /* that are there */
    int retries; /* attempts that were measured again */
    int attempt; /* of the pair that is next */
    int kept;    /* pairs whose candidate had a case that failed */
    json_t *run[PB_SIDES];
    int lock; /* -1: none */
} pb_pair_folder;

/* Reads DIR/compare.json. EPATH: there is none; EINVAL: it is not whole. */
pb_status pb_pair_plan_read(const char *dir, pb_pair_plan *out);
/* The other way; plan->about is made from the other fields. EPATH: it exists; EIO; ENOMEM. */
pb_status pb_pair_plan_write(const char *dir, const char *time_utc, pb_pair_plan *plan);
void pb_pair_plan_free(pb_pair_plan *plan);

/* Makes the files of a comparison without pairs, all or none, or takes up what is there: cut back to the last whole
 * pair, once all of it has been checked, and locked against others. EINVAL, EPATH, EIO, ENOMEM. */
pb_status pb_pair_folder_create(const char *dir, pb_pair_folder *out);
pb_status pb_pair_folder_resume(const char *dir, pb_pair_folder *out);
/* Only counts the pairs. */
pb_status pb_pair_folder_look(const char *dir, pb_pair_folder *out);
void pb_pair_folder_close(pb_pair_folder *f);

/* Appends what the launch of a side left in the folder `launch` as pair f->pairs. EINVAL, EPATH: it cannot be read. */
pb_status pb_pair_folder_add(pb_pair_folder *f, pb_side side, const char *launch, const char *run_id);
/* Writes the line, whose lengths it fills in, and counts the pair. */
pb_status pb_pair_folder_commit(pb_pair_folder *f, pb_pair_line *line);
/* run.json of both sides says that nothing more will come. */
pb_status pb_pair_folder_finish(pb_pair_folder *f);
#endif
