/* capture.c - collects the calls and tensors of a capture in host memory, and writes its file. */
#include "trainer/capture/capture.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "trainer/capture/file.h"

/* A tensor of the file. */
typedef struct item {
    char name[PB_CAPTURE_TEXT];
    pb_dtype dtype;
    size_t shape[2], bytes;
    void *data; /* owned */
} item;

struct pb_capture {
    size_t limit, bytes;
    char note[PB_CAPTURE_NOTES][PB_CAPTURE_TEXT];
    char call[PB_CAPTURE_CALLS][PB_CALL_TEXTS][PB_CAPTURE_TEXT];
    int calls, items, room;
    item *item; /* [items] */
};

const char *const pb_capture_call_names[PB_CALL_TEXTS] = {
#define X(name) #name,
    PB_CAPTURE_CALL_MAP(X)
#undef X
};
const char *const pb_capture_note_names[PB_CAPTURE_NOTES] = {
#define X(key, what) #key,
    PB_CAPTURE_NOTE_MAP(X)
#undef X
};

pb_st_dtype pb_capture_st_dtype(pb_dtype t)
{
    static const pb_st_dtype types[PB_NDTYPES] = {
        [PB_F32] = PB_ST_F32, [PB_BF16] = PB_ST_BF16, [PB_I32] = PB_ST_I32, [PB_U8] = PB_ST_U8};
    return types[t];
}

static uint64_t add_bytes(uint64_t sum, const void *bytes, size_t n)
{
    const uint64_t both[2] = {sum, pb_checksum(bytes, n)};
    return pb_checksum(both, sizeof both);
}

uint64_t pb_capture_add_text(uint64_t sum, const char *text) { return add_bytes(sum, text, strlen(text)); }

uint64_t pb_capture_add_tensor(uint64_t sum, const char *name, pb_st_dtype t, const size_t shape[2], const void *data,
                               size_t bytes)
{
    const uint64_t head[3] = {(uint64_t)t, shape[0], shape[1]};
    sum = add_bytes(pb_capture_add_text(sum, name), head, sizeof head);
    return add_bytes(sum, data, bytes);
}

/* ---- collecting ---------------------------------------------------------------------------------------------- */

pb_status pb_capture_open(size_t limit, pb_capture **out)
{
    pb_capture *c = calloc(1, sizeof *c);
    if (!c) return pb_fail(PB_ENOMEM, "capture: out of memory");
    c->limit = limit;
    *out = c;
    return PB_OK;
}

void pb_capture_close(pb_capture *c)
{
    if (!c) return;
    for (int i = 0; i < c->items; i++) free(c->item[i].data);
    free(c->item);
    free(c);
}

pb_status pb_capture_note(pb_capture *c, pb_capture_key key, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    const int n = vsnprintf(c->note[key], sizeof c->note[key], format, ap);
    va_end(ap);
    if (n >= 0 && n < PB_CAPTURE_TEXT) return PB_OK;
    return pb_fail(PB_EINVAL, "capture: the note '%s' is longer than %d bytes", pb_capture_note_names[key],
                   PB_CAPTURE_TEXT - 1);
}

/* Adds a tensor with memory for its data, which the caller fills. */
static pb_status add(pb_capture *c, const char *name, pb_dtype dtype, size_t rows, size_t cols, item **out)
{
    const size_t bytes = rows * cols * pb_dtype_size(dtype);
    if (bytes > c->limit || c->bytes > c->limit - bytes)
        return pb_fail(PB_EINVAL, "capture: with tensor %s it would have %zu bytes, more than its limit of %zu", name,
                       c->bytes + bytes, c->limit);
    if (c->items == c->room) {
        const int room = 2 * c->room + 8;
        item *more = realloc(c->item, (size_t)room * sizeof *more);
        if (!more) return pb_fail(PB_ENOMEM, "capture: no memory for %d tensors", room);
        c->item = more, c->room = room;
    }
    item *i = &c->item[c->items];
    *i = (item){.dtype = dtype, .shape = {rows, cols}, .bytes = bytes, .data = malloc(bytes + 1)};
    if (!i->data) return pb_fail(PB_ENOMEM, "capture: no memory for %zu bytes of tensor %s", bytes, name);
    snprintf(i->name, sizeof i->name, "%s", name);
    c->items++;
    c->bytes += bytes;
    *out = i;
    return PB_OK;
}

pb_status pb_capture_extra(pb_capture *c, pb_ctx *ctx, const char *name, const void *device, size_t rows, size_t cols,
                           pb_dtype dtype)
{
    char full[PB_CAPTURE_TEXT];
    item *i;
    snprintf(full, sizeof full, "extra/%s", name);
    PB_TRY(add(c, full, dtype, rows, cols, &i));
    return pb_download(ctx, i->data, device, i->bytes);
}

/* Adds the tensors of a call that are not of role `not`. */
static pb_status add_bound(pb_capture *c, const pb_call *call, const char *when, pb_role not )
{
    pb_ctx plan;
    pb_call planned = {0};
    PB_TRY(pb_ctx_open_plan(&plan, call->b.ctx->id));
    pb_status s = pb_call_bind(&plan, call->op, call->dim, call->b.dtype, &planned);
    for (int k = 0; s == PB_OK && k < call->b.n; k++) {
        const pb_bound *t = &call->b.t[k];
        char name[PB_CAPTURE_TEXT];
        item *i;
        if (t->role == not || pb_bound_has_addresses(&planned.b, k)) continue;
        snprintf(name, sizeof name, "%d/%s/%s", c->calls, when, t->name);
        s = add(c, name, t->dtype, t->rows, t->cols, &i);
        if (s == PB_OK) s = pb_bound_get(&call->b, k, i->data);
    }
    pb_call_unbind(&planned);
    pb_ctx_close(&plan);
    return s;
}

