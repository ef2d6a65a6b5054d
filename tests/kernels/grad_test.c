/* grad_test.c - checks every backward op (an op whose descriptor sets grad_of) against central differences of its
 * forward op. Both ops run as implementation "ref" in f32 on the CPU. Tensors are matched by name: forward output y and
 * gradient input dy, forward input x and gradient output dx; other inputs of equal name get equal contents. */
#include <stdlib.h>
#include <string.h>

#include "kernels/engine/op.h"
#include "tests/test.h"

/* Elements checked per gradient, evenly spaced; its largest element is checked as well. */
enum { SAMPLES = 24 };

typedef struct side {
    const pb_op *op;
    void *args;
    pb_binder b;
    void *saved[PB_MAX_BOUND]; /* copies of the read-write tensors, to repeat a run */
} side;

static size_t bytes_of(const pb_bound *t) { return ((t->rows - 1) * t->ld + t->cols) * pb_dtype_size(t->dtype); }
static size_t element(const pb_bound *t, size_t k) { return k / t->cols * t->ld + k % t->cols; }

static side make(pb_ctx *ctx, const pb_op *op, const int *dim, uint64_t seed)
{
    side s = {.op = op, .args = calloc(1, op->args_size), .b = {.ctx = ctx, .dtype = PB_F32, .seed = seed}};
    assert_non_null(s.args);
    CHECK_OK(op->bind(&s.b, dim, s.args));
    if (op->prepare) CHECK_OK(op->prepare(ctx, s.args));
    return s;
}

static void save(side *s)
{
    for (int i = 0; i < s->b.n; i++)
        if (s->b.t[i].role == PB_ROLE_INOUT) {
            s->saved[i] = malloc(bytes_of(&s->b.t[i]));
            assert_non_null(s->saved[i]);
            memcpy(s->saved[i], s->b.t[i].p, bytes_of(&s->b.t[i]));
        }
}

static void drop(side *s)
{
    for (int i = 0; i < s->b.n; i++) free(s->saved[i]);
    pb_unbind(&s->b);
    free(s->args);
}

static pb_bound *gradient_of(side *s, const char *name)
{
    char d[40];
    snprintf(d, sizeof d, "d%s", name);
    return pb_find_bound(&s->b, d);
}

/* Runs the forward op and returns the sum of <dy, y> over its outputs. */
static double loss(pb_ctx *ctx, side *f, side *g)
{
    double sum = 0;
    for (int i = 0; i < f->b.n; i++)
        if (f->saved[i]) memcpy(f->b.t[i].p, f->saved[i], bytes_of(&f->b.t[i]));
    CHECK_OK(pb_op_run(ctx, f->op, f->args));
    for (int i = 0; i < f->b.n; i++) {
        const pb_bound *y = &f->b.t[i];
        if (y->role == PB_ROLE_IN) continue;
        const pb_bound *dy = gradient_of(g, y->name);
        if (g->op->loss && strcmp(g->op->loss, y->name) == 0) sum += pb_load(y->p, 0, y->dtype);
        else if (dy && dy->role == PB_ROLE_IN)
            for (size_t k = 0; k < y->rows * y->cols; k++)
                sum += pb_load(dy->p, element(dy, k), dy->dtype) * pb_load(y->p, element(y, k), y->dtype);
    }
    return sum;
}

static size_t largest(const pb_bound *t)
{
    size_t best = 0;
    for (size_t k = 1; k < t->rows * t->cols; k++)
        if (fabs(pb_load(t->p, element(t, k), t->dtype)) > fabs(pb_load(t->p, element(t, best), t->dtype))) best = k;
    return best;
}

/* Returns the number of gradient elements to check: SAMPLES, or fewer (but at least 4) if the forward op is
 * expensive. */
static size_t samples(const side *f)
{
    const double budget = 1e7, cost = f->op->cost ? f->op->cost(f->args).flops : 0;
    return cost * SAMPLES <= budget ? SAMPLES : (size_t)(budget / cost) + 4;
}

/* Checks the gradient tensor dx: changes elements of the forward op's input x and compares the change of the loss with
 * dx. Returns false if x is not an input of the forward op. */
