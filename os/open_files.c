/* open_files.c - implements open_files.h. */
#include "os/open_files.h"

#include <sys/resource.h>

pb_status pb_allow_open_files(size_t n, const char *why)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= n) return PB_OK;
    const rlim_t most = limit.rlim_max;
    limit.rlim_cur = n;
    if (n <= most && setrlimit(RLIMIT_NOFILE, &limit) == 0) return PB_OK;
    return pb_fail(PB_EINVAL, "%s, %zu files must be open at once, and %llu are allowed (ulimit -Hn)", why, n,
                   (unsigned long long)most);
}
