/* train.c - the program `train`: trains a model of model.def on conversations and says how it goes. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "trainer/data.h"
#include "trainer/hf_config.h"
#include "trainer/hf_load.h"

enum { EXIT_USER = 2, EXIT_MACHINE = 125 };

typedef struct option_info {
    const char *name, *argument, *deflt, *help;
    char letter;
} option_info;

static const option_info infos[] = {
#define OPT(name, letter, argument, deflt, help) {#name, argument, deflt, help, letter},
#include "trainer/options.def"
#undef OPT
};
enum {
#define OPT(name, letter, argument, deflt, help) O_##name,
#include "trainer/options.def"
#undef OPT
    NOPTIONS
};

typedef struct job {
    const char *text[NOPTIONS];
    pb_train_config cfg;
    pb_hf_config hf; /* when the model is a folder: cfg.model.blank */
    long steps;
    bool graph;
    pb_ctx ctx;
    pb_trainer *trainer;
    pb_corpus *corpus;
    pb_graph *recorded;
    int32_t *ids, *targets; /* [B,S] */
    float *mask;
    FILE *log;
} job;

/* ---- options ------------------------------------------------------------------------------------ */

static void dashed(const char *name, char *out)
{
    do *out++ = *name == '_' ? '-' : *name;
    while (*name++);
}

static void help(void)
{
    printf("usage: train [OPTIONS]\n\nTrains a model on conversations and prints loss, gradient norm and speed.\n\n");
    for (int i = 0; i < NOPTIONS; i++) {
        char name[32], left[80];
        dashed(infos[i].name, name);
        snprintf(left, sizeof left, "%c%c%s--%s %s", infos[i].letter ? '-' : ' ',
                 infos[i].letter ? infos[i].letter : ' ', infos[i].letter ? ", " : "  ", name, infos[i].argument);
        printf("  %-36s %s%s%s%s\n", left, infos[i].help, *infos[i].deflt ? " (" : "", infos[i].deflt,
               *infos[i].deflt ? ")" : "");
    }
    printf("      --help                           this text\n\nExit codes: 0 trained, 2 an option or a file of yours, "
           "125 the machine.\n");
}

