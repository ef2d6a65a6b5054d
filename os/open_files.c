/* open_files.c - implements open_files.h. */
#include "os/open_files.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

pb_status pb_allow_open_files(size_t n, const char *why)
{
    enum { OTHERS = 64 };
    struct rlimit limit;
    n += OTHERS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= n) return PB_OK;
    limit.rlim_cur = n;
    if (n > limit.rlim_max)
        return pb_fail(PB_EIO, "%s, %zu files must be open at once, and %llu are allowed (ulimit -Hn)", why, n,
                       (unsigned long long)limit.rlim_max);
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return PB_OK;
    return pb_fail(PB_EIO, "%s, %zu files must be open at once, and the limit cannot be raised: %s", why, n,
                   strerror(errno));
}
