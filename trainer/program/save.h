/* save.h - where a run keeps its checkpoints, what it begins from, and what it leaves behind. */
#ifndef PB_SAVE_H
#define PB_SAVE_H
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/digest.h"
#include "trainer/program/job.h"

enum { PB_SETTINGS = 32 };
typedef struct pb_saver {
    pb_checkpoints *c; /* NULL: nothing is saved */
    pb_job *j;
    pb_setting settings[PB_SETTINGS];
    size_t n;
    char key[PB_SETTINGS][32], text[PB_SETTINGS][48]; /* of options; values that are not words of the command line */
    pb_digest_text tokenizer;
} pb_saver;

/* Opens --save and takes up --resume: *p and the position of the data are where the run goes on. */
pb_status pb_saver_open(pb_job *j, pb_saver *s, pb_progress *p);
void pb_saver_close(pb_saver *s); /* {0} is fine */
/* After a step: saves when it is due, or in any case with `now`. */
pb_status pb_saver_step(pb_saver *s, const pb_progress *p, bool now);

/* --export: adapters in PEFT's layout, or the whole model as a Hugging Face folder. pb_export_open makes the folder and
 * takes it until pb_export_close, from before the first step on, so that what cannot be written is known before the
 * work is done, and no other export puts its files between. EINVAL: another process has the folder. */
typedef struct pb_export_folder {
    const char *dir; /* NULL: nothing is exported */
    int lock;
} pb_export_folder;
pb_status pb_export_open(const char *dir, pb_export_folder *out);
pb_status pb_export(pb_job *j, const pb_export_folder *to);
void pb_export_close(pb_export_folder *x); /* {0} is fine */
#endif
