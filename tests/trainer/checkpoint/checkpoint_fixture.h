/* checkpoint_fixture.h - a small training run that can be stepped, digested and compared, for the tests of
 * checkpoints. */
#ifndef PB_CHECKPOINT_FIXTURE_H
#define PB_CHECKPOINT_FIXTURE_H
#include <sys/stat.h>
#include <unistd.h>

#include "tests/test.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/digest.h"

#define TRACKER "latest_checkpointed_iteration.txt"

enum { RUN_S = 24, RUN_B = 2, RUN_T = RUN_B * RUN_S };

typedef struct run_kind {
    pb_tuning tuning;
    pb_dtype dtype;
    int micro; /* micro-batches per step */
    bool graph;
    bool normuon; /* with NorMuon, and its NaN guard */
} run_kind;

static const run_kind plain = {PB_LORA, PB_F32, 1, false, false};

typedef struct run {
    run_kind kind;
    pb_ctx ctx;
    pb_trainer *t;
    pb_dataset *data;
    pb_graph *first, *more, *end; /* graphs of the first micro-batch, of each further one, and of clip and optimizer */
    pb_progress p;
    double loss; /* loss of the last micro-batch */
    bool warm;   /* true: a step was made, so the scratch memory has its final size */
} run;

static inline pb_dataset *run_data(void)
{
    char path[] = "/tmp/pb_checkpoint_dataXXXXXX";
    pb_tokenizer *t = NULL;
    pb_dataset *d = NULL;
    pb_dataset_counts counts;
    const pb_dataset_config cfg = {
        .chat = {.family = PB_TEMPLATE_BYTES}, .S = RUN_S, .long_ones = PB_LONG_CUT, .pack = PB_PACK_ON, .seed = 7};
    FILE *f = fdopen(mkstemp(path), "w");
    assert_non_null(f);
    for (int i = 0; i < 9; i++)
        fprintf(f,
                "{\"messages\":[{\"role\":\"user\",\"content\":\"\"},{\"role\":\"assistant\",\"content\":\"%d\"}]}\n",
                i * i);
    fclose(f);
    CHECK_OK(pb_tokenizer_open(NULL, &t));
    CHECK_OK(pb_dataset_open(path, t, &cfg, &counts, &d));
    unlink(path);
    pb_tokenizer_close(t);
    return d;
}

static inline pb_train_config run_config(run_kind k)
{
    const pb_geometry *g;
    CHECK_OK(pb_geometry_find("tiny", &g));
    pb_train_config c = pb_train_defaults(g);
    c.model.layers = 1;
    c.model.tuning = k.tuning;
    c.model.dtype = k.dtype;
    c.model.rank = 2;
    c.model.alpha = 4;
    c.B = RUN_B;
    c.S = RUN_S;
    c.packed = true;
    c.lr = 1e-2f;
    c.optimizer = k.normuon ? PB_OPTIMIZER_NORMUON : PB_OPTIMIZER_ADAMW;
    c.normuon.guard = k.normuon;
    return c;
}

static inline void run_open_as(run *r, run_kind k, const pb_train_config *c)
{
    *r = (run){.kind = k};
    CHECK_OK(pb_ctx_open(&r->ctx, PB_CPU, 0));
    CHECK_OK(pb_trainer_open(&r->ctx, c, &r->t));
    r->data = run_data();
}

static inline void run_open(run *r, run_kind k)
{
    const pb_train_config c = run_config(k);
    run_open_as(r, k, &c);
}

static inline void run_close(run *r)
{
    pb_graph_free(&r->ctx, r->first), pb_graph_free(&r->ctx, r->more), pb_graph_free(&r->ctx, r->end);
    pb_dataset_close(r->data);
    pb_trainer_close(r->t);
    pb_ctx_close(&r->ctx);
}

static inline pb_status run_batch(pb_ctx *ctx, void *self)
{
    PB_TRY(pb_phase_forward(ctx, self));
    PB_TRY(pb_phase_loss(ctx, self));
    return pb_phase_backward(ctx, self);
}

static inline pb_status run_end(pb_ctx *ctx, void *self)
{
    PB_TRY(pb_phase_clip(ctx, self));
    return pb_phase_optimizer(ctx, self);
}

/* Runs fn. In graph mode, the first call runs fn eagerly, so that the scratch memory gets its final size; the second
 * call records a graph, and later calls replay it. */
static inline void run_call(run *r, pb_fn fn, pb_graph **g)
{
    if (r->kind.graph && !*g && r->warm) CHECK_OK(pb_record(&r->ctx, fn, r->t, g));
    CHECK_OK(*g ? pb_replay(&r->ctx, *g) : fn(&r->ctx, r->t));
}

static inline void run_step(run *r)
{
    int32_t ids[RUN_T], targets[RUN_T], start[RUN_T], pos[RUN_T];
    float mask[RUN_T];
    /* The learning rate follows from the iteration, as in a real run. */
    CHECK_OK(pb_trainer_set_lr(r->t, 1e-2f / (float)(1 + r->p.iteration)));
    for (int i = 0; i < r->kind.micro; i++) {
        pb_dataset_next(r->data, RUN_B, &(pb_rows){ids, targets, mask, start, pos});
        CHECK_OK(pb_trainer_set_batch(r->t, &(pb_batch){ids, targets, mask, 10, start, pos}));
        pb_trainer_accumulate(r->t, i > 0);
        run_call(r, run_batch, i ? &r->more : &r->first);
        CHECK_OK(pb_trainer_loss(r->t, &r->loss));
    }
    run_call(r, run_end, &r->end);
    r->warm = true;
    r->p.iteration++;
    r->p.data = pb_dataset_position(r->data);
    r->p.tokens += (uint64_t)(r->kind.micro * RUN_T);
}

