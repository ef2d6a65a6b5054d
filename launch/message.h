/* message.h - what ranks and the monitor send each other: records of one size, in the byte order of the host. Ranks of
 * different byte orders are strangers to each other. Used in this folder only. */
#ifndef PB_LAUNCH_MESSAGE_H
#define PB_LAUNCH_MESSAGE_H
#include <stdint.h>

#include "os/where.h"

enum { PB_LAUNCH_MAGIC = 0x504c4d31, PB_LAUNCH_TOKEN = 33 }; /* "PLM1"; 32 hexadecimal digits and NUL */

typedef enum pb_launch_kind {
    PB_LAUNCH_BEAT = 1, /* rank: where it is */
    PB_LAUNCH_LEAVES,   /* rank: it ends by itself, with exit code `code` */
    PB_LAUNCH_ALIVE,    /* monitor: it still watches */
    PB_LAUNCH_STOP,     /* monitor: stop cleanly; `code` is the signal */
    PB_LAUNCH_END       /* monitor: the job is lost; end with exit code `code`; `text` says why */
} pb_launch_kind;

typedef struct pb_launch_phase {
    char name[24]; /* "": unused */
    double least, middle;
} pb_launch_phase;

typedef struct pb_launch_message {
    uint32_t magic, kind;
    char token[PB_LAUNCH_TOKEN + 3];
    int32_t rank, size, pid, code;
    uint64_t progress, sequence;
    int64_t step;
    char host[64], device[24], phase[32], collective[32], text[256];
    pb_launch_phase phases[PB_WHERE_PHASES];
} pb_launch_message;
#endif
