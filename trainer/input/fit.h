/* fit.h - the memory that training needs, found with the plan backend before anything is loaded, and the refusal of a
 * model that does not fit. */
#ifndef PB_FIT_H
#define PB_FIT_H
#include "trainer/step/trainer.h"

/* A configuration that would be trained. Strings are borrowed. */
typedef struct pb_fit {
    const pb_train_config *cfg; /* `comm` and `context` are not read */
    pb_backend_id device;
    int number;          /* of the device */
    const char *name;    /* of the model, for messages */
    const char *path;    /* the model's folder or GGUF file, which must have the sizes of the model; NULL: none */
    const char *adapter; /* an adapter's folder, the same; NULL: none */
    const char *prefer;  /* pb_ctx.prefer */
    int rank, ranks, local_size; /* local_size: ranks that share the machine's memory; at least 1 each */
    int shares, share; /* ranks that share rows (context parallelism), and the place among them; 0 or 1 shares: none */
    /* Bytes of host memory for copies of a trainer's state, from which checkpoints are written; NULL: none. */
    size_t (*copy)(const pb_trainer *t);
    double more; /* bytes of host memory that the caller allocates besides */
} pb_fit;

/* Sets *bytes to the peak memory of this rank: of a GPU, without host memory. Errors as pb_trainer_open,
 * pb_model_load_hf and pb_peft_load. */
pb_status pb_fit_peak(const pb_fit *f, double *bytes);
/* Checks that the peak fits into the memory that is available (a GPU: into its memory). ENOMEM: it does not; the
 * message has both sizes, and the peaks with each option of `train` that would lower it: --recompute, --loss-chunk,
 * --shard, --tuning, no --save-async. With a GPU, the copy of checkpoints must fit into the available host memory,
 * too. */
pb_status pb_fit_check(const pb_fit *f);
#endif