static inline void digest_add_device(run *r, pb_digest *d, const void *device, size_t n)
{
    void *host = malloc(n + 1);
    assert_non_null(host);
    CHECK_OK(pb_download(&r->ctx, host, device, n));
    pb_digest_add(d, host, n);
    free(host);
}

/* Digest of the state that training changes: trained weights, their master weights and moments, the scalars of the
 * optimizer, progress. */
static inline pb_digest_text run_digest(run *r)
{
    const pb_model *m = pb_trainer_model(r->t);
    pb_digest *d = NULL;
    pb_adamw_state state;
    CHECK_OK(pb_digest_open(&d));
    for (int i = 0; i < m->n; i++) {
        const pb_param *p = &m->params[i];
        const size_t n = pb_param_n(p), wide = n * sizeof(float);
        if (!p->trained) continue;
        digest_add_device(r, d, p->w, n * pb_dtype_size(p->dtype));
        if (p->master) digest_add_device(r, d, p->master, wide);
        digest_add_device(r, d, p->m, wide);
        digest_add_device(r, d, p->v, pb_param_v_n(p) * sizeof(float));
    }
    CHECK_OK(pb_trainer_state(r->t, &state));
    pb_digest_add(d, &state, sizeof state);
    pb_digest_add(d, &r->p, sizeof r->p);
    const pb_digest_text text = pb_digest_get(d);
    pb_digest_close(d);
    return text;
}

/* Restores the checkpoint `which` and moves the data set to the position stored in it. */
static inline pb_status run_resume(run *r, pb_checkpoints *c, const char *which)
{
    PB_TRY(pb_checkpoints_resume(c, which, r->t, &r->p));
    return pb_dataset_seek(r->data, r->p.data);
}

/* Trains and saves, if c is not NULL, as a run does. With pb_checkpoint_options.background, a thread writes while the
 * next steps run; the last checkpoint is complete when the function returns. */
static inline void run_to(run *r, pb_checkpoints *c, uint64_t iteration)
{
    while (r->p.iteration < iteration) {
        run_step(r);
        if (c) CHECK_OK(pb_checkpoints_poll(c));
        if (c) CHECK_OK(pb_checkpoints_save(c, pb_checkpoints_due(c, r->p.iteration), r->t, &r->p));
    }
    if (c) CHECK_OK(pb_checkpoints_wait(c));
}

/* Saves, and waits until the checkpoint is complete. */
static inline pb_status save_wait(pb_checkpoints *c, pb_save how, run *r, const pb_progress *p)
{
    PB_TRY(pb_checkpoints_save(c, how, r->t, p));
    return pb_checkpoints_wait(c);
}

#define CHECK_DIGEST(a, b) assert_string_equal((a).hex, (b).hex)

/* ---- making folders of checkpoints, and listing their contents ------------------------------------------- */

static inline const char *make_folder(void)
{
    static char path[4][40];
    static int at;
    at = (at + 1) % 4;
    /* Prefer /dev/shm: hundreds of saves then write to memory, not to a disk. */
    snprintf(path[at], sizeof path[at], "%s/pb_checkpointXXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(path[at]));
    return path[at];
}

static inline void remove_folder(const char *path) { CHECK_OK(pb_disk_remove(&pb_disk_posix, path)); }

static inline const char *in_folder(const char *folder, const char *name)
{
    static char path[4][512];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static inline bool is_there(const char *folder, const char *name) { return access(in_folder(folder, name), F_OK) == 0; }

typedef struct lines {
    char text[4096];
} lines;

static inline pb_status collect_name(void *self, const char *path, const char *name, pb_disk_kind kind)
{
    (void)path;
    if (strchr(name, '/') || !*name || strcmp(name, ".lock") == 0) return PB_OK;
    lines *l = self;
    const size_t at = strlen(l->text);
    snprintf(l->text + at, sizeof l->text - at, "%s%s ", name, kind == PB_DISK_FOLDER ? "/" : "");
    return PB_OK;
}

/* The names in a folder without the lock file, such as "iter_0000004/ iter_0000006/
 * latest_checkpointed_iteration.txt ". */
static inline const char *names_in(const char *folder)
{
    static lines names;
    *names.text = 0;
    CHECK_OK(pb_disk_walk(folder, collect_name, &names));
    return names.text;
}

static inline void note_line(void *self, const char *line)
{
    lines *l = self;
    assert_null(strpbrk(line, "\n\r"));
    snprintf(l->text + strlen(l->text), sizeof l->text - strlen(l->text), "%s\n", line);
}

static inline pb_checkpoints *open_folder(const char *folder, const pb_checkpoint_options *o)
{
    pb_checkpoints *c = NULL;
    CHECK_OK(pb_checkpoints_open(folder, o, &c));
    return c;
}

/* Makes a folder with checkpoints of iterations 1 and 2. */
static inline const char *two_checkpoints(run *r, const pb_checkpoint_options *o)
{
    const char *dir = make_folder();
    pb_checkpoints *c = open_folder(dir, o);
    run_open(r, plain);
    run_to(r, c, 2);
    pb_checkpoints_close(c);
    return dir;
}
#endif