/* Fills j->text; false when the program has nothing more to do, with the exit code. */
static bool parse(int argc, char **argv, job *j, int *code)
{
    struct option longs[NOPTIONS + 2] = {0};
    char names[NOPTIONS][32], letters[2 * NOPTIONS + 2] = "", *at = letters;
    for (int i = 0; i < NOPTIONS; i++) {
        dashed(infos[i].name, names[i]);
        longs[i] = (struct option){names[i], required_argument, NULL, 1000 + i};
        j->text[i] = infos[i].deflt;
        if (infos[i].letter) *at++ = infos[i].letter, *at++ = ':';
    }
    longs[NOPTIONS] = (struct option){"help", no_argument, NULL, 'h'};
    for (int c; (c = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
        int i = 0;
        if (c == 'h' || c == '?') {
            if (c == 'h') help();
            else fprintf(stderr, "train: try --help\n");
            *code = c == 'h' ? 0 : EXIT_USER;
            return false;
        }
        while (c < 1000 ? infos[i].letter != c : i != c - 1000) i++;
        j->text[i] = optarg;
    }
    if (optind == argc) return true;
    fprintf(stderr, "train: '%s' is no option; try --help\n", argv[optind]);
    *code = EXIT_USER;
    return false;
}

static pb_status whole(const job *j, int option, long least, long most, long *out)
{
    char *end;
    errno = 0;
    const long v = strtol(j->text[option], &end, 10);
    if (end == j->text[option] || *end || errno || v < least || v > most)
        return pb_fail(PB_EINVAL, "--%s %s: need a whole number from %ld to %ld", infos[option].name, j->text[option],
                       least, most);
    *out = v;
    return PB_OK;
}

static pb_status real(const job *j, int option, float *out)
{
    char *end;
    const double v = strtod(j->text[option], &end);
    if (end == j->text[option] || *end || !isfinite(v))
        return pb_fail(PB_EINVAL, "--%s %s: need a number", infos[option].name, j->text[option]);
    *out = (float)v;
    return PB_OK;
}

/* The place of a word in the option's own list "a|b|c". */
static pb_status word(const job *j, int option, int *out)
{
    const char *list = infos[option].argument, *text = j->text[option];
    for (int i = 0; *list; i++) {
        const size_t n = strcspn(list, "|");
        if (strlen(text) == n && strncmp(list, text, n) == 0) {
            *out = i;
            return PB_OK;
        }
        list += n + (list[n] == '|');
    }
    return pb_fail(PB_EINVAL, "--%s %s: need one of %s", infos[option].name, text, infos[option].argument);
}

/* A name of model.def, else a folder. */
static pb_status find_model(job *j, const pb_geometry **g)
{
    struct stat st;
    const char *text = j->text[O_model];
    const pb_status s = pb_geometry_find(text, g);
    if (s == PB_OK || (!strchr(text, '/') && (stat(text, &st) != 0 || !S_ISDIR(st.st_mode)))) return s;
    PB_TRY(pb_hf_config_open(text, &j->hf));
    *g = &j->hf.g;
    return PB_OK;
}

static pb_status configure(job *j)
{
    const pb_geometry *g;
    long batch, seq, layers, rank, seed;
    int tuning, clip, dtype, mode;
    PB_TRY(find_model(j, &g));
    j->cfg = pb_train_defaults(g);
    j->cfg.model.blank = g == &j->hf.g;
    PB_TRY(word(j, O_tuning, &tuning));
    PB_TRY(word(j, O_clip, &clip));
    PB_TRY(word(j, O_dtype, &dtype));
    PB_TRY(word(j, O_mode, &mode));
    PB_TRY(whole(j, O_steps, 1, 1000000000, &j->steps));
    PB_TRY(whole(j, O_batch, 1, 1 << 20, &batch));
    PB_TRY(whole(j, O_seq, 1, 1 << 20, &seq));
    PB_TRY(whole(j, O_layers, 0, 1000, &layers));
    PB_TRY(whole(j, O_rank, 1, 1 << 16, &rank));
    PB_TRY(whole(j, O_seed, 0, 1000000000, &seed));
    PB_TRY(real(j, O_lr, &j->cfg.lr));
    PB_TRY(real(j, O_max_norm, &j->cfg.max_norm));
    j->graph = mode == 1;
    j->cfg.model.tuning = (pb_tuning)tuning;
    j->cfg.model.dtype = (pb_dtype)dtype;
    j->cfg.model.layers = (int)layers;
    j->cfg.model.rank = (int)rank;
    j->cfg.model.alpha = 2 * (float)rank;
    j->cfg.model.seed = (uint64_t)seed;
    j->cfg.clip = (pb_clip_arm)clip;
    j->cfg.B = (int)batch;
    j->cfg.S = (int)seq;
    return PB_OK;
}

/* ---- training ------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pb_status next_batch(job *j, long step)
{
    PB_TRY(pb_corpus_batch(j->corpus, j->cfg.B, j->cfg.S, (size_t)step, j->ids, j->targets, j->mask));
    return pb_trainer_set_batch(j->trainer, &(pb_batch){j->ids, j->targets, j->mask, 0});
}

/* The first step runs eagerly, which sizes the scratch; then, if asked, the step is recorded. */
static pb_status step(job *j, long i)
{
    PB_TRY(next_batch(j, i));
    if (j->graph && i == 1) PB_TRY(pb_record(&j->ctx, pb_train_step, j->trainer, &j->recorded));
    return j->recorded ? pb_replay(&j->ctx, j->recorded) : pb_train_step(&j->ctx, j->trainer);
}

/* The largest norm of the groups that are clipped apart; NaN without clipping. */
static pb_status gradient_norm(job *j, double *out)
{
    const int n = pb_trainer_clip_groups(j->trainer);
    pb_clip_state *s = malloc(((size_t)n + 1) * sizeof *s);
    *out = n ? 0 : (double)NAN;
    if (!s) return pb_fail(PB_ENOMEM, "no memory for the clip states");
    pb_status status = n ? pb_trainer_clip_states(j->trainer, s) : PB_OK;
    for (int i = 0; status == PB_OK && i < n; i++)
        if (!((double)s[i].norm <= *out)) *out = (double)s[i].norm;
    free(s);
    return status;
}

static pb_status report(job *j, long i, double seconds)
{
    double loss, norm;
    PB_TRY(pb_trainer_loss(j->trainer, &loss));
    PB_TRY(gradient_norm(j, &norm));
    printf("step %6ld  loss %8.5f  norm %9.3g  lr %8.2e  %9.1f tokens/s\n", i + 1, loss, norm, (double)j->cfg.lr,
           j->cfg.B * j->cfg.S / seconds);
    if (j->log && fprintf(j->log, "%ld,%.9g,%.9g,%.9g,%.9g\n", i + 1, loss, norm, (double)j->cfg.lr, seconds) < 0)
        return pb_fail(PB_EIO, "%s: %s", j->text[O_log], strerror(errno));
    return PB_OK;
}

static pb_status open_log(job *j)
{
    if (!*j->text[O_log]) return PB_OK;
    const int fd = open(j->text[O_log], O_WRONLY | O_CREAT | O_EXCL, 0666);
    j->log = fd < 0 ? NULL : fdopen(fd, "w");
    if (!j->log) return pb_fail(PB_EINVAL, "%s: %s", j->text[O_log], strerror(errno));
    fputs("step,loss,norm,lr,seconds\n", j->log);
    return PB_OK;
}

static pb_status load(job *j)
{
    pb_load_report r;
    const double start = now();
    PB_TRY(pb_model_load_hf(pb_trainer_model(j->trainer), j->text[O_model], &r));
    printf("loaded %zu tensors, %.1f MB in %.2f s\n", r.tensors, 1e-6 * (double)r.bytes, now() - start);
    if (r.unused) printf("%zu tensors of the files are not used: %s\n", r.unused, r.names);
    return PB_OK;
}

static pb_status set_up(job *j)
{
    char path[1024];
    const size_t n = (size_t)j->cfg.B * j->cfg.S;
    PB_TRY(open_log(j));
    PB_TRY(pb_corpus_open(*j->text[O_data] ? j->text[O_data] : pb_corpus_path(path, sizeof path), j->cfg.model.seed,
                          &j->corpus));
    PB_TRY(pb_trainer_open(&j->ctx, &j->cfg, &j->trainer));
    if (j->cfg.model.blank) PB_TRY(load(j));
    j->ids = malloc(n * sizeof *j->ids);
    j->targets = malloc(n * sizeof *j->targets);
    j->mask = malloc(n * sizeof *j->mask);
    if (!j->ids || !j->targets || !j->mask) return pb_fail(PB_ENOMEM, "no memory for a batch");
    const pb_memory m = pb_trainer_memory(j->trainer);
    printf("%s, %s: %zu parameters trained; weights %.1f MB, gradients %.1f, moments %.1f, activations %.1f\n",
           j->text[O_model], j->text[O_tuning], pb_trainer_model(j->trainer)->trained, 1e-6 * (double)m.weights,
           1e-6 * (double)m.grads, 1e-6 * (double)m.moments, 1e-6 * (double)m.activations);
    printf("%zu conversations, %zu tokens\n", pb_corpus_conversations(j->corpus), pb_corpus_tokens(j->corpus));
    return PB_OK;
}

static pb_status train(job *j)
{
    pb_adamw_state state;
    PB_TRY(set_up(j));
    for (long i = 0; i < j->steps; i++) {
        const double start = now();
        PB_TRY(step(j, i));
        PB_TRY(pb_sync(&j->ctx));
        PB_TRY(report(j, i, now() - start));
    }
    PB_TRY(pb_trainer_state(j->trainer, &state));
    if (state.skipped)
        printf("%d of %ld steps were skipped: a gradient norm was not finite\n", state.skipped, j->steps);
    return PB_OK;
}

static void tear_down(job *j)
{
    pb_graph_free(&j->ctx, j->recorded);
    pb_trainer_close(j->trainer);
    pb_corpus_close(j->corpus);
    free(j->ids);
    free(j->targets);
    free(j->mask);
    pb_ctx_close(&j->ctx);
}

static int complain(pb_status s)
{
    fprintf(stderr, "train: %s\n", pb_error());
    return s == PB_EINVAL || s == PB_EIO ? EXIT_USER : EXIT_MACHINE;
}

int main(int argc, char **argv)
{
    job j = {0};
    pb_backend_id device;
    int code = 0;
    if (!parse(argc, argv, &j, &code)) return code;
    pb_status s = configure(&j);
    if (s == PB_OK) s = pb_backend_find(j.text[O_device], &device);
    if (s == PB_OK) s = pb_ctx_open(&j.ctx, device, 0);
    if (s != PB_OK) return complain(s);
    s = train(&j);
    if (s != PB_OK) code = complain(s);
    if (j.log && fclose(j.log) != 0 && !code)
        code = complain(pb_fail(PB_EIO, "%s: %s", j.text[O_log], strerror(errno)));
    tear_down(&j);
    return code;
}
