/* tiny_weights.c - trains the model `tiny` on the shipped conversations and writes it with an adapter, for tests that
 * only a trained model can fail.
 *
 * usage: tiny_weights FOLDER [again]     does nothing when the folder is complete, unless `again`
 *
 * Makes FOLDER/model (config.json, model.safetensors), FOLDER/adapter (PEFT), FOLDER/train.jsonl and
 * FOLDER/held-out.jsonl (conversations used and not used for training), and last FOLDER/summary.json. Seeded: the
 * files are equal on all machines with the same instruction set. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainer/data/shipped.h"
#include "trainer/step/trainer.h"
#include "os/file.h"
#include "trainer/io/json.h"
#include "trainer/hf/hf_load.h"
#include "trainer/hf/hf_save.h"
#include "trainer/hf/peft.h"
#include "trainer/step/trainer_impl.h"

enum { B = 4, S = 128, T = B * S, HELD_OUT = 16, EVALUATED = 12 };

typedef struct plan {
    pb_tuning tuning;
    int steps;
    float lr; /* peak learning rate, reached after a tenth of the steps; then a cosine down to lr/20 */
} plan;
static const plan base = {PB_FULL, 2000, 5e-3f}, adapters = {PB_LORA, 350, 3e-3f};
static const double wanted = 2;   /* largest cross entropy per byte */
static const double small = 6e-6; /* mean square of the embeddings, comparable to the eps of 1e-6 */

typedef struct run {
    pb_ctx ctx;
    pb_dataset *train, *held_out;
    int32_t ids[T], targets[T];
    float mask[T];
} run;

/* ---- splitting the conversations into training and held-out text -------------------------------------- */

static pb_status open_file(const char *folder, const char *name, const char *mode, FILE **out)
{
    char *path = NULL;
    PB_TRY(pb_path_join(folder, name, &path));
    *out = fopen(path, mode);
    const pb_status s = *out ? PB_OK : pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    free(path);
    return s;
}

/* Writes every HELD_OUTth line to held_out, the others to train. */
static pb_status copy_lines(FILE *from, FILE *train, FILE *held_out)
{
    char *line = NULL;
    size_t room = 0, n = 0;
    while (getline(&line, &room, from) > 0) fputs(line, ++n % HELD_OUT ? train : held_out);
    free(line);
    const bool bad = ferror(from) || ferror(train) || ferror(held_out);
    return bad ? pb_fail(PB_EIO, "the shipped conversations: %s", strerror(errno)) : PB_OK;
}

static pb_status split(const char *folder)
{
    char path[1024];
    FILE *from = fopen(pb_shipped_path(path, sizeof path), "r"), *train = NULL, *held_out = NULL;
    pb_status s = from ? PB_OK : pb_fail(PB_EIO, "%s: %s", path, strerror(errno));
    if (s == PB_OK) s = open_file(folder, "train.jsonl", "w", &train);
    if (s == PB_OK) s = open_file(folder, "held-out.jsonl", "w", &held_out);
    if (s == PB_OK) s = copy_lines(from, train, held_out);
    if (from) fclose(from);
    if (train && fclose(train) != 0 && s == PB_OK) s = pb_fail(PB_EIO, "%s: %s", folder, strerror(errno));
    if (held_out && fclose(held_out) != 0 && s == PB_OK) s = pb_fail(PB_EIO, "%s: %s", folder, strerror(errno));
    return s;
}

static pb_status open_text(const char *folder, const char *name, pb_dataset **out)
{
    char *path = NULL;
    PB_TRY(pb_path_join(folder, name, &path));
    const pb_status s = pb_byte_stream_open(path, S, 42, out);
    free(path);
    return s;
}

/* ---- training the model ------------------------------------------------------------------------------- */

static pb_status set_batch(run *r, pb_trainer *t, const pb_dataset *text, size_t index)
{
    pb_dataset_batch(text, B, index, &(pb_rows){r->ids, r->targets, r->mask});
    return pb_trainer_set_batch(t, &(pb_batch){.ids = r->ids, .targets = r->targets, .mask = r->mask});
}

