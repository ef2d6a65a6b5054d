/* folder_test.h - a temporary folder and paths in it, for tests that write files. */
#ifndef PB_FOLDER_TEST_H
#define PB_FOLDER_TEST_H
#include <ftw.h>
#include <unistd.h>

#include "tests/test.h"

static char test_folder[] = "/tmp/plumb_test_XXXXXX";

/* Returns the path of `name` in the temporary folder. It stays valid for the next three calls. */
static inline const char *in_folder(const char *name)
{
    static char path[4][256];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", test_folder, name);
    return path[at];
}

static inline int test_remove(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

/* Group setup and teardown: a CPU context and the temporary folder. */
static inline int test_open_folder(void **state) { return mkdtemp(test_folder) ? test_open_cpu(state) : -1; }

static inline int test_close_folder(void **state)
{
    return test_close(state) | nftw(test_folder, test_remove, 8, FTW_DEPTH | FTW_PHYS);
}
#endif
