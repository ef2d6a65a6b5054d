/* ops_test.c - compares every implementation of every op with the implementation "ref" on the CPU: on every edge shape
 * in f32 and bf16, and with S = 1..65 and 127..129 (with sanitizers, 19 of these). Outputs and scratch memory are
 * poisoned before a call and enclosed in guard words. A replayed graph must give the result of the eager call. "ref" is
 * by far the slowest: as an implementation to be compared, it runs on the edge shapes only, without sanitizers, and is
 * not replayed. The ops are those of kernels/ops.def, so a new op is tested as soon as it is listed there.
 *
 * usage: ops_test [--backend cpu|cuda] [--no-sweep] [--part K/N] [OP_SUBSTRING | =OP]...     e.g. ops_test attention
 *        --part: every N-th case from the K-th on, K = 0..N-1, so that N processes share the work */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/op.h"
#include "tests/kernels/calls.h"

typedef struct one {
    pb_ctx *oracle, *ctx;
    const pb_op *op;
    bool sweep;
    int part, parts; /* run every parts-th case, from number `part` on */
    int number;      /* number of the next case */
    int wrong;       /* number of wrong cases; the test continues after one, to list them all */
} one;

/* Counts a wrong case and prints it, up to a limit. */
__attribute__((format(printf, 2, 3))) static void wrong(one *o, const char *fmt, ...)
{
    enum { SHOWN = 40 };
    va_list ap;
    if (o->wrong++ >= SHOWN) return;
    va_start(ap, fmt);
    fputs("    ", stdout);
    vprintf(fmt, ap);
    fputs("\n", stdout);
    va_end(ap);
}

/* Returns whether the op writes at least one element. With some shapes all outputs are empty. */
static bool writes(const pb_binder *b)
{
    size_t n = 0;
    for (int k = 0; k < b->n; k++) n += b->t[k].role == PB_ROLE_IN ? 0 : b->t[k].rows * b->t[k].cols;
    return n > 0;
}

static void record_and_replay(pb_ctx *ctx, call *c)
{
    pb_graph *g = NULL;
    CHECK_OK(pb_record(ctx, call_run, c, &g));
    if (writes(&c->b)) assert_int_not_equal(pb_graph_nodes(ctx, g), 0);
    CHECK_OK(pb_replay(ctx, g));
    CHECK_OK(pb_sync(ctx));
    pb_graph_free(ctx, g);
}

static bool is_ref(const pb_impl *impl) { return strcmp(impl->name, "ref") == 0; }

/* Runs one implementation on the inputs of `want`, eager and replayed; `want` holds the expected outputs. */
static void check_runs(one *o, const pb_impl *impl, const int *dim, pb_dtype t, call *want, call *eager, call *graph)
{
    char where[160];
    pb_diff d;
    const double tol = o->op->tol[t], same = impl->varies ? tol : 0;
    int n = snprintf(where, sizeof where, "%s.%s.%s %s ", o->op->name, o->ctx->be->name, impl->name, pb_dtype_name(t));
    pb_dims_text(o->op, dim, where + n, sizeof where - (size_t)n);
    o->ctx->impl = impl->name;
    CHECK_OK(call_run(o->ctx, eager));
    CHECK_OK(pb_sync(o->ctx));
    CHECK_OK(pb_compare(&want->b, &eager->b, &d));
    if (!pb_diff_ok(&d, tol)) wrong(o, "%s: rel %g max %g in %s, want %g", where, d.rel, d.max, d.tensor, tol);
    if (pb_check_guards(&eager->b) != PB_OK) wrong(o, "%s: %s", where, pb_error());
    if (is_ref(impl)) return;
    record_and_replay(o->ctx, graph);
    CHECK_OK(pb_compare(&eager->b, &graph->b, &d));
    if (!pb_diff_ok(&d, same)) wrong(o, "%s: replay differs from eager by %g in %s", where, d.rel, d.tensor);
}

/* Calls check_runs with scratch memory of exactly the size that the implementation requests, poisoned and between guard
 * words. */
static void check_impl(one *o, const pb_impl *impl, const int *dim, pb_dtype t, call *want, call *eager, call *graph)
{
    pb_binder room = {.ctx = o->ctx};
    void *const before = o->ctx->scratch;
    const size_t before_bytes = o->ctx->scratch_bytes;
    o->ctx->scratch_bytes = impl->workspace ? impl->workspace(eager->args) : 0;
    o->ctx->scratch = pb_out(&room, "scratch", PB_U8, o->ctx->scratch_bytes);
    CHECK_OK(room.status);
    check_runs(o, impl, dim, t, want, eager, graph);
    if (pb_check_guards(&room) != PB_OK)
        wrong(o, "%s.%s %s: %s", o->op->name, impl->name, pb_dtype_name(t), pb_error());
    o->ctx->scratch = before, o->ctx->scratch_bytes = before_bytes;
    pb_unbind(&room);
}

