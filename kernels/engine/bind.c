/* bind.c - makes the tensors of an op (seeded inputs, poisoned outputs, guard words before and after each), and
 * compares the outputs of two runs. */
#include "kernels/engine/bind.h"

#include <math.h>
#include <sanitizer/asan_interface.h> /* its macros do nothing without AddressSanitizer */
#include <stdlib.h>
#include <string.h>

enum {
    GUARD = 2048,
    POISON_BYTE = 0x7f
}; /* GUARD: bytes before and after a tensor; 512 f32, so that a whole row at
                                              index -1 is caught */

/* Fills the guard before or after a tensor with words that reveal reads as well as writes. A third are NaN as f32 and
 * as bf16: a result that used one becomes NaN. A third are -0: adding +0.0 to it gives +0, so even that write is found.
 * A third are small integers, which are subnormal floats: a kernel that adds 0 and flushes subnormals changes them. */
static void put_guard(unsigned char *at)
{
    for (uint32_t i = 0; i < GUARD / sizeof i; i++) {
        const uint32_t word = i % 3 == 0 ? 0xffc1ffc1u : i % 3 == 1 ? i : 0x80000000u;
        memcpy(at + i * sizeof word, &word, sizeof word);
    }
}

static bool guard_kept(const unsigned char *at)
{
    unsigned char want[GUARD];
    put_guard(want);
    return memcmp(at, want, GUARD) == 0;
}

/* Lets AddressSanitizer report reads and writes of a tensor's guards, or no longer. */
static void forbid_guards(const pb_ctx *ctx, const pb_bound *t, size_t bytes, bool forbid)
{
    unsigned char *before = (unsigned char *)t->p - GUARD, *after = (unsigned char *)t->p + bytes;
    if (ctx->id != PB_CPU || ctx->planning) return;
    if (forbid) {
        ASAN_POISON_MEMORY_REGION(before, GUARD);
        ASAN_POISON_MEMORY_REGION(after, GUARD);
    } else {
        ASAN_UNPOISON_MEMORY_REGION(before, bytes + 2 * GUARD);
    }
}

double pb_uniform(uint64_t seed, uint64_t i)
{
    uint64_t x = seed * 0xd1342543de82ef95u + i + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

static size_t span(const pb_bound *t) { return t->rows ? (t->rows - 1) * t->ld + t->cols : 0; }
static size_t span_bytes(const pb_bound *t) { return span(t) * pb_dtype_size(t->dtype); }

uint64_t pb_checksum(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = 1469598103934665603u, word = 0;
    for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * 1099511628211u;
    }
    for (; n; n--) h = (h ^ *p++) * 1099511628211u;
    return h;
}

/* A checksum of an input, for this process only: of blocks, so that all threads compute it. */
static uint64_t input_sum(const unsigned char *bytes, size_t n)
{
    enum { BLOCK = 1 << 20 };
    uint64_t sum = n;
#pragma omp parallel for reduction(^ : sum)
    for (size_t at = 0; at < n; at += BLOCK)
        sum ^= pb_checksum(bytes + at, n - at < BLOCK ? n - at : BLOCK) * (2 * at + 1);
    return sum;
}

static void poison(const pb_bound *t, unsigned char *host)
{
    if (t->dtype == PB_F32 || t->dtype == PB_BF16) {
#pragma omp parallel for
        for (size_t i = 0; i < span(t); i++) pb_store(host, i, t->dtype, (double)NAN);
    } else {
        memset(host, POISON_BYTE, span_bytes(t));
    }
}

static void seed_values(const pb_bound *t, uint64_t seed, unsigned char *host)
{
    bool whole = t->dtype == PB_I32 || t->dtype == PB_U8;
#pragma omp parallel for collapse(2) /* columns too, because most tensors have a single row */
    for (size_t r = 0; r < t->rows; r++)
        for (size_t c = 0; c < t->cols; c++) {
            double v = t->lo + (t->hi - t->lo) * pb_uniform(seed, r * t->cols + c);
            pb_store(host, r * t->ld + c, t->dtype, whole ? floor(v) : v);
        }
}

