/* place.c - writes who a rank is and where it is. */
#include "launch/place.h"

#include <stdio.h>

int pb_rank_name(const pb_launch_message *said, char *out, size_t room)
{
    const int k = snprintf(out, room, "rank %d on %s", said->rank, said->host);
    return said->device[0] ? k + snprintf(out + k, room - (size_t)k, " (%s)", said->device) : k;
}

const char *pb_rank_place(const pb_launch_message *said, char *out, size_t room)
{
    int k = pb_rank_name(said, out, room);
    if (said->step >= 0) k += snprintf(out + k, room - (size_t)k, ", step %lld", (long long)said->step);
    if (said->phase[0]) k += snprintf(out + k, room - (size_t)k, ", phase %s", said->phase);
    if (said->collective[0])
        snprintf(out + k, room - (size_t)k, ", collective %s %llu", said->collective,
                 (unsigned long long)said->sequence);
    return out;
}
