/* job.h - a job is what a subcommand of `train` works on: the device, tokenizer, data and trainer that the command-line
 * options describe. Configures, opens and closes it. */
#ifndef PB_JOB_H
#define PB_JOB_H
#include "ranks/topology.h"
#include "train/options.h"
#include "trainer/input/input.h"
#include "trainer/step/schedule.h"
#include "trainer/step/trainer.h"

typedef struct pb_job {
    const pb_train_options *o;
    pb_train_config cfg;
    pb_input input; /* the model and the text that the options name */
    pb_schedule schedule;
    double matrix_lr; /* peak learning rate of the matrices; with --optimizer normuon only */
    pb_dataset_config data_cfg;
    pb_backend_id device;
    int number; /* of the GPU that --device names; with several ranks not read: see pb_job_device_number */
    bool graph; /* --mode graph */
    /* Set by the program: ends the run as a signal would, with one rank after this step, with several after the next. */
    bool stop;
    pb_ctx ctx;
    int rank, ranks;
    pb_topology topology;
    int group, groups; /* place and number of the groups of ranks (axis dp) that train on different rows */
    pb_comm *comm;     /* between all ranks; NULL: one rank */
    pb_comm *context;  /* between the ranks that share rows (axis cp); NULL: each rank has whole rows */
    pb_trainer *trainer;
    pb_tokenizer *tokenizer;
    /* data: trained on by `train run`, evaluated by `train eval`. eval_data: evaluated during training; NULL: none. */
    pb_dataset *data, *eval_data;
    pb_dataset *evaluated; /* the one that pb_job_evaluate reads */
    pb_dataset_counts counts, eval_counts;
    int micro_batches; /* micro-batches per step of this rank */
    /* The row length of a step is that of its longest row, rounded up to a multiple of `bucket`, but at most S. */
    int bucket;
    /* [micro_batches,groups,B,S]: the rows of all ranks, because each needs the length and the loss tokens of all. A
     * step with shorter rows uses the beginning of each array. */
    pb_rows rows;
    double *losses; /* [ranks] of a micro-batch */
    /* Callback after each micro-batch of a step, while its activations are in memory; NULL: none. */
    void (*after_micro)(void *self, int micro);
    void *after_micro_self;
} pb_job;

/* Turns the options into configurations. Reads only configuration files: the config.json of a model, the configuration
 * of an adapter, and the chat template in tokenizer_folder. On failure the message is one line that names
 * the option or file. */
pb_status pb_job_configure(const pb_train_options *o, pb_job *j);
/* Opens the device (plan true: the plan backend, which computes nothing), the data and the trainer, and loads weights.
 * A job that generates text (cfg.cached) has no data. Prints what was opened unless --quiet is given. */
pb_status pb_job_open(pb_job *j, bool plan);
/* The number of the device that this rank uses; the ranks of a host use its GPUs in the order of their numbers. */
int pb_job_device_number(const pb_job *j);
/* Returns `s`. If `s` is EDEVICE and the device accepts no more work, the message is extended to say
 * that the device is lost. */
pb_status pb_job_explain_lost_device(pb_job *j, pb_status s);
/* Returns `s`, the status of what this rank computed without agreeing with the others. If it is a failure, ends the
 * collectives, for the others will not come to them, and prints the message if this is not the rank that prints. */
pb_status pb_job_alone(pb_job *j, pb_status s);
void pb_job_close(pb_job *j); /* also after a failed open, and for {0} */

/* Sets *bytes to the peak memory. CPU: the process's peak resident set, plus the planned memory on the plan backend.
 * GPU: the allocated or planned device memory. */
pb_status pb_job_memory(const pb_job *j, double *bytes);

/* Prints a note if the model comes from a folder and `loss`, that of `what`, is above ln V, the loss of a model that
 * gives all V tokens one probability: a pretrained model is better, so its weights, tokenizer or template were misread.
 * True if the loss is above. */
bool pb_job_warn_of_loss(const pb_job *j, const char *what, double loss);

/* Agrees with the other ranks on the status of what all of them have done (pb_world_agree). */
pb_status pb_job_agree(const pb_job *j, const char *what, pb_status s);

/* Returns micro-batch `micro` of this rank's group, of the rows in j->rows, which have S tokens each. It is number
 * micro * groups + group of the step. count: see pb_batch. */
pb_batch pb_job_batch(const pb_job *j, int micro, int S, double count);

/* Mean negative log likelihood over all loss tokens of the data set's rows, in double precision. Evaluates every row of
 * epoch 0 once, batch i on group i mod groups, and adds the batches in their order; afterwards the data set is
 * positioned after that epoch. After each batch's forward pass, `each` (may be NULL) is called with the index of the
 * batch's first row and the number of valid rows; their data are in j->rows, their logits in the trainer. */
typedef struct pb_evaluation {
    double loss, tokens;
} pb_evaluation;
typedef pb_status (*pb_batch_fn)(void *self, pb_job *j, size_t first, int rows);
pb_status pb_job_evaluate(pb_job *j, pb_dataset *d, pb_batch_fn each, void *self, pb_evaluation *out);
#endif