/* Uploads the initial values of tensor k and its guards. */
static pb_status fill(pb_binder *b, int k)
{
    pb_bound *t = &b->t[k];
    size_t bytes = span_bytes(t);
    unsigned char *host = malloc(bytes + 2 * GUARD);
    if (!host) return pb_fail(PB_ENOMEM, "bind: no host memory for tensor %s of %zu bytes", t->name, bytes);
    put_guard(host);
    put_guard(host + GUARD + bytes);
    if (t->role == PB_ROLE_OUT || t->ld > t->cols) poison(t, host + GUARD);
    if (t->raw) memcpy(host + GUARD, t->raw, bytes);
    else if (t->role != PB_ROLE_OUT) seed_values(t, b->seed + 0x1000u * (uint64_t)(k + 1), host + GUARD);
    if (t->role == PB_ROLE_IN) t->sum = input_sum(host + GUARD, bytes);
    forbid_guards(b->ctx, t, bytes, false);
    pb_status s = pb_upload(b->ctx, (unsigned char *)t->p - GUARD, host, bytes + 2 * GUARD);
    forbid_guards(b->ctx, t, bytes, true);
    free(host);
    return s;
}

static void *bound(pb_binder *b, pb_bound t)
{
    void *p = NULL;
    if (b->status != PB_OK) return NULL;
    if (b->n == PB_MAX_BOUND) {
        b->status = pb_fail(PB_EINVAL, "bind: an op binds more than %d tensors (PB_MAX_BOUND)", PB_MAX_BOUND);
        return NULL;
    }
    b->status = pb_alloc(b->ctx, span_bytes(&t) + 2 * GUARD, &p);
    if (b->status != PB_OK) return NULL;
    t.p = (unsigned char *)p + GUARD;
    b->t[b->n++] = t;
    if (!b->ctx->planning) b->status = fill(b, b->n - 1); /* on failure pb_unbind still frees the tensor */
    return t.p;
}

const void *pb_in(pb_binder *b, const char *name, pb_dtype dtype, size_t n)
{
    return pb_in_range(b, name, dtype, n, -1, 1);
}

const void *pb_in_range(pb_binder *b, const char *name, pb_dtype dtype, size_t n, double lo, double hi)
{
    return bound(
        b, (pb_bound){
               .name = name, .rows = 1, .cols = n, .ld = n, .dtype = dtype, .role = PB_ROLE_IN, .lo = lo, .hi = hi});
}

const void *pb_in_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld)
{
    return bound(
        b,
        (pb_bound){
            .name = name, .rows = rows, .cols = cols, .ld = ld, .dtype = dtype, .role = PB_ROLE_IN, .lo = -1, .hi = 1});
}

void *pb_out(pb_binder *b, const char *name, pb_dtype dtype, size_t n) { return pb_out_ld(b, name, dtype, 1, n, n); }

void *pb_out_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld)
{
    return bound(b,
                 (pb_bound){.name = name, .rows = rows, .cols = cols, .ld = ld, .dtype = dtype, .role = PB_ROLE_OUT});
}

float *pb_out_log(pb_binder *b, const char *name, size_t n)
{
    return bound(
        b, (pb_bound){.name = name, .rows = 1, .cols = n, .ld = n, .dtype = PB_F32, .role = PB_ROLE_OUT, .log = true});
}

void *pb_inout(pb_binder *b, const char *name, pb_dtype dtype, size_t n, double lo, double hi)
{
    return bound(
        b, (pb_bound){
               .name = name, .rows = 1, .cols = n, .ld = n, .dtype = dtype, .role = PB_ROLE_INOUT, .lo = lo, .hi = hi});
}

void *pb_inout_ld(pb_binder *b, const char *name, pb_dtype dtype, size_t rows, size_t cols, size_t ld)
{
    return bound(b, (pb_bound){.name = name,
                               .rows = rows,
                               .cols = cols,
                               .ld = ld,
                               .dtype = dtype,
                               .role = PB_ROLE_INOUT,
                               .lo = -1,
                               .hi = 1});
}

