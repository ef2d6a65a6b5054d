/* job.h - what the subcommands have in common: a model, its data and a trainer, opened from the options. */
#ifndef PB_JOB_H
#define PB_JOB_H
#include "trainer/data/chat_template.h"
#include "trainer/data/dataset.h"
#include "trainer/hf/hf_config.h"
#include "trainer/program/options.h"
#include "trainer/schedule.h"
#include "trainer/trainer.h"

enum { PB_JOB_PATH = 1024 };

typedef struct pb_job {
    const pb_train_options *o;
    pb_train_config cfg;
    pb_hf_config hf; /* when the model is a folder: cfg.model.blank */
    pb_schedule schedule;
    pb_dataset_config data_cfg;
    const char *data_path, *tokenizer_path; /* NULL: the byte tokenizer */
    const char *tokenizer_folder;           /* of tokenizer_config.json; NULL: none */
    pb_chat_template template;              /* what was found there */
    const char *template_from;              /* what chose the template: an option, a file, the family */
    char paths[3][PB_JOB_PATH];
    pb_backend_id device;
    bool graph;
    pb_ctx ctx;
    pb_trainer *trainer;
    pb_tokenizer *tokenizer;
    pb_dataset *data, *held; /* to train on (eval: to evaluate); to evaluate while training, or NULL */
    pb_dataset_counts counts, held_counts;
    int micro;    /* micro-batches of a step */
    int bucket;   /* a step's rows are as long as its longest one, rounded up to a multiple of it, at most S */
    pb_rows rows; /* [micro,B,S] */
} pb_job;

/* The options as configurations: EINVAL with one line for what cannot be. Opens nothing but a config.json and
 * what tokenizer_folder says about the template. */
pb_status pb_job_configure(const pb_train_options *o, pb_job *j);
/* Opens the device (or, with `plan`, what stands in for it), the data and the trainer, and loads weights. What it did
 * is printed unless quiet. */
pb_status pb_job_open(pb_job *j, bool plan);
/* Passes a status on; where it is EDEVICE and the device takes no more work, the line says that it is lost. */
pb_status pb_job_name_loss(pb_job *j, pb_status s);
void pb_job_close(pb_job *j); /* also after a failure, and of {0} */

/* The memory that holds everything: on a CPU the process's peak (a plan: what it would be), on a GPU the device's. */
pb_status pb_job_memory(const pb_job *j, double *bytes);

/* Mean negative log likelihood over all masked tokens of the data set, each conversation once, in double precision.
 * One pass over epoch 0: afterwards the data set stands behind that epoch's last row. `each`, if not NULL, is called
 * for every batch after the forward pass, with the rows that count: first row, number, and all of j->rows; the logits
 * are the trainer's. */
typedef struct pb_evaluation {
    double loss, tokens;
} pb_evaluation;
typedef pb_status (*pb_batch_fn)(void *self, pb_job *j, size_t first, int rows);
pb_status pb_job_evaluate(pb_job *j, pb_dataset *d, pb_batch_fn each, void *self, pb_evaluation *out);
#endif