static float rate(const plan *p, int step)
{
    const double warm = 0.1 * p->steps, x = (step - warm) / (p->steps - warm);
    return p->lr * (float)(step < warm ? (step + 1) / warm : 0.525 + 0.475 * cos(acos(-1.0) * x));
}

/* Returns PB_EINVAL when the cross entropy on held-out text is not below `wanted`. */
static pb_status evaluate(run *r, pb_trainer *t, double *ce)
{
    double sum = 0, loss;
    for (size_t i = 0; i < EVALUATED; i++) {
        PB_TRY(set_batch(r, t, r->held_out, i));
        PB_TRY(pb_phases[PB_PHASE_forward](&r->ctx, t));
        PB_TRY(pb_phases[PB_PHASE_loss](&r->ctx, t));
        PB_TRY(pb_trainer_loss(t, &loss));
        sum += loss / EVALUATED;
    }
    *ce = sum;
    return sum < wanted ? PB_OK : pb_fail(PB_EINVAL, "cross entropy %.4f, wanted less than %g", sum, wanted);
}

static pb_status train(run *r, pb_trainer *t, const plan *p, double *ce)
{
    pb_adamw_state state;
    for (int i = 0; i < p->steps; i++) {
        PB_TRY(set_batch(r, t, r->train, (size_t)i));
        PB_TRY(pb_trainer_set_lr(t, rate(p, i)));
        PB_TRY(pb_train_step(&r->ctx, t));
    }
    PB_TRY(pb_trainer_state(t, &state));
    if (state.skipped) return pb_fail(PB_EINVAL, "%d steps were skipped", state.skipped);
    PB_TRY(evaluate(r, t, ce));
    printf("%s: %d steps, cross entropy %.4f a byte on text held out\n", p->tuning == PB_FULL ? "tiny" : "adapters",
           p->steps, *ce);
    return PB_OK;
}

static pb_status open_trainer(run *r, const plan *p, pb_trainer **out)
{
    pb_train_config c = pb_train_defaults(pb_geometries);
    c.model.tuning = p->tuning;
    c.model.rank = 8;
    c.model.alpha = 44;
    c.model.random_b = true; /* B is not zero at the start, so that the adapters change the output */
    c.model.targets = (1u << PB_NTARGETS) - 1;
    c.model.blank = p->tuning != PB_FULL;
    c.clip = PB_CLIP_MULTI;
    c.beta2 = 0.99f;
    c.B = B;
    c.S = S;
    return pb_trainer_open(&r->ctx, &c, out);
}

/* ---- scaling down the residual stream ------------------------------------------------------------------- */

/* Returns the mean square of the input of the first layer, for the last batch. */
static double mean_square(const pb_trainer *t)
{
    const size_t n = (size_t)T * (size_t)t->model.g.D;
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)((const float *)t->layers[0].h)[i] * (double)((const float *)t->layers[0].h)[i] / (double)n;
    return sum;
}

static void scale(pb_param *p, float f)
{
    for (size_t i = 0; p && i < pb_param_n(p); i++) ((float *)p->w)[i] *= f;
}

/* Multiplies everything that is added to the residual stream by f. The norms that read the stream divide it out
 * again, except for their eps: the model computes almost the same, but a wrong eps changes the result. The head
 * shares the embedding, so the last norm's gain is divided by f. */
static void shrink(pb_model *m, float f)
{
    scale(m->outer[PB_P_embed], f);
    scale(m->outer[PB_P_norm], 1 / f);
    for (int l = 0; l < m->g.L; l++) {
        scale(pb_layer_param(m, l, PB_P_o), f);
        scale(pb_layer_param(m, l, PB_P_down), f);
        scale(m->lora_b[l * PB_NTARGETS + PB_TARGET_O], f);
        scale(m->lora_b[l * PB_NTARGETS + PB_TARGET_DOWN], f);
    }
}

