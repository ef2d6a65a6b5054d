/* status.c - the text of the last failure of each thread, and the tables of statuses and errno. */
#include "os/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "os/text.h"

static _Thread_local char message[512];

pb_status(pb_fail)(pb_status s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    pb_make_printable(message, '?'); /* it may quote a file */
    return s;
}

/* Errors that another path or another permission would cure. Everything else is the machine's. */
static pb_status of_errno(int error)
{
    switch (error) {
    case EACCES:
    case EBUSY:
    case EEXIST:
    case EINVAL: /* of rename: a folder into itself */
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENODEV:
    case ENOENT:
    case ENOTDIR:
    case ENOTEMPTY:
    case ENXIO:
    case EPERM:
    case EROFS:
    case ETXTBSY:
    case EXDEV: return PB_EPATH;
    default: return PB_EIO;
    }
}

pb_status(pb_fail_errno)(int error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof message)
        snprintf(message + n, sizeof message - (size_t)n, ": %s", strerror(error)); /* the C locale's text */
    pb_make_printable(message, '?');                                                /* it may quote a file */
    return of_errno(error);
}

const char *pb_error(void) { return message; }

const char *pb_status_name(pb_status s)
{
    switch (s) {
#define X(name, code, text)                                                                                            \
    case PB_##name: return text;
        PB_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

int pb_status_exit(pb_status s)
{
    static const int codes[] = {
#define X(name, code, text) [PB_##name] = code,
        PB_STATUS_MAP(X)
#undef X
    };
    return (size_t)s < sizeof codes / sizeof *codes ? codes[s] : 125;
}
