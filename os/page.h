/* page.h - collects printed text in memory, and then writes it to a file: completely, or not at all. */
#ifndef PB_PAGE_H
#define PB_PAGE_H
#include <stddef.h>
#include <stdio.h>

#include "os/status.h"

typedef struct pb_page {
    char *text; /* owned; only page.c may read it, because it is not valid until the stream is closed */
    size_t n;
    FILE *f; /* print here */
} pb_page;

/* Writes n bytes to the file `path`: pb_append, pb_file_create or pb_file_replace. */
typedef pb_status pb_page_put(const char *path, const void *bytes, size_t n);

/* Opens an empty page, which pb_page_save or pb_page_append frees. ENOMEM. */
pb_status pb_page_open(pb_page *p);
/* Writes the page's text to the file `path` with `put`, and frees the page. `s` is the status of the code that printed
 * into the page: if it is a failure, nothing is written and `s` is returned. ENOMEM, and the errors of `put`. */
pb_status pb_page_save(pb_page *p, pb_status s, pb_page_put *put, const char *path);
/* Appends the page's text to the open file `fd`, and frees the page, also on failure. `what`: name of the file in error
 * messages. EIO, ENOMEM. */
pb_status pb_page_append(pb_page *p, int fd, const char *what);
#endif
