/* comm_ranks.h - included by the tests of collectives between several ranks: a communicator of all ranks, inputs that
 * every rank can compute for all ranks, and the reduction in rank order that results are compared with. */
#ifndef PB_TESTS_COMM_RANKS_H
#define PB_TESTS_COMM_RANKS_H
#include "kernels/comm/backend.h"
#include "ranks/topology.h"
#include "tests/ranks/ranks_test.h"

enum { MOST_RANKS = 16 };

static pb_ctx *const ctx = &test_ctx;
static pb_comm *all; /* of all ranks */
static int rank, ranks;

static inline int open_all(void **state)
{
    if (test_open_ranks(state) != 0) return -1;
    rank = pb_world_rank(test_world), ranks = pb_world_size(test_world);
    const pb_status s =
        ranks > 1 ? pb_comm_open(test_world, ctx, "all", 0, rank, &all) : pb_comm_open_self(ctx, "all", &all);
    if (s == PB_OK && ranks <= MOST_RANKS) return 0;
    fprintf(stderr, "%s\n", pb_error());
    return -1;
}

static inline int close_all(void **state)
{
    pb_comm_close(all);
    return test_close_ranks(state);
}

/* ---- tensors -------------------------------------------------------------------------------------------------- */

/* Element i of the input of rank r: values of very different size, so that the order of additions shows in the last
 * bits. `salt` makes different inputs. */
static inline double value_of(int r, size_t i, int salt)
{
    const uint64_t seed = 1000u * (uint64_t)salt + (uint64_t)r + 1;
    return (2 * pb_uniform(seed, 2 * i) - 1) * ldexp(1, (int)(24 * pb_uniform(seed, 2 * i + 1)));
}

static inline double input(pb_dtype t, int r, size_t i, int salt)
{
    if (t == PB_I32 || t == PB_U8) return floor(100 * pb_uniform((uint64_t)(100 * salt + r + 1), i));
    unsigned char element[4];
    pb_store(element, 0, t, value_of(r, i, salt));
    return pb_load(element, 0, t);
}

/* Device memory of n elements. */
static inline void *tensor(size_t n, pb_dtype t)
{
    void *p = NULL;
    CHECK_OK(pb_alloc(ctx, n * pb_dtype_size(t) + 16, &p));
    return p;
}

/* Device memory with elements from..from+n of rank r's input. */
static inline void *input_tensor(pb_dtype t, int r, size_t from, size_t n, int salt)
{
    unsigned char *host = malloc(n * pb_dtype_size(t) + 1);
    void *p = tensor(n, t);
    assert_non_null(host);
    for (size_t i = 0; i < n; i++) pb_store(host, i, t, input(t, r, from + i, salt));
    CHECK_OK(pb_upload(ctx, p, host, n * pb_dtype_size(t)));
    free(host);
    return p;
}

/* The sum in rank order in f32, rounded to t; or the maximum. */
static inline double reduced(pb_dtype t, size_t i, int salt, pb_comm_op op)
{
    float sum = (float)input(t, 0, i, salt);
    for (int r = 1; r < ranks; r++) {
        const float v = (float)input(t, r, i, salt);
        sum = op == PB_COMM_SUM ? sum + v : v > sum ? v : sum;
    }
    unsigned char element[4];
    pb_store(element, 0, t, (double)sum);
    return pb_load(element, 0, t);
}

/* The sum of the absolute values: rounding errors of a sum in any order are proportional to it. */
static inline double size_of_sum(pb_dtype t, size_t i, int salt)
{
    double sum = 0;
    for (int r = 0; r < ranks; r++) sum += fabs(input(t, r, i, salt));
    return sum;
}

/* Compares y[0..n) with elements from.. of the reduction: bit for bit, unless the library adds in its own order. */
static inline void check_reduced(const void *y, pb_dtype t, size_t from, size_t n, int salt, pb_comm_op op, bool exact)
{
    unsigned char *host = test_fetch(ctx, y, n * pb_dtype_size(t));
    for (size_t i = 0; i < n; i++) {
        const double got = pb_load(host, i, t), want = reduced(t, from + i, salt, op);
        const double rounding = t == PB_F32 ? 0x1p-24 : 0x1p-8;
        if (exact && !(got == want && signbit(got) == signbit(want)))
            fail_msg("rank %d element %zu: %.9g, want exactly %.9g", rank, from + i, got, want);
        CHECK_NEAR(got, want, ranks * rounding * size_of_sum(t, from + i, salt));
    }
    free(host);
}
#endif
