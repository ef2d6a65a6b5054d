/* pair_folder.h - the folder of a paired comparison. It grows by one pair at a time and can be judged after any of
 * them.
 *
 *   base/, cand/        results.csv, samples.csv and run.json, as in a run; the column `process` is the pair's number.
 *                       Of a process that was throttled and measured again, the rows of the last attempt are stored;
 *                       they have status throttled if that attempt was throttled too.
 *                       run.json is that of the first process, plus an array `runs` with that of every process
 *   pairs.csv           one line for each attempt to measure a pair: pair,attempt,order,seed,base_padding,
 *                       cand_padding,base_seconds,cand_seconds,base_exit,cand_exit,status, and the sizes in bytes of
 *                       each side's results.csv and samples.csv after this attempt
 *   compare.json        what is compared: paths and digests of the executables, their options, the seed, the rule
 *   base.log, cand.log  what the processes printed
 *
 * A pair counts once its line is in pairs.csv, which is written last. If a comparison is interrupted, --resume
 * truncates the other files to the sizes in the last line and so removes a partly written pair. */
#ifndef PB_PAIR_FOLDER_H
#define PB_PAIR_FOLDER_H
#include <jansson.h>
#include <stdio.h>

#include "bench/pairs/pair_rule.h"
#include "bench/run/run.h"
#include "trainer/checkpoint/digest.h"

typedef enum pb_side { PB_BASE, PB_CAND, PB_SIDES } pb_side;
extern const char *const pb_side_names[PB_SIDES];

typedef struct pb_pair_plan {
    char path[PB_SIDES][PB_PATH_TEXT]; /* of the executables */
    pb_digest_text digest[PB_SIDES];
    json_t *options; /* array of words for `run`, the same for both sides; owned by `about` */
    json_t *about;   /* contents of compare.json; owned by the plan */
    char run_id[128];
    uint64_t seed;
    double slowdown;   /* delay injected into the candidate, as a share of its time; 0: none */
    double time_slice; /* seconds of a time slice (time_slice.h); 0: no interleaving, one process after the other */
    /* Minimum effect of rows of kernel_time; 0: that of the rule. Two builds that differ anywhere place the code of
     * every kernel elsewhere in memory, which alone changes short kernels on a CPU by up to 2 %. */
    double kernel_effect;
    bool pairs_given; /* the user chose the number of pairs, so a time budget does not change it */
    pb_pair_opts rule;
} pb_pair_plan;

/* X(enumerator, word): the result of one attempt to measure a pair */
#define PB_PAIR_STATUS_MAP(X)                                                                                          \
    X(OK, "ok")           /* the rows of both sides are stored */                                                      \
    X(KEPT, "kept")       /* stored, although a process reported a failed case; no retries are left */                 \
    X(RETRIED, "retried") /* a process failed; the pair is measured again */                                           \
    X(FAILED, "failed")   /* a process failed without usable rows; the comparison ended */
typedef enum pb_pair_status {
#define X(id, word) PB_PAIR_IS_##id,
    PB_PAIR_STATUS_MAP(X)
#undef X
} pb_pair_status;

typedef struct pb_pair_line {
    int pair, attempt; /* both count from 0 */
    bool cand_first;
    uint64_t seed;            /* shuffles the order of the cases, the same for both sides */
    long padding[PB_SIDES];   /* bytes added to the environment (pair_process.h) */
    double seconds[PB_SIDES]; /* running time of each process */
    int code[PB_SIDES];       /* exit codes */
    pb_pair_status status;
    pb_kept kept[PB_SIDES]; /* sizes of each side's files after this attempt */
} pb_pair_line;

typedef struct pb_pair_folder {
    char dir[PB_PATH_TEXT];
    int pairs;             /* complete pairs in the folder */
    int retries;           /* attempts that failed and were repeated, over all pairs */
    int attempt;           /* number of the next attempt, counted from 0 for each pair */
    int kept;              /* complete pairs whose candidate reported a failed case */
    int kept_again;        /* pairs of `kept` that were measured more than once: retries are counted per comparison */
    json_t *run[PB_SIDES]; /* run.json of each side; NULL: no pair yet, or opened only for reading */
    int lock;              /* descriptor of the locked folder `dir`; -1: not locked */
} pb_pair_folder;

/* Reads DIR/compare.json; free with pb_pair_plan_free. EPATH: no such file; EINVAL: fields are missing or malformed. */
pb_status pb_pair_plan_read(const char *dir, pb_pair_plan *out);
/* Writes DIR/compare.json and sets plan->about to its contents. EPATH: the file exists; EIO; ENOMEM. */
pb_status pb_pair_plan_write(const char *dir, const char *time_utc, pb_pair_plan *plan);
/* Replaces the number of pairs before each look, in *plan and in DIR/compare.json. EIO, ENOMEM. */
pb_status pb_pair_plan_set_looks(const char *dir, pb_pair_plan *plan, int first, int last);
/* Prints what is planned: one line, which begins with `lead`. */
void pb_pair_plan_print(const pb_pair_plan *plan, const char *lead, FILE *out);
/* If so few pairs are planned that no change can be found, prints a line that says so. */
void pb_pair_plan_warn(const pb_pair_plan *plan, FILE *out);
void pb_pair_plan_free(pb_pair_plan *plan);

/* create: makes the files of a comparison without pairs; on failure it removes those it made. resume: opens an existing
 * comparison, checks it, and truncates it to its last complete pair. Both lock the folder against other comparisons,
 * until pb_pair_folder_close is called and all processes started meanwhile have ended. EINVAL, EPATH, EIO, ENOMEM. */
pb_status pb_pair_folder_create(const char *dir, pb_pair_folder *out);
pb_status pb_pair_folder_resume(const char *dir, pb_pair_folder *out);
/* Opens a folder for reading: reads the counts from pairs.csv. Locks nothing and changes nothing. */
pb_status pb_pair_folder_look(const char *dir, pb_pair_folder *out);
void pb_pair_folder_close(pb_pair_folder *f);

/* Appends the results of one process, found in the folder `process`, to its side as pair f->pairs. EINVAL, EPATH: they
 * cannot be read. */
pb_status pb_pair_folder_add(pb_pair_folder *f, pb_side side, const char *process, const char *run_id);
/* Fills in line->kept, appends the line to pairs.csv and updates the counts. */
pb_status pb_pair_folder_commit(pb_pair_folder *f, pb_pair_line *line);
/* Marks run.json of both sides as complete. */
pb_status pb_pair_folder_finish(pb_pair_folder *f);
#endif
