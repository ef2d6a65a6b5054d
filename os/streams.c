/* streams.c - opens /dev/null on those of the descriptors 0, 1 and 2 that are closed. */
#include "os/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* open(2) returns the lowest free descriptor. When the loop reaches `fd`, all lower descriptors are open, so open
 * returns `fd` if it is closed. */
void pb_streams_open(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) != fd)
            _exit(125);
    signal(SIGXFSZ, SIG_IGN);
}