pb_status pb_capture_before(pb_capture *c, const pb_call *call)
{
    if (c->calls == PB_CAPTURE_CALLS) return pb_fail(PB_EINVAL, "capture: more than %d calls", PB_CAPTURE_CALLS);
    char(*text)[PB_CAPTURE_TEXT] = c->call[c->calls];
    snprintf(text[PB_CALL_op], PB_CAPTURE_TEXT, "%s", call->op->name);
    snprintf(text[PB_CALL_dtype], PB_CAPTURE_TEXT, "%s", pb_dtype_name(call->b.dtype));
    pb_dims_text(call->op, call->dim, text[PB_CALL_shape], PB_CAPTURE_TEXT);
    pb_call_numbers_text(call, text[PB_CALL_numbers]);
    return add_bound(c, call, "before", PB_ROLE_OUT);
}

pb_status pb_capture_after(pb_capture *c, const pb_call *call, const pb_impl *impl)
{
    snprintf(c->call[c->calls][PB_CALL_implementation], PB_CAPTURE_TEXT, "%s.%s", pb_backend_name(call->b.ctx->id),
             impl->name);
    PB_TRY(add_bound(c, call, "after", PB_ROLE_IN));
    c->calls++;
    return PB_OK;
}

pb_status pb_capture_run(pb_capture *c, pb_call *call)
{
    pb_ctx *ctx = call->b.ctx;
    const pb_impl *impl = pb_op_pick(ctx, call->op, call->args);
    PB_TRY(pb_capture_before(c, call));
    PB_TRY(pb_op_run(ctx, call->op, call->args));
    PB_TRY(pb_sync(ctx));
    return pb_capture_after(c, call, impl); /* not NULL: the call has run */
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) { return strcmp(((const item *)a)->name, ((const item *)b)->name); }

enum { PAIRS = 3 + PB_CAPTURE_NOTES + PB_CAPTURE_CALLS * PB_CALL_TEXTS };
typedef struct texts {
    pb_st_pair pair[PAIRS];
    size_t n;
    char key[PB_CAPTURE_CALLS][PB_CALL_TEXTS][32];
    char calls[16], sum[PB_CAPTURE_DIGITS];
} texts;

/* Fills the metadata and the checksum of a capture whose tensors are sorted. */
static void describe(pb_capture *c, texts *t)
{
    uint64_t sum = 0;
    t->n = 0;
    snprintf(t->calls, sizeof t->calls, "%d", c->calls);
    t->pair[t->n++] = (pb_st_pair){"format", PB_CAPTURE_FORMAT};
    t->pair[t->n++] = (pb_st_pair){"calls", t->calls};
    for (int k = 0; k < PB_CAPTURE_NOTES; k++) {
        sum = pb_capture_add_text(sum, c->note[k]);
        if (*c->note[k]) t->pair[t->n++] = (pb_st_pair){pb_capture_note_names[k], c->note[k]};
    }
    for (int i = 0; i < c->calls; i++)
        for (int k = 0; k < PB_CALL_TEXTS; k++) {
            sum = pb_capture_add_text(sum, c->call[i][k]);
            snprintf(t->key[i][k], sizeof t->key[i][k], "%d.%s", i, pb_capture_call_names[k]);
            t->pair[t->n++] = (pb_st_pair){t->key[i][k], c->call[i][k]};
        }
    for (int i = 0; i < c->items; i++) {
        const item *x = &c->item[i];
        sum = pb_capture_add_tensor(sum, x->name, pb_capture_st_dtype(x->dtype), x->shape, x->data, x->bytes);
    }
    snprintf(t->sum, sizeof t->sum, "%016llx", (unsigned long long)sum);
    t->pair[t->n++] = (pb_st_pair){"checksum", t->sum};
}

pb_status pb_capture_write(pb_capture *c, const pb_disk *disk, const char *path)
{
    texts *t = calloc(1, sizeof *t);
    pb_st_entry *e = calloc((size_t)c->items + 1, sizeof *e);
    pb_st_writer *w = NULL;
    pb_status s = t && e ? PB_OK : pb_fail(PB_ENOMEM, "%s: out of memory", path);
    if (c->items) qsort(c->item, (size_t)c->items, sizeof *c->item, by_name);
    for (int i = 0; s == PB_OK && i < c->items; i++)
        e[i] = (pb_st_entry){.name = c->item[i].name,
                             .dtype = pb_capture_st_dtype(c->item[i].dtype),
                             .dims = 2,
                             .shape = {c->item[i].shape[0], c->item[i].shape[1]}};
    if (s == PB_OK) {
        describe(c, t);
        s = pb_st_create_on(disk, path, e, (size_t)c->items, t->pair, t->n, &w);
    }
    for (int i = 0; s == PB_OK && i < c->items; i++) s = pb_st_append(w, c->item[i].data, c->item[i].bytes);
    if (s == PB_OK) s = pb_st_commit(w);
    else pb_st_abandon(w);
    free(t);
    free(e);
    return s;
}
