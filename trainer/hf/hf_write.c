/* hf_write.c - writes a safetensors file: reads parameters in chunks, merges adapters into them if asked to, and
 * appends them to the file. */
#include "trainer/hf/hf_write.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/nf4/nf4.h"

enum { PIECE = 1 << 20 };        /* elements */
enum { SCALES_PER_GROUP = 256 }; /* of NF4 with double quantisation */

typedef struct writer {
    pb_model *m;
    pb_st_writer *file;
    void *raw;    /* [room] elements of the largest dtype: host buffer for downloaded data and for data to append */
    float *wide;  /* [room] the current chunk in f32 */
    float *a, *b; /* the adapter of the current tensor: [R,in], [out,R] */
    float *dense; /* [room + 2 groups of scales] device memory for dequantised NF4 */
    size_t room;  /* elements of the largest chunk */
} writer;

static size_t cols_of(const pb_hf_tensor *t) { return t->dims == 2 ? t->shape[1] : 1; }

pb_st_dtype pb_hf_file_dtype(const pb_hf_tensor *t)
{
    return t->p->dtype == PB_F32 || t->p->kind == PB_KIND_ADAPTER ? PB_ST_F32 : PB_ST_BF16;
}

/* Finds the adapter of a tensor: returns matrix A and stores matrix B in *b; NULL: the tensor has no adapter. */
static const pb_param *adapter(const pb_model *m, const pb_hf_tensor *t, const pb_param **b)
{
    const pb_param *p = t->p;
    if (p->kind != PB_KIND_MATRIX || t->target < 0) return NULL;
    const size_t i = (size_t)p->layer * PB_NTARGETS + (size_t)t->target;
    *b = m->lora_b[i];
    return m->lora_a[i];
}

/* ---- reading parameters from device memory ------------------------------------------------------------ */

/* Dequantises elements [first, first+n) of a parameter. It begins with a whole NF4 block, because a tensor may begin
 * inside one; with double quantisation with a whole group of scales. */
static pb_status read_nf4(const writer *w, const pb_param *p, size_t first, size_t n)
{
    const size_t block = (size_t)p->scales.block, unit = p->scales.absmax ? block : block * SCALES_PER_GROUP;
    const size_t from = first / unit * unit, all = pb_param_n(p);
    const size_t end = (first + n + block - 1) / block * block, to = end < all ? end : all;
    pb_nf4_scales s = p->scales;
    if (s.absmax) {
        s.absmax += from / block;
    } else {
        s.absmax_q += from / block;
        s.absmax2 += from / unit;
    }
    PB_TRY(pb_nf4_dequantize(
        w->m->ctx,
        &(pb_nf4_dequantize_args){.q = p->q + from / 2, .scales = s, .w = w->dense, .n = to - from, .dtype = PB_F32}));
    return pb_download(w->m->ctx, w->wide, w->dense + (first - from), n * sizeof(float));
}

/* Reads elements [first, first+n) of a parameter as f32 into out[n]: from its f32 master if it has one. Overwrites
 * w->raw. */
static pb_status read_f32(const writer *w, const pb_param *p, size_t first, size_t n, float *out)
{
    if (p->master) return pb_download(w->m->ctx, out, p->master + first, n * sizeof(float));
    if (p->dtype == PB_F32) return pb_download(w->m->ctx, out, (const float *)p->w + first, n * sizeof(float));
    PB_TRY(pb_download(w->m->ctx, w->raw, (const uint16_t *)p->w + first, n * sizeof(uint16_t)));
    for (size_t i = 0; i < n; i++) out[i] = pb_bf16_to_f32(((const uint16_t *)w->raw)[i]);
    return PB_OK;
}

static pb_status read_adapter(writer *w, const pb_param *a, const pb_param *b)
{
    free(w->a), free(w->b);
    w->a = malloc(pb_param_n(a) * sizeof(float));
    w->b = malloc(pb_param_n(b) * sizeof(float));
    if (!w->a || !w->b) return pb_fail(PB_ENOMEM, "no memory for adapter %s", a->name);
    PB_TRY(read_f32(w, a, 0, pb_param_n(a), w->a));
    return read_f32(w, b, 0, pb_param_n(b), w->b);
}

/* ---- merging adapters --------------------------------------------------------------------------------- */

/* w->wide [rows,cols] += alpha/rank B A, for `rows` rows of the tensor starting at `row`. */
static void add_adapter(const writer *w, size_t row, size_t rows, size_t cols)
{
    const size_t R = (size_t)w->m->cfg.rank;
    const float scale = w->m->cfg.alpha / (float)R;
#pragma omp parallel for
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < R; k++) {
            const float s = scale * w->b[(row + i) * R + k], *a = w->a + k * cols;
            float *y = w->wide + i * cols;
            for (size_t c = 0; c < cols; c++) y[c] += s * a[c];
        }
}

/* Converts n elements of w->wide to the file's dtype and appends them. */
static pb_status append_wide(const writer *w, pb_st_dtype t, size_t n)
{
    if (t == PB_ST_F32) return pb_st_append(w->file, w->wide, n * sizeof(float));
    for (size_t i = 0; i < n; i++) ((uint16_t *)w->raw)[i] = pb_f32_to_bf16(w->wide[i]);
    return pb_st_append(w->file, w->raw, n * sizeof(uint16_t));
}

