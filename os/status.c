/* status.c - stores the message of each thread's last failure, and maps errno values to statuses. */
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
    pb_make_printable(message, '?'); /* the message may quote text of a file */
    return s;
}

/* Returns EPATH for an errno value that another path or permission would avoid, and EIO for all others. */
static pb_status of_errno(int error)
{
    switch (error) {
    case EACCES:
    case EBUSY:
    case EEXIST:
    case EINVAL: /* rename() of a folder into itself */
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
        snprintf(message + n, sizeof message - (size_t)n, ": %s", strerror(error)); /* text of the C locale */
    pb_make_printable(message, '?'); /* the message may quote text of a file */
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
