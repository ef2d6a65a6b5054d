/* emitter.h - an emitter that writes into a temporary folder, for tests of the rows that suites emit. */
#ifndef PB_TESTS_EMITTER_H
#define PB_TESTS_EMITTER_H
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/measure/emit.h"
#include "bench/rows/write_csv.h"
#include "tests/test.h"

static char dir[32];

static inline void open_emitter(pb_emitter *s)
{
    snprintf(dir, sizeof dir, "/tmp/pb_rows_XXXXXX");
    assert_non_null(mkdtemp(dir));
    CHECK_OK(pb_results_create(dir));
    CHECK_OK(pb_emitter_open(dir, s));
    s->run_id = "r", s->machine_id = "m";
}

static inline void close_emitter(pb_emitter *s)
{
    static const char *const files[] = {"results.csv", "samples.csv"};
    char path[128];
    pb_emitter_close(s);
    for (int i = 0; i < 2; i++) snprintf(path, sizeof path, "%s/%s", dir, files[i]), unlink(path);
    rmdir(dir);
}

/* Returns the text of results.csv, which is valid until the next call. */
static inline char *results(void)
{
    static char text[1 << 18];
    char path[128];
    snprintf(path, sizeof path, "%s/results.csv", dir);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}
#endif
