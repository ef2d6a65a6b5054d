/* tensor_capture.c - implements tensor_capture.h. */
#include "train/tensor_capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/draft.h"
#include "os/file.h"
#include "os/page.h"
#include "trainer/capture/capture.h"
#include "trainer/step/tensors.h"

static const char header[] =
    "tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,inf,first_row,first_col,ops,batch_row,token,head,"
    "micro_batch\n";
enum { PATH = 1024 };

static pb_status check(const pb_train_options *o, pb_tensor_capture *out)
{
    if (!o->capture_tensors) return PB_OK;
    if (o->profile_on_demand) return pb_fail(PB_EINVAL, "--capture-tensors needs a schedule, not --profile-on-demand");
    const pb_status s = pb_tok_pattern_open(o->capture_tensors, strlen(o->capture_tensors), false, &out->pattern);
    if (s != PB_OK) {
        char why[300];
        snprintf(why, sizeof why, "%s", pb_error());
        return pb_fail(s, "--capture-tensors: %s", why);
    }
    if (strlen(o->profile_out) + strlen("/tensors") >= PATH / 2)
        return pb_fail(PB_EINVAL, "--profile-out: the path is longer than %d bytes", PATH / 2);
    return PB_OK;
}

pb_status pb_tensor_capture_check(const pb_job *j, pb_tensor_capture *out)
{
    *out = (pb_tensor_capture){0};
    return pb_job_agree(j, "the capture of tensors", check(j->o, out));
}

pb_status pb_tensor_capture_open(const pb_job *j, const pb_profiling *p, pb_tensor_capture *c)
{
    char folder[PATH];
    c->on = j->o->capture_tensors && p->p;
    if (c->on) snprintf(folder, PATH, "%s/tensors", j->o->profile_out);
    return pb_job_agree(j, "the folder of captured tensors", c->on ? pb_make_folder(folder) : PB_OK);
}

/* ---- one step --------------------------------------------------------------------------------------------------- */

typedef struct pb_step_capture {
    const pb_tensor_capture *c;
    pb_job *j;
    long number;
    int micro;          /* the micro-batch whose tensors are read; -1: tensors of parameters are */
    pb_page page;       /* the table */
    pb_capture **layer; /* [L+1] of each layer; the last: of no layer. NULL: no tensor of it matches */
    int L;
    pb_status status; /* the first failure, with its message */
    char why[400];
} step_capture;

/* Writes a number, or nothing if it is below 0. */
static void put_number(FILE *f, long n)
{
    if (n >= 0) fprintf(f, ",%ld", n);
    else fputc(',', f);
}

static void write_row(const step_capture *c, const pb_tensor *x, const pb_tensor_statistics *s)
{
    char layer[16] = "", first[48] = ",", range[64] = ",,"; /* without a finite element there is no minimum */
    FILE *f = c->page.f;
    const bool finite = s->nans + s->infs < x->rows * x->cols;
    if (x->layer >= 0) snprintf(layer, sizeof layer, "%d", x->layer);
    if (s->first < x->rows * x->cols) snprintf(first, sizeof first, "%zu,%zu", s->first / x->cols, s->first % x->cols);
    if (finite) snprintf(range, sizeof range, "%.9g,%.9g,%.9g", s->min, s->max, s->rms);
    fprintf(f, "%s,%s,%s,%zu,%zu,%s,%zu,%zu,%zu,%s,%s", x->name, layer, pb_dtype_name(x->dtype), x->rows, x->cols,
            range, s->zeros, s->nans, s->infs, first, x->ops);
    const bool bad = s->first < x->rows * x->cols;
    const pb_tensor_place at = bad ? pb_tensor_place_of(c->j->trainer, x, s->first) : (pb_tensor_place){-1, -1, -1};
    put_number(f, at.row), put_number(f, at.token), put_number(f, at.head), put_number(f, c->micro);
    fputc('\n', f);
}

/* Adds a tensor to the capture of its layer. */
static pb_status add(step_capture *s, const pb_tensor *x)
{
    pb_capture **c = &s->layer[x->layer >= 0 ? x->layer : s->L];
    if (!*c) {
        PB_TRY(pb_capture_open((size_t)s->j->o->capture_limit << 20, c));
        PB_TRY(pb_capture_note(*c, PB_NOTE_program, "train %s", pb_train_commit()));
        PB_TRY(pb_capture_note(*c, PB_NOTE_rank, "%d", s->j->rank));
        PB_TRY(pb_capture_note(*c, PB_NOTE_step, "%ld", s->number));
        if (x->layer >= 0) PB_TRY(pb_capture_note(*c, PB_NOTE_layer, "%d", x->layer));
    }
    return pb_capture_extra(*c, &s->j->ctx, x->name, x->p, x->rows, x->cols, x->dtype);
}

static pb_status take(void *self, const pb_tensor *x)
{
    step_capture *s = self;
    const size_t n = x->rows * x->cols, bytes = n * pb_dtype_size(x->dtype);
    size_t from, to;
    void *host = malloc(bytes + 1);
    pb_status status = host ? pb_download(&s->j->ctx, host, x->p, bytes)
                            : pb_fail(PB_ENOMEM, "no memory for the %zu bytes of %s", bytes, x->name);
    if (status == PB_OK) {
        const pb_tensor_statistics all = pb_tensor_statistics_of(host, n, x->dtype);
        write_row(s, x, &all);
    }
    free(host);
    PB_TRY(status);
    PB_TRY(pb_tok_pattern_find(&s->c->pattern, x->name, strlen(x->name), 0, &from, &to));
    return to ? add(s, x) : PB_OK;
}

