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
    "tensor,layer,dtype,rows,cols,min,max,rms,zeros,nan,inf,first_row,first_col,ops,batch_row,token,head\n";
enum { PATH = 1024 };

static pb_status open_all(const pb_job *j, const pb_profiling *p, pb_tensor_capture *out)
{
    const pb_train_options *o = j->o;
    char folder[PATH];
    if (!o->capture_tensors) return PB_OK;
    if (!*p->why) return pb_fail(PB_EINVAL, "--capture-tensors needs --profile-ranks, such as --profile-ranks auto");
    if (o->profile_on_demand) return pb_fail(PB_EINVAL, "--capture-tensors needs a schedule, not --profile-on-demand");
    const pb_status s = pb_tok_pattern_open(o->capture_tensors, strlen(o->capture_tensors), false, &out->pattern);
    if (s != PB_OK) {
        char why[300];
        snprintf(why, sizeof why, "%s", pb_error());
        return pb_fail(s, "--capture-tensors: %s", why);
    }
    out->on = p->p != NULL;
    if (snprintf(folder, PATH, "%s/tensors", o->profile_out) >= PATH / 2)
        return pb_fail(PB_EINVAL, "--profile-out: the path is longer than %d bytes", PATH / 2);
    return out->on ? pb_make_folder(folder) : PB_OK;
}

pb_status pb_tensor_capture_open(const pb_job *j, const pb_profiling *p, pb_tensor_capture *out)
{
    *out = (pb_tensor_capture){0};
    return pb_job_agree(j, "the capture of tensors", open_all(j, p, out));
}

/* ---- one step --------------------------------------------------------------------------------------------------- */

typedef struct step_capture {
    const pb_tensor_capture *c;
    pb_job *j;
    long number;
    FILE *csv;
    pb_capture **layer; /* [L+1] of each layer; the last: of no layer. NULL: no tensor of it matches */
    int L;
} step_capture;

/* Writes a number, or nothing if it is below 0. */
static void put_number(FILE *f, long n)
{
    if (n >= 0) fprintf(f, ",%ld", n);
    else fputc(',', f);
}

static void write_row(const pb_trainer *t, FILE *f, const pb_tensor *x, const pb_tensor_statistics *s)
{
    char layer[16] = "", first[48] = ",", range[64] = ",,"; /* without a finite element there is no minimum */
    const bool finite = s->nans + s->infs < x->rows * x->cols;
    if (x->layer >= 0) snprintf(layer, sizeof layer, "%d", x->layer);
    if (s->first < x->rows * x->cols) snprintf(first, sizeof first, "%zu,%zu", s->first / x->cols, s->first % x->cols);
    if (finite) snprintf(range, sizeof range, "%.9g,%.9g,%.9g", s->min, s->max, s->rms);
    fprintf(f, "%s,%s,%s,%zu,%zu,%s,%zu,%zu,%zu,%s,%s", x->name, layer, pb_dtype_name(x->dtype), x->rows, x->cols,
            range, s->zeros, s->nans, s->infs, first, x->ops);
    const bool bad = s->first < x->rows * x->cols;
    const pb_tensor_place at = bad ? pb_tensor_place_of(t, x, s->first) : (pb_tensor_place){-1, -1, -1};
    put_number(f, at.row), put_number(f, at.token), put_number(f, at.head);
    fputc('\n', f);
}

/* Adds a tensor to the capture of its layer. */
static pb_status add(step_capture *s, const pb_tensor *x)
{
    pb_capture **c = &s->layer[x->layer >= 0 ? x->layer : s->L];
    if (!*c) {
        PB_TRY(pb_capture_open((size_t)s->j->o->capture_limit << 20, c));
        PB_TRY(pb_capture_note(*c, PB_NOTE_program, "train %s", pb_train_version()));
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
        write_row(s->j->trainer, s->csv, x, &all);
    }
    free(host);
    PB_TRY(status);
    PB_TRY(pb_tok_pattern_find(&s->c->pattern, x->name, strlen(x->name), 0, &from, &to));
    return to ? add(s, x) : PB_OK;
}

static pb_status write_layers(const step_capture *s, const char *start)
{
    char path[PATH];
    for (int i = 0; i <= s->L; i++) {
        if (!s->layer[i]) continue;
        if (i < s->L) snprintf(path, PATH, "%s-layer%d.safetensors", start, i);
        else snprintf(path, PATH, "%s-rest.safetensors", start);
        PB_TRY(pb_capture_write(s->layer[i], &pb_disk_posix, path));
    }
    return PB_OK;
}

static pb_status capture(step_capture *s)
{
    char start[PATH / 2 + 64], path[PATH];
    pb_page page;
    snprintf(start, sizeof start, "%s/tensors/step%ld-rank%d", s->j->o->profile_out, s->number, s->j->rank);
    snprintf(path, PATH, "%s.csv", start);
    PB_TRY(pb_page_open(&page));
    s->csv = page.f;
    fputs(header, page.f);
    PB_TRY(pb_page_save(&page, pb_trainer_tensors(s->j->trainer, take, s), pb_file_replace, path));
    return write_layers(s, start);
}

pb_status pb_tensor_capture_step(pb_tensor_capture *c, pb_job *j, const pb_profiling *p, long number)
{
    step_capture s = {.c = c, .j = j, .number = number, .L = pb_trainer_model(j->trainer)->g.L};
    if (!c->on || !pb_profiling_chosen(p, j->rank, c->steps++)) return PB_OK;
    s.layer = calloc((size_t)s.L + 1, sizeof *s.layer);
    if (!s.layer) return pb_fail(PB_ENOMEM, "no memory to capture %d layers", s.L);
    const pb_status status = capture(&s);
    for (int i = 0; i <= s.L; i++) pb_capture_close(s.layer[i]);
    free(s.layer);
    return status;
}

void pb_tensor_capture_close(pb_tensor_capture *c)
{
    if (c->pattern.code) pb_tok_pattern_close(&c->pattern);
    *c = (pb_tensor_capture){0};
}
