/* gzip.h - writes a file through gzip; the file appears when it is complete (os/draft.h). */
#ifndef PB_TRACE_GZIP_H
#define PB_TRACE_GZIP_H
#include <stdbool.h>
#include <stddef.h>
#include <zlib.h>

#include "os/draft.h"

enum {
    PB_GZIP_ROOM = 1 << 16,
    PB_GZIP_EVENT = PB_GZIP_ROOM / 2, /* most bytes of an event that can be taken back */
    PB_GZIP_NAME = 4000               /* most bytes of a string before its escapes; the rest is cut off */
};

/* After a failure every later call returns the same status and does nothing else. */
typedef struct pb_gzip {
    pb_draft draft;
    z_stream z;
    pb_status status;
    size_t in, out; /* bytes before and after compression, without what is still in the buffers */
    size_t held;
    char text[PB_GZIP_ROOM], packed[PB_GZIP_ROOM];
} pb_gzip;

/* EPATH, EIO, ENOMEM: nothing was begun. */
pb_status pb_gzip_open(const pb_disk *d, const char *path, pb_gzip *g);
void pb_gzip_put(pb_gzip *g, const char *text, size_t n);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void pb_gzip_print(pb_gzip *g, const char *fmt, ...); /* at most 1023 bytes */
/* Appends `text` as a JSON string with its quotation marks, at most PB_GZIP_NAME bytes of it. Bytes that are not ASCII
 * are copied. */
void pb_gzip_string(pb_gzip *g, const char *text);
/* An event that is taken back if the text would become longer than a limit. pb_gzip_mark(): before the event, which may
 * have PB_GZIP_EVENT bytes. pb_gzip_fits(): after it; false: the text was longer than `limit`, and is again as it
 * was. */
size_t pb_gzip_mark(pb_gzip *g);
bool pb_gzip_fits(pb_gzip *g, size_t mark, size_t limit);
/* Publishes the file, or removes it if an earlier call has failed. */
pb_status pb_gzip_close(pb_gzip *g);
#endif