static void *bound_raw(pb_binder *b, const char *name, const void *bytes, size_t n, pb_role role)
{
    void *raw = malloc(n + 1);
    if (!raw) {
        if (b->status == PB_OK)
            b->status = pb_fail(PB_ENOMEM, "bind: no host memory for tensor %s of %zu bytes", name, n);
        return NULL;
    }
    memcpy(raw, bytes, n);
    void *p =
        bound(b, (pb_bound){.name = name, .rows = 1, .cols = n, .ld = n, .dtype = PB_U8, .role = role, .raw = raw});
    if (!p) free(raw);
    return p;
}

const void *pb_in_raw(pb_binder *b, const char *name, const void *bytes, size_t n)
{
    return bound_raw(b, name, bytes, n, PB_ROLE_IN);
}

void *pb_inout_raw(pb_binder *b, const char *name, const void *bytes, size_t n)
{
    return bound_raw(b, name, bytes, n, PB_ROLE_INOUT);
}

void pb_unbind(pb_binder *b)
{
    while (b->n) {
        pb_bound *t = &b->t[--b->n];
        forbid_guards(b->ctx, t, span_bytes(t), false);
        pb_release(b->ctx, (unsigned char *)t->p - GUARD);
        free(t->raw);
    }
}

pb_status pb_rebind(pb_binder *b)
{
    for (int k = 0; k < b->n; k++) PB_TRY(fill(b, k));
    return PB_OK;
}

pb_bound *pb_find_bound(pb_binder *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (strcmp(b->t[i].name, name) == 0) return &b->t[i];
    return NULL;
}

/* Downloads n bytes from dev into a new buffer; the caller frees *out. */
static pb_status fetch(pb_ctx *ctx, const void *dev, size_t n, unsigned char **out)
{
    unsigned char *host = malloc(n + 1);
    if (!host) return pb_fail(PB_ENOMEM, "compare: no host memory for %zu bytes", n);
    pb_status s = pb_download(ctx, host, dev, n);
    if (s != PB_OK) {
        free(host);
        return s;
    }
    *out = host;
    return PB_OK;
}

/* Copies the elements of a tensor between packed rows and rows that are t->ld elements apart. */
static void copy_rows(const pb_bound *t, unsigned char *packed, unsigned char *apart, bool pack)
{
    const size_t e = pb_dtype_size(t->dtype), row = t->cols * e;
    for (size_t r = 0; r < t->rows && row; r++) {
        if (pack) memcpy(packed + r * row, apart + r * t->ld * e, row);
        else memcpy(apart + r * t->ld * e, packed + r * row, row);
    }
}

pb_status pb_bound_get(const pb_binder *b, int k, void *host)
{
    const pb_bound *t = &b->t[k];
    unsigned char *all;
    PB_TRY(fetch(b->ctx, t->p, span_bytes(t), &all));
    copy_rows(t, host, all, true);
    free(all);
    return PB_OK;
}

pb_status pb_bound_set(pb_binder *b, int k, const void *host)
{
    pb_bound *t = &b->t[k];
    unsigned char *all;
    PB_TRY(fetch(b->ctx, t->p, span_bytes(t), &all)); /* for the gaps */
    copy_rows(t, (void *)host, all, false);
    t->sum = input_sum(all, span_bytes(t));
    const pb_status s = pb_upload(b->ctx, t->p, all, span_bytes(t));
    free(all);
    return s;
}

bool pb_bound_has_addresses(const pb_binder *b, int k)
{
    const pb_bound *t = &b->t[k];
    for (size_t at = 0; t->raw && at + sizeof(uintptr_t) <= span_bytes(t); at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (const unsigned char *)t->raw + at, sizeof word);
        for (int i = 0; i < b->n; i++)
            if (i != k && word - (uintptr_t)b->t[i].p <= span_bytes(&b->t[i])) return true;
    }
    return false;
}

pb_status pb_copy_inputs(pb_binder *to, const pb_binder *from)
{
    for (int k = 0; k < from->n; k++) {
        unsigned char *fetched = NULL;
        size_t bytes = span_bytes(&from->t[k]);
        if (from->t[k].role == PB_ROLE_OUT || from->t[k].raw) continue;
        if (from->ctx->id != PB_CPU) PB_TRY(fetch(from->ctx, from->t[k].p, bytes, &fetched));
        const unsigned char *host = fetched ? fetched : from->t[k].p; /* tensors of a CPU are host memory */
        to->t[k].sum = input_sum(host, bytes);
        pb_status s = to == from ? PB_OK : pb_upload(to->ctx, to->t[k].p, host, bytes);
        free(fetched);
        PB_TRY(s);
    }
    return PB_OK;
}

