/* replay.c - reads a capture, runs its calls again, and compares their outputs. */
#include "trainer/capture/replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "os/text.h"
#include "trainer/capture/file.h"

typedef struct recorded {
    const pb_op *op;
    pb_backend_id backend; /* that captured */
    const char *impl;      /* name in the list of that backend */
    const char *numbers;
    pb_dtype dtype;
    pb_dims dim;
    bool addresses[PB_MAX_BOUND]; /* tensors that are not in the file */
    char text[3 * PB_CAPTURE_TEXT];
} recorded;

struct pb_captured {
    const char *path; /* of the caller */
    pb_safetensors *f;
    int calls;
    recorded call[PB_CAPTURE_CALLS];
};

/* ---- reading ------------------------------------------------------------------------------------------------- */

/* Prefixes the message of a failure with the path, unless it begins with it. */
static pb_status of_file(const pb_captured *r, pb_status s)
{
    char why[300];
    if (s == PB_OK) return s;
    snprintf(why, sizeof why, "%s", pb_error());
    return pb_fail(s, "%s: %s", r->path, why);
}

static const char *text_of(const pb_captured *r, int call, pb_capture_call_text which)
{
    char key[32];
    snprintf(key, sizeof key, "%d.%s", call, pb_capture_call_names[which]);
    return pb_st_metadata(r->f, key);
}

static pb_status check_head(pb_captured *r)
{
    const char *format = pb_st_metadata(r->f, "format"), *calls = pb_st_metadata(r->f, "calls");
    char *end = NULL;
    if (!format || strcmp(format, PB_CAPTURE_FORMAT) != 0)
        return pb_fail(PB_EINVAL, "not a capture: its metadata do not say format '%s'", PB_CAPTURE_FORMAT);
    const long n = calls ? strtol(calls, &end, 10) : -1;
    if (!end || *end || n < 0 || n > PB_CAPTURE_CALLS)
        return pb_fail(PB_EINVAL, "the capture's number of calls is '%.40s', need 0 to %d", calls ? calls : "",
                       PB_CAPTURE_CALLS);
    r->calls = (int)n;
    for (int i = 0; i < r->calls; i++)
        for (int k = 0; k < PB_CALL_TEXTS; k++) {
            const char *text = text_of(r, i, (pb_capture_call_text)k);
            if (!text || strlen(text) >= PB_CAPTURE_TEXT || !pb_is_printable(text))
                return pb_fail(PB_EINVAL, "call %d of the capture has no usable '%s'", i, pb_capture_call_names[k]);
        }
    return PB_OK;
}

static pb_status check_sum(const pb_captured *r)
{
    const char *want = pb_st_metadata(r->f, "checksum");
    char got[PB_CAPTURE_DIGITS];
    uint64_t sum = 0;
    for (int k = 0; k < PB_CAPTURE_NOTES; k++) {
        const char *note = pb_st_metadata(r->f, pb_capture_note_names[k]);
        sum = pb_capture_add_text(sum, note ? note : "");
    }
    for (int i = 0; i < r->calls; i++)
        for (int k = 0; k < PB_CALL_TEXTS; k++) sum = pb_capture_add_text(sum, text_of(r, i, (pb_capture_call_text)k));
    for (size_t i = 0; i < pb_st_count(r->f); i++) {
        const pb_st_tensor *t = pb_st_at(r->f, i);
        if (t->dims != 2) return pb_fail(PB_EINVAL, "tensor %.80s has %d dimensions, need 2", t->name, t->dims);
        sum = pb_capture_add_tensor(sum, t->name, t->dtype, t->shape, t->data, t->bytes);
    }
    snprintf(got, sizeof got, "%016llx", (unsigned long long)sum);
    if (want && strcmp(want, got) == 0) return PB_OK;
    return pb_fail(PB_EINVAL, "damaged: its checksum is %s, but it says %.40s", got, want ? want : "none");
}

