/* status.c - the text behind a status, one a thread. */
#include "kernels/core/status.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char message[512];

pb_status(pb_fail)(pb_status s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    return s;
}

const char *pb_error(void) { return message; }

const char *pb_status_name(pb_status s)
{
    switch (s) {
#define X(name, text)                                                                                                  \
    case PB_##name: return text;
        PB_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}