static pb_status shrink_base(run *r, const char *dir, float f)
{
    pb_trainer *t = NULL;
    PB_TRY(open_trainer(r, &base, &t));
    pb_status s = pb_model_load_hf(pb_trainer_model(t), dir, NULL);
    if (s == PB_OK) shrink(pb_trainer_model(t), f);
    if (s == PB_OK) s = pb_model_save_hf(pb_trainer_model(t), dir, NULL);
    pb_trainer_close(t);
    return s;
}

/* ---- making all files of the folder -------------------------------------------------------------------- */

static pb_status train_base(run *r, const char *dir, double *ce)
{
    pb_trainer *t = NULL;
    PB_TRY(open_trainer(r, &base, &t));
    pb_model *m = pb_trainer_model(t);
    /* Larger biases, so that an implementation without biases gives another result. */
    for (int l = 0; l < m->g.L; l++) scale(pb_layer_param(m, l, PB_P_qkv_bias), 50);
    pb_status s = train(r, t, &base, ce);
    if (s == PB_OK) s = pb_model_save_hf(m, dir, NULL);
    pb_trainer_close(t);
    return s;
}

static pb_status train_adapters(run *r, const char *dir, const char *adapter, double *ce)
{
    pb_trainer *t = NULL;
    PB_TRY(open_trainer(r, &adapters, &t));
    pb_status s = pb_model_load_hf(pb_trainer_model(t), dir, NULL);
    if (s == PB_OK) s = train(r, t, &adapters, ce);
    const float f = (float)sqrt(small / mean_square(t));
    if (s == PB_OK) s = shrink_base(r, dir, f);
    if (s == PB_OK) shrink(pb_trainer_model(t), f);
    if (s == PB_OK) s = evaluate(r, t, ce);
    if (s == PB_OK) printf("shrunk by %.3g: cross entropy %.4f\n", (double)f, *ce);
    if (s == PB_OK) s = pb_peft_save(pb_trainer_model(t), adapter, dir);
    pb_trainer_close(t);
    return s;
}

static pb_status write_summary(const char *path, double full, double lora)
{
    json_t *o = json_pack("{s:f, s:f, s:i, s:i}", "cross_entropy", full, "cross_entropy_adapted", lora, "steps",
                          base.steps, "steps_adapters", adapters.steps);
    const pb_status s = pb_json_save(path, o);
    json_decref(o);
    return s;
}

static pb_status make(run *r, const char *folder, const char *summary)
{
    char *dir = NULL, *adapter = NULL;
    double full = 0, lora = 0;
    PB_TRY(pb_make_folder(folder));
    PB_TRY(split(folder));
    PB_TRY(open_text(folder, "train.jsonl", &r->train));
    PB_TRY(open_text(folder, "held-out.jsonl", &r->held_out));
    pb_status s = pb_path_join(folder, "model", &dir);
    if (s == PB_OK) s = pb_path_join(folder, "adapter", &adapter);
    if (s == PB_OK) s = train_base(r, dir, &full);
    if (s == PB_OK) s = train_adapters(r, dir, adapter, &lora);
    if (s == PB_OK) s = write_summary(summary, full, lora);
    free(dir), free(adapter);
    return s;
}

int main(int argc, char **argv)
{
    static run r;
    char *summary = NULL;
    const bool again = argc == 3 && strcmp(argv[2], "again") == 0;
    if (argc != 2 && !again) {
        fprintf(stderr, "usage: tiny_weights FOLDER [again]\n");
        return 2;
    }
    pb_status s = pb_path_join(argv[1], "summary.json", &summary);
    if (s == PB_OK && again) unlink(summary);
    const bool done = s == PB_OK && access(summary, F_OK) == 0;
    if (done) printf("%s is there\n", summary);
    if (s == PB_OK && !done) s = pb_ctx_open(&r.ctx, PB_CPU, 0);
    if (s == PB_OK && !done) s = make(&r, argv[1], summary);
    if (s != PB_OK) fprintf(stderr, "tiny_weights: %s\n", pb_error());
    pb_dataset_close(r.train);
    pb_dataset_close(r.held_out);
    if (r.ctx.be) pb_ctx_close(&r.ctx);
    free(summary);
    return s == PB_OK ? 0 : 1;
}
