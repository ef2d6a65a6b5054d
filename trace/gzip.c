/* gzip.c - implements gzip.h with zlib. */
#include "trace/gzip.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LEVEL = 1, WINDOW_BITS = 15 + 16 /* gzip format */ };

pb_status pb_gzip_open(const pb_disk *d, const char *path, pb_gzip *g)
{
    memset(&g->z, 0, sizeof g->z);
    g->status = PB_OK;
    g->in = g->out = g->held = 0;
    PB_TRY(pb_draft_open(d, path, &g->draft));
    if (deflateInit2(&g->z, LEVEL, Z_DEFLATED, WINDOW_BITS, 8, Z_DEFAULT_STRATEGY) == Z_OK) return PB_OK;
    pb_draft_drop(&g->draft);
    return pb_fail(PB_ENOMEM, "%s: no memory to compress it", path);
}

/* Compresses what is held; flush: Z_NO_FLUSH or Z_FINISH. */
static void pack(pb_gzip *g, int flush)
{
    g->z.next_in = (Bytef *)g->text;
    g->z.avail_in = (uInt)g->held;
    do {
        g->z.next_out = (Bytef *)g->packed;
        g->z.avail_out = PB_GZIP_ROOM;
        (void)deflate(&g->z, flush); /* fails only on arguments that are not the case here */
        const size_t n = PB_GZIP_ROOM - g->z.avail_out;
        if (g->status == PB_OK && n) g->status = pb_draft_put(&g->draft, g->packed, n);
        g->out += n;
    } while (g->z.avail_out == 0);
    g->held = 0;
}

void pb_gzip_put(pb_gzip *g, const char *text, size_t n)
{
    g->in += n;
    while (n) {
        if (g->held == PB_GZIP_ROOM) pack(g, Z_NO_FLUSH);
        const size_t part = n < PB_GZIP_ROOM - g->held ? n : PB_GZIP_ROOM - g->held;
        memcpy(g->text + g->held, text, part);
        g->held += part;
        text += part;
        n -= part;
    }
}

void pb_gzip_print(pb_gzip *g, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    pb_gzip_put(g, line, n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

void pb_gzip_string(pb_gzip *g, const char *text)
{
    pb_gzip_put(g, "\"", 1);
    for (const char *end = text + strnlen(text, PB_GZIP_NAME); text < end; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') pb_gzip_print(g, "\\%c", c);
        else if (c < ' ' || c == 127) pb_gzip_print(g, "\\u%04x", c);
        else pb_gzip_put(g, text, 1);
    }
    pb_gzip_put(g, "\"", 1);
}

size_t pb_gzip_mark(pb_gzip *g)
{
    if (g->held > PB_GZIP_ROOM - PB_GZIP_EVENT) pack(g, Z_NO_FLUSH);
    return g->in;
}

bool pb_gzip_fits(pb_gzip *g, size_t mark, size_t limit)
{
    if (g->in <= limit) return true;
    g->held -= g->in - mark;
    g->in = mark;
    return false;
}

pb_status pb_gzip_close(pb_gzip *g)
{
    pack(g, Z_FINISH);
    (void)deflateEnd(&g->z);
    if (g->status == PB_OK) return pb_draft_keep(&g->draft);
    pb_draft_drop(&g->draft);
    return g->status;
}
