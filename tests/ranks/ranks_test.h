/* ranks_test.h - included by tests that mpirun starts as several ranks (pb_ranks_test): opens the world and a device. A
 * failed check ends the process (CMOCKA_TEST_ABORT), and mpirun ends the others: they may wait for this rank. */
#ifndef PB_TESTS_RANKS_TEST_H
#define PB_TESTS_RANKS_TEST_H
#include "ranks/world.h"
#include "tests/test.h"

static pb_world *test_world;
static pb_ctx test_ctx;

/* The device of this rank: the GPUs of a host are given out by local rank; there is one CPU. */
static inline int test_device(pb_backend_id id) { return id == PB_CUDA ? pb_world_local_rank(test_world) : 0; }

/* Opens the backend that PB_TEST_BACKEND names, default cpu, for every rank. */
static inline int test_open_ranks(void **state)
{
    const char *name = getenv("PB_TEST_BACKEND");
    pb_backend_id id = PB_CPU;
    if (name && pb_backend_find(name, &id) != PB_OK) return -1;
    pb_status s =
        pb_world_open(&(pb_world_options){.version = "test", .mpi = id == PB_CPU, .timeout = 30}, &test_world);
    if (s == PB_OK) s = pb_world_agree(test_world, "opening", pb_ctx_open(&test_ctx, id, test_device(id)));
    if (s != PB_OK) {
        if (pb_world_speaks(test_world)) fprintf(stderr, "%s\n", pb_error());
        return -1;
    }
    *state = &test_ctx;
    return 0;
}

static inline int test_close_ranks(void **state)
{
    (void)state;
    if (test_ctx.be) pb_ctx_close(&test_ctx);
    pb_world_close(test_world);
    test_world = NULL;
    return 0;
}
#endif