/* Finds the backend and the implementation that a name such as "cpu.avx2" means. */
static pb_status find_impl(recorded *c, const char *text)
{
    const char *dot = strchr(text, '.');
    for (int be = 0; dot && be < PB_NBACKENDS; be++) {
        const char *name = pb_backend_name((pb_backend_id)be);
        if (strlen(name) != (size_t)(dot - text) || strncmp(name, text, strlen(name)) != 0) continue;
        c->backend = (pb_backend_id)be;
        c->impl = dot + 1;
        return PB_OK;
    }
    return pb_fail(PB_EINVAL, "%s: '%.80s' is not a backend and an implementation", c->op->name, text);
}

static pb_status find_dtype(recorded *c, const char *text)
{
    for (int t = 0; t < PB_NFLOAT; t++) {
        c->dtype = (pb_dtype)t;
        if (strcmp(text, pb_dtype_name(c->dtype)) == 0) return PB_OK;
    }
    return pb_fail(PB_EINVAL, "%s: dtype '%.40s' is not that of an op", c->op->name, text);
}

/* Returns the tensor of call `call` before or after it; NULL: not in the file. */
static const pb_st_tensor *tensor_of(const pb_captured *r, int call, const char *when, const pb_bound *t)
{
    char name[PB_CAPTURE_TEXT];
    snprintf(name, sizeof name, "%d/%s/%s", call, when, t->name);
    return pb_st_find(r->f, name);
}

/* The file must have this tensor with the op's shape and type. */
static pb_status check_tensor(const pb_captured *r, int call, const char *when, const pb_bound *t, size_t *found)
{
    const pb_st_tensor *x = tensor_of(r, call, when, t);
    if (!x) return pb_fail(PB_EINVAL, "tensor %d/%s/%s is missing", call, when, t->name);
    ++*found;
    if (x->dtype == pb_capture_st_dtype(t->dtype) && x->shape[0] == t->rows && x->shape[1] == t->cols) return PB_OK;
    return pb_fail(PB_EINVAL, "tensor %s is %s [%zu,%zu], but %s needs %s [%zu,%zu]", x->name,
                   pb_st_dtype_name(x->dtype), x->shape[0], x->shape[1], r->call[call].text,
                   pb_st_dtype_name(pb_capture_st_dtype(t->dtype)), t->rows, t->cols);
}

/* Compares the tensors of the file with those of the op's bind, without memory for them. */
static pb_status check_tensors(pb_captured *r, int call, pb_ctx *plan, size_t *found)
{
    recorded *c = &r->call[call];
    pb_call planned;
    PB_TRY(pb_call_bind(plan, c->op, c->dim, c->dtype, &planned));
    pb_status s = pb_call_set_numbers(&planned, c->numbers);
    for (int k = 0; s == PB_OK && k < planned.b.n; k++) {
        const pb_bound *t = &planned.b.t[k];
        c->addresses[k] = pb_bound_has_addresses(&planned.b, k);
        if (c->addresses[k]) continue;
        if (t->role != PB_ROLE_OUT) s = check_tensor(r, call, "before", t, found);
        if (s == PB_OK && t->role != PB_ROLE_IN) s = check_tensor(r, call, "after", t, found);
    }
    pb_call_unbind(&planned);
    return s;
}

