/* normuon_dion_test.c - compares steps of NorMuon, taken with the ops newton_schulz and normuon, with steps that the
 * code of microsoft/dion took with the same weights, gradients and options
 * (scripts/fixtures/normuon_dion_fixtures.py). The first line of tests/fixtures/normuon_dion.csv names the commit of
 * dion.
 *
 * A difference is the L2 norm of our change of the weights minus dion's change, divided by the L2 norm of dion's
 * change. The test estimates the first norm from 16 products (see the script). The estimates were up to 1.5 times the
 * exact norm, so the bounds must be larger than the exact differences. The bounds, and the largest exact difference of
 * all CPU implementations, matrices and steps:
 *     ours in f32, dion in f64      1e-5, exact 3.2e-6. Only our rounding differs; a wrong constant exceeds the bound.
 *     ours in bf16, dion in f64     0.03, exact 0.021. This is the error of our bf16.
 *     ours in bf16, dion in bf16    0.1, exact 0.059. Most of it is the error of dion's bf16: dion in bf16 differs by
 *                                   up to 0.054 from dion in f64. It rounds ||X||, b A, c A^2, a X and B X to bf16 one
 *                                   by one; newton_schulz rounds only X_0, A, B and each X_k. */
#include "kernels/newton_schulz/newton_schulz.h"
#include "kernels/normuon/normuon.h"
#include "tests/test.h"

enum { STEPS = 4, PRODUCTS = 16, BLOCKS = 3, MOST = 64 * 64, ROWS = 80 };

static const struct shape {
    const char *name;
    int rows, cols, block[BLOCKS]; /* block: rows of the blocks */
    double scale;                  /* of the gradients */
} shapes[] = {{"tall", 48, 32, {48}, 1},
              {"wide", 32, 80, {32}, 1},
              {"square", 64, 64, {64}, 1},
              {"fused", 80, 48, {48, 16, 16}, 1},
              {"faint", 24, 40, {24}, 1e-8}};
static const struct options {
    const char *name;
    pb_ns_variant variant;
    pb_normuon_adjust_kind adjust;
    bool nesterov, cautious;
    float lr, mu, beta2, decay;
} options[] = {{"default", PB_NS_POLAR_EXPRESS, PB_NORMUON_SPECTRAL, false, false, 0.01f, 0.95f, 0.95f, 0.01f},
               {"rms", PB_NS_QUINTIC, PB_NORMUON_RMS, true, false, 0.02f, 0.95f, 0.95f, 0.1f},
               {"cautious", PB_NS_POLAR_EXPRESS, PB_NORMUON_NONE, false, true, 0.05f, 0.9f, 0.9f, 0.1f}};
enum { NSHAPES = sizeof shapes / sizeof *shapes, NOPTIONS = sizeof options / sizeof *options };

/* The type of our updates, and the fixture's name of the arithmetic with which dion took the steps. */
static const struct comparison {
    pb_dtype ours;
    const char *dions;
    double bound;
} comparisons[] = {{PB_F32, "f64", 1e-5}, {PB_BF16, "f64", 0.03}, {PB_BF16, "bf16", 0.1}};
enum { NCOMPARISONS = sizeof comparisons / sizeof *comparisons };

/* A matrix and its state; the pointers of pieces and blocks point into it. */
typedef struct matrix {
    float w[MOST], first[MOST], grad[MOST], m[MOST], u[MOST], v[ROWS], factor[ROWS];
    pb_normuon_piece piece[BLOCKS];
    pb_normuon_block block[BLOCKS];
    size_t n;
    int blocks, kind; /* kind: index of shapes */
} matrix;

/* As `draw` of the script. */
static void draw(float *x, uint64_t seed, const struct shape *s, double half)
{
    for (int i = 0; i < s->rows * s->cols; i++)
        x[i] = (float)((2 * pb_uniform(seed, (uint64_t)i) - 1) * (half / (1 + i / s->cols % 5)));
}

static void init(matrix *t, int kind, const struct options *o, pb_dtype dtype)
{
    const struct shape *s = &shapes[kind];
    memset(t, 0, sizeof *t);
    t->kind = kind;
    t->n = (size_t)s->rows * (size_t)s->cols;
    draw(t->w, 1000 + (uint64_t)kind, s, 0.1);
    memcpy(t->first, t->w, sizeof t->w);
    for (size_t row = 0; t->blocks < BLOCKS && s->block[t->blocks]; t->blocks++) {
        const int rows = s->block[t->blocks];
        const size_t at = row * (size_t)s->cols;
        unsigned char *u = (unsigned char *)t->u + at * pb_dtype_size(dtype);
        t->piece[t->blocks] = (pb_normuon_piece){.w = t->w + at,
                                                 .grad = t->grad + at,
                                                 .m = t->m + at,
                                                 .u = u,
                                                 .factor = t->factor + row,
                                                 .n = (size_t)rows * (size_t)s->cols,
                                                 .rows = rows,
                                                 .cols = s->cols,
                                                 .clip = -1,
                                                 .decay = o->decay};
        t->block[t->blocks] =
            (pb_normuon_block){.u = u, .v = t->v + row, .factor = t->factor + row, .rows = rows, .cols = s->cols};
        row += (size_t)rows;
    }
}

