/* place.h - who a rank is and where it is in its work, as text for messages. */
#ifndef PB_PLACE_H
#define PB_PLACE_H
#include <stddef.h>

#include "launch/message.h"

/* Writes the rank, its host and its device, such as "rank 1 on node2 (cuda:1)". Returns the number of characters. */
int pb_rank_name(const pb_launch_message *said, char *out, size_t room);
/* The same, followed by its step, phase and collective, as far as it is in any. Returns out. */
const char *pb_rank_place(const pb_launch_message *said, char *out, size_t room);
#endif
