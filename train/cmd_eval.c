/* cmd_eval.c - `train eval`: prints a model's loss and perplexity on conversations, and optionally saves its logits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/dtype.h"
#include "os/file.h"
#include "train/job.h"
#include "trainer/io/safetensors.h"

/* State of --dump-logits. In the file, the tensors follow each other. Logits come first and are written batch by batch;
 * the small tensors (ids, targets, ...) are collected in memory and written at the end. */
typedef struct dump {
    pb_st_writer *w;
    unsigned char *logits; /* [B,S,V] in the model's dtype: logits of one batch, downloaded from the device */
    float *wide;           /* [B,S,V] the same logits converted to f32 */
    int32_t *ids, *targets, *start, *pos;
    float *mask;
} dump;

static pb_status dump_open(pb_job *j, const char *path, dump *d)
{
    const size_t rows = pb_dataset_rows(j->data), B = (size_t)j->cfg.B, S = (size_t)j->cfg.S;
    const size_t V = (size_t)j->cfg.model.geometry->V, batch = B * S * V, n = rows * S;
    d->logits = malloc(batch * pb_dtype_size(j->cfg.model.dtype));
    d->wide = malloc(batch * sizeof *d->wide);
    d->ids = malloc(n * sizeof *d->ids);
    d->targets = malloc(n * sizeof *d->targets);
    d->start = malloc(n * sizeof *d->start);
    d->pos = malloc(n * sizeof *d->pos);
    d->mask = malloc(n * sizeof *d->mask);
    if (!d->logits || !d->wide || !d->ids || !d->targets || !d->start || !d->pos || !d->mask)
        return pb_fail(PB_ENOMEM, "%s: no memory for a batch of logits", path);
    const pb_st_entry entries[] = {{"logits", PB_ST_F32, 3, {rows, S, V}}, {"ids", PB_ST_I32, 2, {rows, S}},
                                   {"targets", PB_ST_I32, 2, {rows, S}},   {"start", PB_ST_I32, 2, {rows, S}},
                                   {"pos", PB_ST_I32, 2, {rows, S}},       {"mask", PB_ST_F32, 2, {rows, S}}};
    return pb_st_create(path, entries, sizeof entries / sizeof *entries, NULL, 0, &d->w);
}

static pb_status dump_batch(void *self, pb_job *j, size_t first, int rows)
{
    dump *d = self;
    const size_t S = (size_t)j->cfg.S, n = (size_t)rows * S, at = first * S;
    const size_t values = n * (size_t)j->cfg.model.geometry->V;
    const pb_dtype t = j->cfg.model.dtype;
    PB_TRY(pb_download(&j->ctx, d->logits, pb_trainer_logits(j->trainer), values * pb_dtype_size(t)));
    for (size_t i = 0; i < values; i++) d->wide[i] = (float)pb_load(d->logits, i, t);
    memcpy(d->ids + at, j->rows.ids, n * sizeof *d->ids);
    memcpy(d->targets + at, j->rows.targets, n * sizeof *d->targets);
    memcpy(d->start + at, j->rows.start, n * sizeof *d->start);
    memcpy(d->pos + at, j->rows.pos, n * sizeof *d->pos);
    memcpy(d->mask + at, j->rows.mask, n * sizeof *d->mask);
    return pb_st_append(d->w, d->wide, values * sizeof *d->wide);
}

static pb_status dump_rest(const pb_job *j, dump *d)
{
    const size_t n = pb_dataset_rows(j->data) * (size_t)j->cfg.S;
    PB_TRY(pb_st_append(d->w, d->ids, n * sizeof *d->ids));
    PB_TRY(pb_st_append(d->w, d->targets, n * sizeof *d->targets));
    PB_TRY(pb_st_append(d->w, d->start, n * sizeof *d->start));
    PB_TRY(pb_st_append(d->w, d->pos, n * sizeof *d->pos));
    PB_TRY(pb_st_append(d->w, d->mask, n * sizeof *d->mask));
    pb_st_writer *w = d->w;
    d->w = NULL;
    return pb_st_commit(w);
}

static void dump_close(dump *d)
{
    if (d->w) pb_st_abandon(d->w);
    free(d->logits);
    free(d->wide);
    free(d->ids);
    free(d->targets);
    free(d->start);
    free(d->pos);
    free(d->mask);
}

static pb_status evaluate(pb_job *j)
{
    const char *path = j->o->dump_logits;
    dump d = {0};
    pb_evaluation e;
    pb_status s = path ? dump_open(j, path, &d) : PB_OK;
    if (s == PB_OK) s = pb_job_evaluate(j, j->data, path ? dump_batch : NULL, &d, &e);
    if (s == PB_OK && path) s = dump_rest(j, &d);
    dump_close(&d);
    if (s != PB_OK) return s;
    if (pb_train_leads(j->o)) printf("tokens %.0f\nloss %#.9g\nperplexity %#.9g\n", e.tokens, e.loss, exp(e.loss));
    (void)pb_job_warn_of_loss(j, "the evaluation", e.loss);
    return isfinite(e.loss) ? PB_OK : pb_fail(PB_EWRONG, "the mean loss of the conversations is not finite");
}

pb_status pb_train_eval(const pb_train_options *o)
{
    pb_job j = {0};
    pb_status s = pb_job_configure(o, &j);
    if (s == PB_OK && o->dump_logits && j.ranks > 1)
        s = pb_fail(PB_EINVAL, "--dump-logits writes the rows of one rank: start train eval without other ranks");
    if (s == PB_OK && o->dump_logits && o->data && pb_same_file(o->dump_logits, o->data))
        s = pb_fail(PB_EINVAL, "--dump-logits %.400s: this is the file of --data", o->dump_logits);
    s = pb_job_agree(&j, "the options", s);
    if (s == PB_OK) s = pb_job_open(&j, false);
    if (s == PB_OK) s = evaluate(&j);
    s = pb_job_explain_lost_device(&j, s);
    pb_job_close(&j);
    return s;
}