static bool gaps_untouched(const pb_bound *t, const unsigned char *host)
{
    for (size_t r = 0; r + 1 < t->rows; r++)
        for (size_t c = t->cols; c < t->ld; c++)
            if (!isnan(pb_load(host, r * t->ld + c, t->dtype))) return false;
    return true;
}

static pb_status check_one(const pb_bound *t, const unsigned char *host)
{
    size_t bytes = span_bytes(t);
    const unsigned char *body = host + GUARD;
    if (!guard_kept(host)) return pb_fail(PB_EWRONG, "tensor %s: the op wrote before its first element", t->name);
    if (!guard_kept(body + bytes)) return pb_fail(PB_EWRONG, "tensor %s: the op wrote past its last element", t->name);
    if (t->role == PB_ROLE_IN && input_sum(body, bytes) != t->sum)
        return pb_fail(PB_EWRONG, "tensor %s: the op changed an input", t->name);
    if (t->ld > t->cols && !gaps_untouched(t, body))
        return pb_fail(PB_EWRONG, "tensor %s: the op wrote between its rows", t->name);
    return PB_OK;
}

pb_status pb_check_guards(pb_binder *b)
{
    for (int k = 0; k < b->n; k++) {
        unsigned char *host;
        const size_t bytes = span_bytes(&b->t[k]);
        forbid_guards(b->ctx, &b->t[k], bytes, false);
        PB_TRY(fetch(b->ctx, (unsigned char *)b->t[k].p - GUARD, bytes + 2 * GUARD, &host));
        forbid_guards(b->ctx, &b->t[k], bytes, true);
        pb_status s = check_one(&b->t[k], host);
        free(host);
        PB_TRY(s);
    }
    return PB_OK;
}

static pb_diff diff_rows(const void *want, const void *got, const pb_bound *t)
{
    double diff = 0, norm = 0, max = 0;
    size_t n = t->rows * t->cols;
    for (size_t r = 0; r < t->rows; r++)
        for (size_t c = 0; c < t->cols; c++) {
            double a = pb_load(want, r * t->ld + c, t->dtype), d = fabs(a - pb_load(got, r * t->ld + c, t->dtype));
            if (t->log && a == (double)-INFINITY && pb_load(got, r * t->ld + c, t->dtype) == a) continue;
            if (!isfinite(a) || !isfinite(d)) return (pb_diff){(double)NAN, (double)NAN, t->name};
            diff += d * d;
            norm += a * a;
            if (d > max) max = d;
        }
    return (pb_diff){sqrt(diff / (norm > 0 ? norm : 1)), norm > 0 ? max / sqrt(norm / (double)n) : max, t->name};
}

pb_diff pb_diff_arrays(const void *want, const void *got, size_t n, pb_dtype dtype)
{
    return diff_rows(want, got, &(pb_bound){.name = "array", .rows = 1, .cols = n, .ld = n, .dtype = dtype});
}

pb_status pb_compare(const pb_binder *want, const pb_binder *got, pb_diff *diff)
{
    pb_diff worst = {0, 0, "no output"};
    for (int k = 0; k < want->n; k++) {
        const pb_bound *w = &want->t[k], *g = &got->t[k];
        unsigned char *hw, *hg;
        if (w->role == PB_ROLE_IN) continue;
        PB_TRY(fetch(want->ctx, w->p, span_bytes(w), &hw));
        pb_status s = fetch(got->ctx, g->p, span_bytes(g), &hg);
        pb_diff d = s == PB_OK ? diff_rows(hw, hg, w) : worst;
        free(hw);
        PB_TRY(s);
        free(hg);
        if (!(d.rel <= worst.rel)) worst.rel = d.rel, worst.tensor = d.tensor; /* NaN counts as the worst */
        if (!(d.max <= worst.max)) worst.max = d.max;
        if (isnan(worst.rel)) break; /* a NaN decides the comparison; further outputs cannot change it */
    }
    *diff = worst;
    return PB_OK;
}
