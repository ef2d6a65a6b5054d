/* state_load.c - checks and loads the state files of a checkpoint. A tensor is in one file, or in several parts in the
 * files of several ranks; the number of ranks that load it does not matter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/checkpoint/state_impl.h"
#include "trainer/step/shards.h"

/* ---- opening the files, listing the parts of tensors ------------------------------------------------------ */

/* Elements first .. first + x->n - 1 of the tensor whose name is the first `length` bytes of x->name. */
struct pb_state_part {
    const pb_st_tensor *x;
    size_t length, first;
    bool whole;
};

static int compare_names(const char *a, size_t an, const char *b, size_t bn)
{
    const int c = memcmp(a, b, an < bn ? an : bn);
    return c ? c : (an > bn) - (an < bn);
}

static int by_name(const void *a, const void *b)
{
    const pb_state_part *x = a, *y = b;
    const int c = compare_names(x->x->name, x->length, y->x->name, y->length);
    return c ? c : (x->first > y->first) - (x->first < y->first);
}

static pb_state_part part_of(const pb_st_tensor *x)
{
    const char *colon = strchr(x->name, ':');
    pb_state_part p = {.x = x, .length = colon ? (size_t)(colon - x->name) : strlen(x->name), .whole = !colon};
    if (colon) p.first = strtoull(colon + 1, NULL, 10);
    return p;
}

pb_status pb_state_open(pb_state_files *f, const char *path)
{
    pb_safetensors **file = realloc(f->file, (size_t)(f->n + 1) * sizeof(pb_safetensors *));
    if (!file) return pb_fail(PB_ENOMEM, "%s: no memory for the list of state files", path);
    f->file = file;
    PB_TRY(pb_st_open(path, &f->file[f->n]));
    const pb_safetensors *last = f->file[f->n++];
    pb_state_part *part = realloc(f->part, (f->parts + pb_st_count(last) + 1) * sizeof *part);
    if (!part) return pb_fail(PB_ENOMEM, "%s: no memory for the list of its tensors", path);
    f->part = part;
    for (size_t i = 0; i < pb_st_count(last); i++) f->part[f->parts++] = part_of(pb_st_at(last, i));
    if (f->parts) qsort(f->part, f->parts, sizeof *f->part, by_name);
    return PB_OK;
}

void pb_state_close(pb_state_files *f)
{
    for (int i = 0; i < f->n; i++) pb_st_close(f->file[i]);
    free(f->file);
    free(f->part);
    *f = (pb_state_files){0};
}

/* Returns the first part of a tensor, and their number in *n. */
static const pb_state_part *find(const pb_state_files *f, const char *name, size_t *n)
{
    const size_t length = strlen(name);
    size_t low = 0, high = f->parts;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (compare_names(f->part[mid].x->name, f->part[mid].length, name, length) < 0) low = mid + 1;
        else high = mid;
    }
    *n = 0;
    while (low + *n < f->parts && compare_names(f->part[low + *n].x->name, f->part[low + *n].length, name, length) == 0)
        ++*n;
    return f->part + low;
}

/* ---- checking ------------------------------------------------------------------------------------------------- */

/* Checks one part of a tensor whose next missing element is `at`. p NULL: the tensor is a single number. */
static pb_status check_part(const char *where, const char *name, const pb_state_part *x, pb_st_dtype dtype,
                            const pb_state_tensor *p, size_t at)
{
    const pb_st_tensor *t = x->x;
    char shape[120];
    const bool all = p ? t->dims == 2 && t->shape[0] == p->rows && t->shape[1] == p->cols : t->dims == 0;
    const bool some = p && !x->whole && t->dims == 1 && x->first <= p->n && t->n <= p->n - x->first;
    if (!(x->whole ? all : some) || t->dtype != dtype)
        return pb_fail(PB_EINVAL, "%s belongs to another model: its tensor %s is %s %s, but must be %s [%zu,%zu]",
                       where, t->name, pb_st_dtype_name(t->dtype),
                       pb_st_shape_text(t->shape, t->dims, shape, sizeof shape), pb_st_dtype_name(dtype),
                       p ? p->rows : 1, p ? p->cols : 1);
    if (x->first == at) return PB_OK;
    return pb_fail(PB_EINVAL, "%s is damaged: elements %zu to %zu of the tensor %s are %s", where,
                   x->first < at ? x->first : at, (x->first < at ? at : x->first) - 1, name,
                   x->first < at ? "in two files" : "missing");
}

/* Checks that the parts of a tensor are complete and do not overlap; adds their number to *parts. */
static pb_status check_tensor(const char *where, const pb_state_files *f, const char *name, pb_st_dtype dtype,
                              const pb_state_tensor *p, size_t *parts)
{
    size_t n, at = 0;
    const pb_state_part *x = find(f, name, &n);
    const size_t want = p ? p->n : 1;
    if (!n) return pb_fail(PB_EINVAL, "%s belongs to another model: it has no tensor %s", where, name);
    for (size_t i = 0; i < n; i++) {
        PB_TRY(check_part(where, name, &x[i], dtype, p, at));
        at += x[i].x->n;
    }
    *parts += n;
    if (at == want) return PB_OK;
    return pb_fail(PB_EINVAL, "%s is damaged: elements %zu to %zu of the tensor %s are missing", where, at, want - 1,
                   name);
}

