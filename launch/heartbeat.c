/* heartbeat.c - the measuring process writes heartbeats and messages into the pipe to its parent. */
#include "launch/heartbeat.h"

#include <stddef.h>
#include <unistd.h>

#include "kernels/engine/clock.h"

void pb_heartbeat_send(pb_heartbeat *p, char what)
{
    p->last = pb_clock_seconds();
    if (p->fd >= 0 && write(p->fd, &what, 1) != 1) p->fd = -1;
}

void pb_heartbeat_send_if_due(pb_heartbeat *p)
{
    if (p && p->fd >= 0 && pb_clock_seconds() - p->last >= p->every) pb_heartbeat_send(p, PB_SAYS_ALIVE);
}
