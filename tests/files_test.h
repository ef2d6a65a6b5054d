/* files_test.h - paths of fixtures by name, and captured output, for tests of functions that read and write files. */
#ifndef PB_FILES_TEST_H
#define PB_FILES_TEST_H
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#define FIXTURE(name) PB_SOURCE_DIR "/tests/fixtures/compare/" name

/* The path of a fixture whose name is not a literal. The result is valid until the fourth call after this one. */
static inline const char *fixture(const char *name)
{
    static char path[4][1024];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s%s", FIXTURE(""), name);
    return path[at];
}

typedef struct capture {
    FILE *f;
    char *text; /* set by capture_end */
    size_t n;
} capture;

static inline FILE *capture_begin(capture *c)
{
    c->f = open_memstream(&c->text, &c->n);
    assert_non_null(c->f);
    return c->f;
}

static inline const char *capture_end(capture *c)
{
    fclose(c->f);
    return c->text;
}

/* Returns the start of the last line of `text`. */
static inline const char *last_line(const char *text)
{
    const char *last = text;
    for (const char *p = text; *p; p++)
        if (*p == '\n' && p[1]) last = p + 1;
    return last;
}
#endif
