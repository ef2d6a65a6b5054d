/* csv_split.h - splits a CSV stream into fields with libcsv, for readers other than read.h. */
#ifndef PB_CSV_SPLIT_H
#define PB_CSV_SPLIT_H
#include <stdio.h>

#include "os/status.h"

typedef struct pb_csv_split_to {
    void (*on_field)(void *bytes, size_t n, void *self); /* called for each field; bytes: NUL-terminated, or NULL */
    void (*on_line)(int terminator, void *self);         /* called at the end of each line that is not blank */
    void *self;
    const char *path;        /* name of the file, for error messages */
    const size_t *line;      /* number of the current line, for error messages; on_line counts it */
    const pb_status *status; /* reading stops when it is not PB_OK */
} pb_csv_split_to;

/* Reads the stream to its end, or until *to->status is not PB_OK. EIO; EINVAL: a misplaced quote; ENOMEM. */
pb_status pb_csv_split(FILE *f, const pb_csv_split_to *to);
#endif