static pb_status check_call(pb_captured *r, int call, size_t most, size_t *found)
{
    recorded *c = &r->call[call];
    const char *text[PB_CALL_TEXTS];
    pb_ctx plan;
    for (int k = 0; k < PB_CALL_TEXTS; k++) text[k] = text_of(r, call, (pb_capture_call_text)k);
    c->op = pb_op_find(text[PB_CALL_op]);
    if (!c->op) return pb_fail(PB_EINVAL, "there is no op '%.80s'", text[PB_CALL_op]);
    c->numbers = text[PB_CALL_numbers];
    PB_TRY(find_impl(c, text[PB_CALL_implementation]));
    PB_TRY(find_dtype(c, text[PB_CALL_dtype]));
    PB_TRY(pb_call_parse_shape(c->op, text[PB_CALL_shape], c->dim));
    PB_TRY(pb_call_check_shape(c->op, c->dim, most));
    snprintf(c->text, sizeof c->text, "%s %s %s%s%s, %s", c->op->name, text[PB_CALL_dtype], text[PB_CALL_shape],
             *c->numbers ? " " : "", c->numbers, text[PB_CALL_implementation]);
    PB_TRY(pb_ctx_open_plan(&plan, PB_CPU));
    const pb_status s = check_tensors(r, call, &plan, found);
    pb_ctx_close(&plan);
    return s;
}

static pb_status check_calls(pb_captured *r)
{
    size_t most = 0, found = 0;
    for (size_t i = 0; i < pb_st_count(r->f); i++) {
        const pb_st_tensor *t = pb_st_at(r->f, i);
        most += t->bytes;
        found += strncmp(t->name, "extra/", 6) == 0;
    }
    for (int i = 0; i < r->calls; i++) PB_TRY(check_call(r, i, most, &found));
    if (found == pb_st_count(r->f)) return PB_OK;
    return pb_fail(PB_EINVAL, "%zu of its tensors belong to no call", pb_st_count(r->f) - found);
}

pb_status pb_captured_open(const char *path, pb_captured **out)
{
    pb_captured *r = calloc(1, sizeof *r);
    if (!r) return pb_fail(PB_ENOMEM, "%s: out of memory", path);
    r->path = path;
    pb_status s = pb_st_open(path, &r->f);
    if (s == PB_OK) s = of_file(r, check_head(r));
    if (s == PB_OK) s = of_file(r, check_sum(r));
    if (s == PB_OK) s = of_file(r, check_calls(r));
    if (s == PB_OK) *out = r;
    else pb_captured_close(r);
    return s;
}

void pb_captured_close(pb_captured *r)
{
    if (!r) return;
    pb_st_close(r->f);
    free(r);
}

int pb_captured_calls(const pb_captured *r) { return r->calls; }
const pb_op *pb_captured_op(const pb_captured *r, int call) { return r->call[call].op; }
const char *pb_captured_text(const pb_captured *r, int call) { return r->call[call].text; }
const char *pb_captured_note(const pb_captured *r, pb_capture_key key)
{
    return pb_st_metadata(r->f, pb_capture_note_names[key]);
}

/* ---- comparing ----------------------------------------------------------------------------------------------- */

/* True if exactly one of a and b is finite, or both are not, and differ. NaN equals NaN. */
static bool kinds_differ(double a, double b)
{
    if (isfinite(a) || isfinite(b)) return isfinite(a) != isfinite(b);
    return isnan(a) != isnan(b) || (!isnan(a) && a != b);
}

void pb_replay_compare(const void *captured, const void *now, pb_dtype dtype, pb_replay_row *row)
{
    const size_t n = row->rows * row->cols;
    double diff = 0, norm = 0, max = 0;
    size_t moved = n, special = n, both = 0; /* moved, special: the first such elements */
    row->captured = row->now = row->moved = 0;
    for (size_t i = 0; i < n; i++) {
        const double a = pb_load(captured, i, dtype), b = pb_load(now, i, dtype), d = fabs(a - b);
        row->captured += !isfinite(a);
        row->now += !isfinite(b);
        if (special == n && !(isfinite(a) && isfinite(b))) special = i;
        if (kinds_differ(a, b) && row->moved++ == 0) moved = i;
        if (!isfinite(a) || !isfinite(b)) continue;
        both++;
        diff += d * d;
        norm += a * a;
        if (d > max) max = d;
    }
    row->first = moved < n ? moved : special;
    row->rel = sqrt(diff / (norm > 0 ? norm : 1));
    row->max = norm > 0 ? max / sqrt(norm / (double)both) : max;
    row->same_bits = memcmp(captured, now, n * pb_dtype_size(dtype)) == 0;
    row->agrees = row->moved == 0 && row->rel <= row->bound && row->max <= 100 * row->bound;
}

