/* page.c - collects text in a memory stream, and writes it to a file in one call. */
#include "os/page.h"

#include <stdbool.h>
#include <stdlib.h>

#include "os/append.h"

pb_status pb_page_open(pb_page *p)
{
    *p = (pb_page){0};
    p->f = open_memstream(&p->text, &p->n);
    return p->f ? PB_OK : pb_fail(PB_ENOMEM, "out of memory while collecting the text of a file");
}

/* Closes the memory stream. If an allocation of the stream failed earlier, ferror or fclose reports it here. */
static pb_status close_stream(pb_page *p, pb_status s)
{
    const bool whole = !ferror(p->f);
    if ((fclose(p->f) == 0 && whole) || s != PB_OK) return s;
    return pb_fail(PB_ENOMEM, "out of memory while collecting the text of a file");
}

pb_status pb_page_save(pb_page *p, pb_status s, pb_page_put *put, const char *path)
{
    s = close_stream(p, s);
    if (s == PB_OK) s = put(path, p->text, p->n);
    free(p->text);
    return s;
}

pb_status pb_page_append(pb_page *p, int fd, const char *what)
{
    pb_status s = close_stream(p, PB_OK);
    if (s == PB_OK) s = pb_append_put(fd, what, p->text, p->n);
    free(p->text);
    return s;
}
