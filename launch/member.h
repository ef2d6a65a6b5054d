/* member.h - a rank's side of the supervision of a job of several ranks. A helper thread connects to the monitor, sends
 * where this rank is (os/where.h) at least once a second, and hears from the monitor that the job must stop or end.
 * Nothing here uses MPI or NCCL.
 *
 * The monitor runs in the launcher (`train --ranks N`, `bench --ranks N`: launch.h). Ranks that the user started with
 * mpirun, srun or torchrun have none: there rank 0 hosts it (pb_launch_host), and passes its address to the others over
 * a collective of the caller (pb_world_broadcast). */
#ifndef PB_LAUNCH_MEMBER_H
#define PB_LAUNCH_MEMBER_H
#include <stdbool.h>

#include "os/status.h"

/* Set by the launcher for its ranks: "ADDRESS:PORT:TOKEN:TIMEOUT", the value of pb_launch_address. */
#define PB_LAUNCH_VARIABLE "PB_LAUNCH"
enum { PB_LAUNCH_ADDRESS = 256 }; /* bytes of an address with NUL */
#define PB_RANK_TIMEOUT 60.0      /* seconds, the default of --rank-timeout */
#define PB_RANK_GRACE   10.0      /* seconds that a rank has to end after the job was lost */

typedef struct pb_launch_self {
    int rank, size;
    const char *device; /* such as "cuda:0", for messages; "": none */
} pb_launch_self;

/* True if the launcher started this process: the variable above is set. */
bool pb_launched(void);
/* Connects to the monitor at `address`; NULL: the one of the variable. In a rank of the launcher other than rank 0,
 * also redirects standard output to /dev/null and, on the launcher's host, standard error to a file whose end the
 * launcher prints if that rank fails. Call it once, first in main(). EINVAL: not an address. EIO: no monitor answers
 * there, or no thread can be started. */
pb_status pb_launch_join(const pb_launch_self *self, const char *address);
/* Hosts the monitor of `size` ranks in a thread of this process, and writes its address into `address`. The monitor
 * listens on all interfaces and gives out the host's name, or PB_LAUNCH_HOST if that is set. EIO. */
pb_status pb_launch_host(int size, double rank_timeout, char address[PB_LAUNCH_ADDRESS]);

/* Names the device of this rank in messages, once it is known better than at pb_launch_join. */
void pb_launch_device(const char *device);
/* fn(self, code, why), which returns at once, is called in the helper thread when another rank, or the monitor, is
 * lost: end the collectives that wait (pb_comm_abort or pb_comm_abandon), so that this rank can end with exit code
 * `code`. PB_RANK_GRACE seconds later the process ends by _exit(code), also if fn does not return. If the job is lost
 * already, fn is called at once, in the calling thread. NULL: no function; when the call returns, the function before
 * is not running and will not be called. */
void pb_launch_on_lost(void (*fn)(void *self, int code, const char *why), void *self);
/* The exit code with which this rank must end because the job is lost; -1: the job is not lost. main() returns it in
 * place of its own. */
int pb_launch_lost(void);
/* Tells the monitor that this rank ends by itself with this exit code, and closes the connection. The last call of
 * main(); does nothing without pb_launch_join. */
void pb_launch_leave(int exit_code);
#endif
