/* files_test.h - captured output, and text without the names of folders, for tests of functions that read and
 * write files. */
#ifndef PB_FILES_TEST_H
#define PB_FILES_TEST_H
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

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

/* Removes "folder/" from the paths in a text. */
static inline void forget_folder(char *text, const char *folder)
{
    const size_t n = strlen(folder);
    for (char *at = text; (at = strstr(at, folder));)
        if (at[n] == '/') memmove(at, at + n + 1, strlen(at + n + 1) + 1);
        else at++;
}

/* Removes a folder and everything in it. */
static inline void remove_folder(const char *path)
{
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", path);
    assert_int_equal(system(command), 0);
}
#endif