/* ref: also the implementation "ref". */
static void check_case(one *o, const int *dim, pb_dtype t, bool ref)
{
    if (o->number++ % o->parts != o->part) return;
    call inputs = call_inputs(o->oracle, o->op, dim, t), want = call_bind(o->oracle, o->op, dim, t);
    call eager = call_bind(o->ctx, o->op, dim, t), graph = call_bind(o->ctx, o->op, dim, t);
    call_fresh(&want, &inputs);
    CHECK_OK(call_run(o->oracle, &want));
    if (pb_check_guards(&want.b) != PB_OK) wrong(o, "%s.ref %s: %s", o->op->name, pb_dtype_name(t), pb_error());
    for (const pb_impl *i = o->op->impls[o->ctx->id]; i->name; i++) {
        if (!call_takes(i, &eager) || (is_ref(i) && (!ref || TEST_SANITIZED))) continue;
        call_fresh(&eager, &inputs);
        call_fresh(&graph, &inputs);
        check_impl(o, i, dim, t, &want, &eager, &graph);
    }
    call_unbind(&inputs), call_unbind(&want), call_unbind(&eager), call_unbind(&graph);
}

/* Runs the first edge shape with S = 1..65, 127..129, which covers partial warps, vectors and tiles. */
static void sweep(one *o, pb_dtype t)
{
    const char *s = strchr(o->op->axes, 'S');
    pb_dims dim;
    if (!s) return;
    memcpy(dim, o->op->edge[0], sizeof dim);
    for (int v = 1; v <= 129; v = v == 65 ? 127 : v + 1) {
        if (TEST_SANITIZED && v % 8 > 1) continue; /* next to and at multiples of 8 */
        dim[s - o->op->axes] = v;
        check_case(o, dim, t, false);
    }
}

static void test_op(void **state)
{
    one *o = *state;
    for (int t = 0; t < (o->op->f32_only ? 1 : PB_NFLOAT); t++) {
        for (const pb_dims *dim = o->op->edge; (*dim)[0]; dim++) check_case(o, *dim, (pb_dtype)t, true);
        if (o->sweep) sweep(o, (pb_dtype)t);
    }
    if (o->wrong) fail_msg("%d cases are wrong", o->wrong);
}

typedef struct wish {
    const char *backend; /* NULL: all backends */
    char **op;           /* the n command-line arguments that select ops; n = 0: all ops */
    int n, part, parts;
    bool sweep;
} wish;

static wish parse(int argc, char **argv)
{
    /* The loop moves the arguments that are not options to the front of argv, to which w.op points. */
    wish w = {.op = argv + 1, .parts = 1, .sweep = true};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--no-sweep") == 0) w.sweep = false;
        else if (strcmp(argv[i], "--part") == 0 && i + 1 < argc) {
            if (sscanf(argv[++i], "%d/%d", &w.part, &w.parts) != 2 || w.part < 0 || w.part >= w.parts) w.parts = 0;
        } else if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc) w.backend = argv[++i];
        else w.op[w.n++] = argv[i];
    return w;
}

static bool names(const char *word, const char *op)
{
    return *word == '=' ? strcmp(word + 1, op) == 0 : strstr(op, word) != NULL;
}

static bool wanted(const wish *w, const char *op)
{
    bool any = w->n == 0;
    for (int i = 0; i < w->n; i++) any |= names(w->op[i], op);
    return any;
}

/* True if each op name of the command line selects an op. A misspelt name must not count as a passed test. */
static bool all_known(const wish *w)
{
    for (int i = 0; i < w->n; i++) {
        bool known = false;
        for (const pb_op *const *op = pb_ops; *op; op++) known |= names(w->op[i], (*op)->name);
        if (!known) return printf("ops_test: no op has the name %s (see kernels/ops.def)\n", w->op[i]), false;
    }
    return true;
}

int main(int argc, char **argv)
{
    enum { MAX = 128 };
    static struct CMUnitTest tests[MAX];
    static one ones[MAX];
    static char names[MAX][96];
    static pb_ctx oracle, ctxs[PB_NBACKENDS];
    const wish w = parse(argc, argv);
    size_t n = 0;
    if (!w.parts || !all_known(&w)) return 2;
    if (pb_ctx_open(&oracle, PB_CPU, 0) != PB_OK) return 1;
    oracle.impl = "ref";
    for (int be = 0; be < PB_NBACKENDS; be++) {
        if (w.backend && strcmp(w.backend, pb_backend_name((pb_backend_id)be)) != 0) continue;
        if (pb_ctx_open(&ctxs[be], (pb_backend_id)be, 0) != PB_OK) {
            printf("not on this machine: %s\n", pb_error());
            continue;
        }
        for (const pb_op *const *op = pb_ops; *op; op++) {
            if (!wanted(&w, (*op)->name)) continue;
            assert_true(n < MAX);
            ones[n] = (one){&oracle, &ctxs[be], *op, w.sweep, w.part, w.parts, 0, 0};
            snprintf(names[n], sizeof names[n], "%s.%s", (*op)->name, ctxs[be].be->name);
            tests[n] = (struct CMUnitTest){.name = names[n], .test_func = test_op, .initial_state = &ones[n]};
            n++;
        }
    }
    if (!n) return 1;
    return _cmocka_run_group_tests("ops", tests, n, NULL, NULL);
}