/* ---- writing one tensor ------------------------------------------------------------------------------- */

static pb_status append_computed(writer *w, const pb_hf_tensor *t, const pb_param *a, size_t done, size_t n)
{
    const size_t cols = cols_of(t), first = t->first + done;
    PB_TRY(t->p->q ? read_nf4(w, t->p, first, n) : read_f32(w, t->p, first, n, w->wide));
    if (a) add_adapter(w, done / cols, n / cols, cols);
    return append_wide(w, pb_hf_file_dtype(t), n);
}

/* Appends elements in the parameter's own dtype, without conversion. */
static pb_status append_same(const writer *w, const pb_hf_tensor *t, size_t done, size_t n)
{
    const size_t size = pb_dtype_size(t->p->dtype);
    PB_TRY(pb_download(w->m->ctx, w->raw, (const unsigned char *)t->p->w + (t->first + done) * size, n * size));
    return pb_st_append(w->file, w->raw, n * size);
}

static pb_status append_tensor(writer *w, const pb_hf_tensor *t, bool merge)
{
    const pb_param *b = NULL, *a = merge ? adapter(w->m, t, &b) : NULL;
    const bool same = !a && !t->p->q && t->p->kind != PB_KIND_ADAPTER;
    if (t->p->q && !merge)
        return pb_fail(PB_EFORMAT, "tensor %s is in NF4 and can be exported only with the adapters merged", t->name);
    PB_TRY(pb_model_hold(w->m, t->p)); /* an adapter is in the same layer */
    if (a) PB_TRY(read_adapter(w, a, b));
    const size_t cols = cols_of(t), piece = cols < PIECE ? PIECE / cols * cols : cols;
    for (size_t done = 0; done < t->n; done += piece) {
        const size_t n = t->n - done < piece ? t->n - done : piece;
        PB_TRY(same ? append_same(w, t, done, n) : append_computed(w, t, a, done, n));
    }
    return PB_OK;
}

/* ---- writing the file --------------------------------------------------------------------------------- */

/* The order of the tensors in a file: those with larger elements come first, so that all data is aligned. */
static const pb_st_dtype order[] = {PB_ST_F32, PB_ST_BF16};

static pb_status make_room(writer *w, const pb_hf_tensor *t, size_t n)
{
    w->room = PIECE;
    for (size_t i = 0; i < n; i++) {
        const pb_param *b, *a = adapter(w->m, &t[i], &b);
        if (cols_of(&t[i]) > w->room) w->room = cols_of(&t[i]);
        if (a && pb_param_n(a) > w->room) w->room = pb_param_n(a); /* read_f32 stages the whole adapter in w->raw */
        if (a && pb_param_n(b) > w->room) w->room = pb_param_n(b);
    }
    w->raw = malloc(w->room * sizeof(float));
    w->wide = malloc(w->room * sizeof(float));
    return w->raw && w->wide ? PB_OK : pb_fail(PB_ENOMEM, "no memory to export the weights");
}

static pb_status create(writer *w, const pb_hf_tensor *t, size_t n, const char *path)
{
    pb_st_entry *e = calloc(n, sizeof *e);
    if (!e) return pb_fail(PB_ENOMEM, "%s: out of memory", path);
    size_t at = 0;
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < n; i++) {
            if (pb_hf_file_dtype(&t[i]) != order[k]) continue;
            e[at] = (pb_st_entry){.name = t[i].name, .dtype = order[k], .dims = t[i].dims};
            memcpy(e[at++].shape, t[i].shape, sizeof t[i].shape);
        }
    const pb_status s = pb_st_create(path, e, n, &(pb_st_pair){"format", "pt"}, 1, &w->file);
    free(e);
    return s;
}

static pb_status write_all(writer *w, const pb_hf_tensor *t, size_t n, bool merge, const char *path)
{
    PB_TRY(make_room(w, t, n));
    if (w->m->cfg.tuning == PB_QLORA && merge) {
        const size_t group = (size_t)SCALES_PER_GROUP * (size_t)w->m->cfg.nf4_block;
        void *dense;
        PB_TRY(pb_alloc(w->m->ctx, (w->room + 2 * group) * sizeof(float), &dense));
        w->dense = dense;
    }
    PB_TRY(create(w, t, n, path));
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < n; i++)
            if (pb_hf_file_dtype(&t[i]) == order[k]) PB_TRY(append_tensor(w, &t[i], merge));
    return PB_OK;
}

pb_status pb_hf_write(pb_model *m, const pb_hf_tensor *t, size_t n, bool merge, const char *path)
{
    writer w = {.m = m};
    pb_status s = write_all(&w, t, n, merge, path);
    if (s == PB_OK) s = pb_st_commit(w.file);
    else pb_st_abandon(w.file);
    pb_release(m->ctx, w.dense);
    free(w.raw), free(w.wide), free(w.a), free(w.b);
    return s;
}