pb_status pb_state_check(const char *where, const pb_state_files *f, pb_trainer *t)
{
    size_t parts = 0;
    for (int i = 0; i < t->ntrained; i++)
        for (size_t k = 0; k < PB_STATE_KINDS; k++) {
            const pb_state_tensor x = pb_state_whole(t->trained[i], (pb_state_kind)k);
            if (x.n) PB_TRY(check_tensor(where, f, x.name, x.dtype, &x, &parts));
        }
    for (size_t i = 0; i < pb_state_scalars(t); i++)
        PB_TRY(check_tensor(where, f, pb_state_scalar_names[i], pb_state_scalar_types[i], NULL, &parts));
    if (f->parts == parts) return PB_OK;
    return pb_fail(PB_EINVAL, "%s belongs to another model: it has %zu tensors, but must have %zu", where, f->parts,
                   parts);
}

/* ---- loading -------------------------------------------------------------------------------------------------- */

/* Loads elements first .. first+n-1 of a tensor into device memory. */
static pb_status load_range(const pb_state_files *f, const pb_trainer *t, const pb_state_tensor *to)
{
    size_t n;
    const size_t each = pb_st_dtype_size(to->dtype);
    const pb_state_part *x = find(f, to->name, &n);
    for (size_t i = 0; i < n; i++) {
        const size_t from = x[i].first > to->first ? x[i].first : to->first;
        const size_t part_end = x[i].first + x[i].x->n, end = to->first + to->n;
        const size_t until = part_end < end ? part_end : end;
        if (from >= until) continue;
        PB_TRY(pb_upload(t->ctx, to->device + (from - to->first) * each, x[i].x->data + (from - x[i].first) * each,
                         (until - from) * each));
    }
    return PB_OK;
}

/* Loads elements first .. first+n-1 of a bf16 weight, [n] at `device`: its rounded f32 master. The optimizer rounds in
 * the same way, so the bits are equal. */
static pb_status load_rounded(const pb_state_files *f, const pb_trainer *t, const pb_state_tensor *to, uint16_t *device,
                              uint16_t *host)
{
    size_t n;
    const pb_state_part *x = find(f, to->name, &n);
    for (size_t i = 0; i < n; i++) {
        size_t from = x[i].first > to->first ? x[i].first : to->first, some;
        const size_t part_end = x[i].first + x[i].x->n, end = to->first + to->n;
        const size_t until = part_end < end ? part_end : end;
        for (; from < until; from += some) {
            some = until - from < PB_STATE_CHUNK ? until - from : PB_STATE_CHUNK;
            PB_TRY(pb_st_convert(x[i].x, from - x[i].first, some, PB_BF16, host));
            PB_TRY(pb_upload(t->ctx, device + (from - to->first), host, some * sizeof *host));
        }
    }
    return PB_OK;
}

/* Loads the weights x, at `w`, that the step reads, as far as they are not what pb_state_kept lists: bf16 weights, and
 * f32 weights of which this rank keeps more than the slice of the state. */
static pb_status load_weights(const pb_state_files *f, const pb_trainer *t, pb_state_tensor x, void *w, uint16_t *host)
{
    snprintf(x.name, sizeof x.name, "w.%s", x.p->name);
    x.dtype = PB_ST_F32;
    if (x.p->dtype != PB_F32) return load_rounded(f, t, &x, w, host);
    x.device = w;
    return load_range(f, t, &x);
}

static pb_status load_all_weights(const pb_state_files *f, const pb_trainer *t, uint16_t *host)
{
    const pb_slices *s = &t->gradients.slices;
    for (int i = 0; i < t->ntrained; i++) {
        const pb_param *p = t->trained[i];
        const bool kept = p->dtype == PB_F32 && !t->shards.on;
        const bool sliced = t->weights.on && !pb_in_no_unit(&t->model, p);
        if (!kept && !sliced) PB_TRY(load_weights(f, t, (pb_state_tensor){.p = p, .n = pb_param_n(p)}, p->w, host));
    }
    for (int i = 0; t->weights.on && i < s->n; i++) {
        const pb_piece *x = &s->piece[i];
        if (x->p->dtype != PB_F32)
            PB_TRY(load_weights(f, t, (pb_state_tensor){.p = x->p, .first = x->first, .n = x->n}, pb_shards_w(t, x),
                                host));
    }
    return PB_OK;
}

static pb_status load_scalars(const pb_state_files *f, pb_trainer *t)
{
    pb_adamw_state state = {0};
    void *const to[PB_STATE_SCALARS] = {&state.lr, &state.step, &state.skipped, &state.guarded};
    for (size_t i = 0; i < pb_state_scalars(t); i++) {
        size_t n;
        memcpy(to[i], find(f, pb_state_scalar_names[i], &n)->x->data, 4);
    }
    PB_TRY(pb_trainer_set_lr(t, state.lr));
    return pb_upload(t->ctx, t->state, &state, sizeof state);
}

pb_status pb_state_load(const pb_state_files *f, pb_trainer *t)
{
    uint16_t *host = malloc((size_t)PB_STATE_CHUNK * sizeof *host);
    pb_status s = host ? PB_OK : pb_fail(PB_ENOMEM, "no memory to read a checkpoint");
    for (size_t i = 0; s == PB_OK && i < pb_state_kept(t); i++) {
        const pb_state_tensor x = pb_state_kept_at(t, i);
        s = load_range(f, t, &x);
    }
    if (s == PB_OK) s = load_all_weights(f, t, host);
    if (s == PB_OK) s = load_scalars(f, t);
    free(host);
    return s;
}
