/* open_files.h - the limit of files that a process may have open at once (ulimit -n). */
#ifndef PB_OPEN_FILES_H
#define PB_OPEN_FILES_H
#include <stddef.h>

#include "os/status.h"

/* Raises the limit, if it is lower, to n and 64 other files, pipes and sockets. poll() fails if it gets more descriptors
 * than the limit. `why` is the beginning of the message, such as "to watch 60 ranks". EIO: the limit cannot be raised so
 * far. */
pb_status pb_allow_open_files(size_t n, const char *why);
#endif