/* Keeps the first failure. After it nothing more is read in this step; training continues. */
static void keep(step_capture *s, pb_status status)
{
    if (s->status != PB_OK || status == PB_OK) return;
    s->status = status;
    snprintf(s->why, sizeof s->why, "%s", pb_error());
}

static pb_status take_observed(void *self, const pb_tensor *x)
{
    step_capture *s = self;
    if (s->status == PB_OK) keep(s, take(s, x));
    return PB_OK;
}

/* Writes the tensors that were added so far, and closes their captures. */
static pb_status write_layers(step_capture *s)
{
    char path[PATH], micro[24] = "";
    pb_status status = PB_OK;
    if (s->micro >= 0 && s->j->micro_batches > 1) snprintf(micro, sizeof micro, "-micro%d", s->micro);
    for (int i = 0; i <= s->L; i++) {
        char part[24] = "rest";
        if (!s->layer[i]) continue;
        if (i < s->L) snprintf(part, sizeof part, "layer%d", i);
        snprintf(path, PATH, "%s/tensors/step%ld-rank%d%s-%s.safetensors", s->j->o->profile_out, s->number, s->j->rank,
                 micro, part);
        if (status == PB_OK) status = pb_capture_write(s->layer[i], &pb_disk_posix, path);
        pb_capture_close(s->layer[i]);
        s->layer[i] = NULL;
    }
    return status;
}

/* The tensors of a single micro-batch share the files of the parameters. */
static void after_micro(void *self, int micro)
{
    step_capture *s = self;
    s->micro = micro;
    if (s->status == PB_OK) keep(s, pb_trainer_activations(s->j->trainer, take, s));
    if (s->status == PB_OK && s->j->micro_batches > 1) keep(s, write_layers(s));
    s->micro = micro + 1; /* what the callback gets from now on belongs to the next micro-batch */
}

static bool any_rank_captures(const pb_tensor_capture *c, const pb_job *j, const pb_profiling *p)
{
    bool any = false;
    for (int i = 0; i < j->ranks; i++) any |= pb_profiling_chosen(p, i, c->steps);
    return any;
}

/* Frees all of a step but its page. */
static void close_step(step_capture *s)
{
    for (int i = 0; s->layer && i <= s->L; i++) pb_capture_close(s->layer[i]);
    free(s->layer);
    free(s);
}

static step_capture *open_step(pb_tensor_capture *c, pb_job *j, long number)
{
    const int L = pb_trainer_model(j->trainer)->g.L;
    step_capture *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (step_capture){.c = c, .j = j, .number = number, .L = L};
    s->layer = calloc((size_t)L + 1, sizeof *s->layer);
    if (s->layer && pb_page_open(&s->page) == PB_OK) return s;
    close_step(s);
    return NULL;
}

bool pb_tensor_capture_between_ops(const pb_job *j)
{
    return j->o->capture_tensors && (j->o->capture_gradients || pb_trainer_recomputes(j->trainer));
}

void pb_tensor_capture_begin(pb_tensor_capture *c, pb_job *j, const pb_profiling *p, long number, bool *eager)
{
    *eager = c->on && pb_tensor_capture_between_ops(j) && any_rank_captures(c, j, p);
    if (!c->on || !pb_profiling_chosen(p, j->rank, c->steps++)) return;
    c->now = open_step(c, j, number);
    c->lacks_memory = !c->now;
    if (!c->now) return;
    fputs(header, c->now->page.f);
    j->after_micro = after_micro;
    j->after_micro_self = c->now;
    if (pb_tensor_capture_between_ops(j))
        pb_trainer_observe(j->trainer, take_observed, c->now, j->o->capture_gradients);
}

pb_status pb_tensor_capture_end(pb_tensor_capture *c, pb_job *j)
{
    char path[PATH];
    step_capture *s = c->now;
    const bool lacks = c->lacks_memory;
    c->lacks_memory = false;
    if (!s) return lacks ? pb_fail(PB_ENOMEM, "no memory to capture a step") : PB_OK;
    c->now = NULL;
    j->after_micro = NULL;
    pb_trainer_observe(j->trainer, NULL, NULL, false);
    s->micro = -1;
    if (s->status == PB_OK) keep(s, pb_trainer_parameters(j->trainer, take, s));
    snprintf(path, PATH, "%s/tensors/step%ld-rank%d.csv", j->o->profile_out, s->number, j->rank);
    keep(s, pb_page_save(&s->page, s->status, pb_file_replace, path));
    if (s->status == PB_OK) keep(s, write_layers(s));
    const pb_status status = s->status == PB_OK ? PB_OK : pb_fail(s->status, "%s", s->why);
    close_step(s);
    return status;
}

void pb_tensor_capture_close(pb_tensor_capture *c)
{
    if (c->now) { /* the run ended within the step */
        (void)pb_page_save(&c->now->page, PB_EIO, pb_file_replace, "");
        close_step(c->now);
    }
    if (c->pattern.code) pb_tok_pattern_close(&c->pattern);
    *c = (pb_tensor_capture){0};
}
