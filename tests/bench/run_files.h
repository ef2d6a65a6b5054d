/* run_files.h - the runs of tests/fixtures/compare/cases.txt as files in a temporary folder, for tests of functions
 * that read results. */
#ifndef PB_RUN_FILES_H
#define PB_RUN_FILES_H
#include <unistd.h>

#include "tests/bench/compare_runs.h"
#include "tests/bench/files_test.h"

static pb_compare_table run_table;
static char run_folder[] = "/tmp/pb_runs_XXXXXX";

/* Group setup (open_runs: writes the files) and teardown (close_runs: removes them) for cmocka_run_group_tests. */
static inline int open_runs(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(run_folder));
    CHECK_OK(pb_compare_table_read(PB_SOURCE_DIR "/tests/fixtures/compare/cases.txt", &run_table));
    CHECK_OK(pb_compare_table_write(&run_table, run_folder));
    return 0;
}

static inline int close_runs(void **state)
{
    (void)state;
    pb_compare_table_free(&run_table);
    remove_folder(run_folder);
    return 0;
}

/* Returns the path of the file `name`, a run or gates of cases.txt; the file need not exist. The result stays valid. */
static inline const char *run_file(const char *name)
{
    static char path[128][96];
    char wanted[96];
    snprintf(wanted, sizeof wanted, "%s/%s.csv", run_folder, name);
    for (int i = 0; i < 128; i++)
        if (!*path[i] || !strcmp(path[i], wanted)) return memcpy(path[i], wanted, sizeof wanted);
    fail_msg("more than 128 files");
    return NULL;
}
#endif