/* ---- running ------------------------------------------------------------------------------------------------- */

static pb_status restore(const pb_captured *r, int call, pb_call *c)
{
    for (int k = 0; k < c->b.n; k++) {
        const pb_bound *t = &c->b.t[k];
        if (t->role == PB_ROLE_OUT || r->call[call].addresses[k]) continue;
        PB_TRY(pb_bound_set(&c->b, k, tensor_of(r, call, "before", t)->data));
    }
    return pb_call_set_numbers(c, r->call[call].numbers);
}

static bool has(const pb_op *op, pb_backend_id backend, const char *name)
{
    for (const pb_impl *i = op->impls[backend]; i->name; i++)
        if (strcmp(i->name, name) == 0) return true;
    return false;
}

/* Runs the call, and returns the implementation that ran. */
static pb_status run(const recorded *from, pb_call *c, const char *impl, const pb_impl **ran)
{
    pb_ctx *ctx = c->b.ctx;
    const char *const only = ctx->impl, *const prefer = ctx->prefer;
    if (impl && has(c->op, ctx->id, impl)) ctx->impl = impl;
    else if (!impl && from->backend == ctx->id) ctx->prefer = from->impl;
    *ran = pb_op_pick(ctx, c->op, c->args);
    pb_status s = pb_op_run(ctx, c->op, c->args);
    if (s == PB_OK) s = pb_sync(ctx);
    if (s == PB_OK) s = pb_check_guards(&c->b);
    ctx->impl = only, ctx->prefer = prefer;
    return s;
}

static pb_status compare(const pb_captured *r, int call, const pb_call *c, const pb_impl *ran, pb_replay_row *rows,
                         int *n)
{
    const recorded *from = &r->call[call];
    const bool exact = strcmp(ran->name, "ref") == 0 || strcmp(from->impl, "ref") == 0;
    for (int k = *n = 0; k < c->b.n; k++) {
        const pb_bound *t = &c->b.t[k];
        if (t->role == PB_ROLE_IN || from->addresses[k]) continue;
        pb_replay_row *row = &rows[(*n)++];
        *row = (pb_replay_row){.call = call,
                               .tensor = t->name,
                               .impl = ran->name,
                               .rows = t->rows,
                               .cols = t->cols,
                               .bound = (exact ? 1 : 2) * c->op->tol[from->dtype]};
        const size_t bytes = t->rows * t->cols * pb_dtype_size(t->dtype);
        unsigned char *now = malloc(bytes + 1), *was = malloc(bytes + 1);
        pb_status s = now && was ? pb_bound_get(&c->b, k, now)
                                 : pb_fail(PB_ENOMEM, "%s: no memory for tensor %s", c->op->name, t->name);
        if (s == PB_OK) {
            memcpy(was, tensor_of(r, call, "after", t)->data, bytes); /* the file's data may be unaligned */
            pb_replay_compare(was, now, t->dtype, row);
        }
        free(now);
        free(was);
        PB_TRY(s);
    }
    return PB_OK;
}

pb_status pb_captured_replay(const pb_captured *r, int call, pb_ctx *ctx, const char *impl, pb_replay_row *rows, int *n)
{
    const recorded *from = &r->call[call];
    const pb_impl *ran;
    pb_call c;
    PB_TRY(pb_call_bind(ctx, from->op, from->dim, from->dtype, &c));
    pb_status s = restore(r, call, &c);
    if (s == PB_OK) s = run(from, &c, impl, &ran);
    if (s == PB_OK) s = compare(r, call, &c, ran, rows, n);
    pb_call_unbind(&c);
    return s;
}