static bool check_gradient(pb_ctx *ctx, side *f, side *g, const pb_bound *dx, const char *where)
{
    pb_bound *x = dx->role == PB_ROLE_IN || dx->name[0] != 'd' ? NULL : pb_find_bound(&f->b, dx->name + 1);
    double diff = 0, norm = 0, h = 2e-3;
    if (!x || x->role == PB_ROLE_OUT) return false;
    const size_t n = x->rows * x->cols, most = samples(f), step = n > most ? n / most : 1;
    for (size_t j = 0; j < n + step; j += step) {
        const size_t k = j < n ? j : largest(dx);
        float *p = (float *)x->p + element(x, k), *restore = NULL;
        if (x->role == PB_ROLE_INOUT) restore = (float *)f->saved[x - f->b.t] + element(x, k), p = restore;
        const float old = *p;
        if (!isfinite(old)) { /* the forward op must not read this element, so its gradient must be 0 */
            const double none = pb_load(dx->p, element(dx, k), dx->dtype);
            diff += none * none;
            continue;
        }
        *p = old + (float)h;
        double up = loss(ctx, f, g), hi = *p;
        *p = old - (float)h;
        double down = loss(ctx, f, g), lo = *p;
        *p = old;
        double want = (up - down) / (hi - lo), got = pb_load(dx->p, element(dx, k), dx->dtype);
        diff += (want - got) * (want - got);
        norm += want * want;
    }
    const double tol = g->op->grad_tol > 0 ? g->op->grad_tol : 2e-3, err = sqrt(diff / (norm > 0 ? norm : 1));
    if (!(err <= tol)) fail_msg("%s: %s differs from finite differences by %g, want %g", where, dx->name, err, tol);
    return true;
}

static void check_shape(pb_ctx *ctx, const pb_op *bwd, const int *dim)
{
    char where[120];
    int n = snprintf(where, sizeof where, "%s ", bwd->name), joined = 0;
    pb_dims_text(bwd, dim, where + n, sizeof where - (size_t)n);
    side f = make(ctx, bwd->grad_of, dim, 3), g = make(ctx, bwd, dim, 5);
    save(&f);
    loss(ctx, &f, &g); /* computes the forward outputs that the backward op reads */
    for (int i = 0; i < g.b.n; i++) {
        pb_bound *t = &g.b.t[i], *same = pb_find_bound(&f.b, t->name);
        if (t->role == PB_ROLE_INOUT) memset(t->p, 0, bytes_of(t)); /* the backward op adds to this tensor */
        else if (same && t->role == PB_ROLE_IN && !t->raw) {
            assert_int_equal(bytes_of(t), bytes_of(same));
            memcpy(t->p, same->p, bytes_of(t));
        }
    }
    CHECK_OK(pb_op_run(ctx, bwd, g.args));
    for (int i = 0; i < g.b.n; i++) joined += check_gradient(ctx, &f, &g, &g.b.t[i], where);
    if (!joined) fail_msg("%s: no output of it is the gradient of an input of %s", where, bwd->grad_of->name);
    drop(&f), drop(&g);
}

static void test_gradient(void **state)
{
    const pb_op *bwd = *state;
    pb_ctx ctx;
    CHECK_OK(pb_ctx_open(&ctx, PB_CPU, 0));
    ctx.impl = "ref";
    for (const pb_dims *dim = bwd->edge; (*dim)[0]; dim++) check_shape(&ctx, bwd, *dim);
    pb_ctx_close(&ctx);
}

int main(int argc, char **argv)
{
    enum { MAX = 128 };
    static struct CMUnitTest tests[MAX];
    size_t n = 0;
    for (const pb_op *const *op = pb_ops; *op; op++) {
        if (!(*op)->grad_of || (argc > 1 && !strstr((*op)->name, argv[1]))) continue;
        assert_true(n < MAX);
        tests[n++] = (struct CMUnitTest){.name = (*op)->name, .test_func = test_gradient, .initial_state = (void *)*op};
    }
    return _cmocka_run_group_tests("gradients", tests, n, NULL, NULL);
}