static void step(pb_ctx *ctx, matrix *t, const struct options *o, pb_dtype dtype)
{
    const pb_adamw_state state = {.lr = o->lr};
    CHECK_OK(pb_normuon_momentum(ctx, &(pb_normuon_momentum_args){.list = t->piece,
                                                                  .elements = t->n,
                                                                  .n = t->blocks,
                                                                  .mu = o->mu,
                                                                  .nesterov = o->nesterov,
                                                                  .keep = true,
                                                                  .dtype = dtype}));
    for (int i = 0; i < t->blocks; i++)
        CHECK_OK(pb_newton_schulz_run(ctx, &(pb_newton_schulz_run_args){.x = t->piece[i].u,
                                                                        .y = t->piece[i].u,
                                                                        .n = 1,
                                                                        .R = t->piece[i].rows,
                                                                        .C = t->piece[i].cols,
                                                                        .variant = o->variant,
                                                                        .steps = 5,
                                                                        .eps = 1e-8f,
                                                                        .dtype = dtype}));
    CHECK_OK(pb_normuon_rows(ctx, &(pb_normuon_rows_args){.list = t->block,
                                                          .elements = t->n,
                                                          .rows = (size_t)shapes[t->kind].rows,
                                                          .n = t->blocks,
                                                          .beta2 = o->beta2,
                                                          .dtype = dtype}));
    CHECK_OK(pb_normuon_apply(ctx, &(pb_normuon_apply_args){.list = t->piece,
                                                            .state = &state,
                                                            .elements = t->n,
                                                            .n = t->blocks,
                                                            .rate = 1,
                                                            .adjust = o->adjust,
                                                            .cautious = o->cautious,
                                                            .dtype = dtype}));
}

/* Estimates the L2 norm of the difference of our change of the weights and dion's, divided by the norm of dion's.
 * values: that norm, and dion's products. */
static double difference(const matrix *t, const double *values)
{
    double sum = 0;
    for (uint64_t k = 0; k < PRODUCTS; k++) {
        double product = 0;
        for (size_t i = 0; i < t->n; i++) {
            const double change = (double)t->w[i] - (double)t->first[i];
            product += pb_uniform(100 + k, i) < 0.5 ? -change : change;
        }
        sum += (product - values[1 + k]) * (product - values[1 + k]);
    }
    return sqrt(sum / PRODUCTS) / values[0];
}

/* Reads the numbers of the line that begins with `head`. */
static void read_values(FILE *f, const char *head, double *values)
{
    char line[1024], *at = line + strlen(head);
    rewind(f);
    do {
        if (!fgets(line, sizeof line, f)) fail_msg("no line begins with %s", head);
    } while (strncmp(line, head, strlen(head)) != 0);
    for (int k = 0; k <= PRODUCTS; k++) {
        char *end;
        values[k] = strtod(at, &end);
        if (end == at) fail_msg("%s has %d numbers", head, k);
        at = end + (*end == ',');
    }
}

/* Compares the steps of a matrix, and prints the largest difference. */
static void compare(pb_ctx *ctx, FILE *f, const struct options *o, const struct comparison *c, matrix *t)
{
    const struct shape *s = &shapes[t->kind];
    char head[64];
    double values[1 + PRODUCTS], most = 0;
    for (int k = 0; k < STEPS; k++) {
        snprintf(head, sizeof head, "%s,%s,%s,%d,", o->name, c->dions, s->name, k + 1);
        read_values(f, head, values);
        draw(t->grad, (uint64_t)(10 * k + t->kind), s, s->scale);
        step(ctx, t, o, c->ours);
        const double d = difference(t, values);
        if (!(d <= c->bound)) fail_msg("%s: our step in %s differs by %g", head, pb_dtype_name(c->ours), d);
        most = fmax(most, d);
    }
    print_message("  %s %.2g", s->name, most);
}

static void weights_change_as_with_dion(void **state)
{
    FILE *f = fopen(PB_FIXTURES "/normuon_dion.csv", "r");
    matrix *t = malloc(sizeof *t);
    assert_non_null(f);
    assert_non_null(t);
    for (int c = 0; c < NCOMPARISONS; c++)
        for (int o = 0; o < NOPTIONS; o++) {
            print_message("ours %s, dion %s, %s:", pb_dtype_name(comparisons[c].ours), comparisons[c].dions,
                          options[o].name);
            for (int k = 0; k < NSHAPES; k++) {
                init(t, k, &options[o], comparisons[c].ours);
                compare(*state, f, &options[o], &comparisons[c], t);
            }
            print_message("\n");
        }
    (void)fclose(f);
    free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_change_as_with_dion)};
    return test_every_impl(&pb_op_normuon_apply, tests, sizeof tests / sizeof *tests);
}
