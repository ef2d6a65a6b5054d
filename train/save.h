/* save.h - saves the checkpoints of a training run, resumes a run from them, and exports the trained model. */
#ifndef PB_SAVE_H
#define PB_SAVE_H
#include "train/job.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/digest.h"

enum { PB_SETTINGS = 40 };
typedef struct pb_saver {
    pb_checkpoints *c; /* NULL: no checkpoints */
    pb_job *j;
    pb_setting settings[PB_SETTINGS];
    size_t n;
    /* Storage of the strings that `settings` points to: the keys, and the values that are formatted numbers. */
    char key[PB_SETTINGS][32], text[PB_SETTINGS][48];
    pb_digest_text tokenizer;
    uint64_t writing; /* --save-async: the step whose checkpoint is being written; 0: none */
    bool trial;       /* that checkpoint is written only to be verified, and then removed (PB_SAVE_TRIAL) */
    double waited;    /* seconds that training waited for checkpoints since the caller set it to 0 */
} pb_saver;

/* Opens the folder of --save, and resumes from a checkpoint if --resume is given. Afterwards *p and the data's position
 * are those of the next step. */
pb_status pb_saver_open(pb_job *j, pb_saver *s, pb_progress *p);
void pb_saver_close(pb_saver *s); /* {0} is allowed */
/* Call after every step. Saves a checkpoint when one is due; `now` saves one in any case. With --save-async a thread
 * writes it after the call, and prints the time that training waited; a failure of the thread is returned by the next
 * call of this function or of pb_saver_finish. */
pb_status pb_saver_step(pb_saver *s, const pb_progress *p, bool now);
/* Call after the last step, on all ranks. Waits for the checkpoint that is being written. */
pb_status pb_saver_finish(pb_saver *s);

/* The folder of --export and of `train export`. The export consists of the adapters in PEFT's layout or of the whole
 * model as a Hugging Face folder. pb_export_open creates and locks the folder until pb_export_close; dir NULL: no
 * export. It is called before the first step, so that an unusable folder is reported before training, and so that no
 * other process exports into it. EINVAL: another process has locked the folder, or it holds an export of the other
 * kind: programs would load the adapters onto the model next to them. */
typedef enum pb_export_kind { PB_EXPORT_ADAPTERS, PB_EXPORT_MODEL } pb_export_kind;
typedef struct pb_export_folder {
    const char *dir; /* NULL: no export, or another rank exports */
    int lock;
} pb_export_folder;
/* What --export writes. */
pb_export_kind pb_export_kind_of(const pb_job *j);
pb_status pb_export_open(const char *dir, pb_export_kind kind, pb_export_folder *out);
pb_status pb_export(pb_job *j, const pb_export_folder *to);
void pb_export_close(pb_export_folder *x); /* {0} is allowed */
#endif
