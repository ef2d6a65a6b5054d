/* ranges.c - passes each range to those who listen, and keeps names that are not static. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/listen.h"

volatile int pb_ranges_on;

const char *const pb_range_kinds[PB_RANGE_KINDS] = {
#define X(kind, what) #kind,
    PB_RANGE_MAP(X)
#undef X
};

static void start(void)
{
    if (pb_nvtx_start()) __atomic_or_fetch(&pb_ranges_on, PB_LISTENS_NVTX, __ATOMIC_RELAXED);
}

void pb_ranges_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, start);
}

void pb_range_begin(pb_range_kind kind, const char *name, int64_t value)
{
    const int on = pb_ranges_on;
    if (on & PB_LISTENS_NVTX) pb_nvtx_begin(kind, name, value);
    if (on & PB_LISTENS_RING) pb_ring_begin(kind, name, value);
}

void pb_range_finish(void)
{
    const int on = pb_ranges_on;
    if (on & PB_LISTENS_RING) pb_ring_finish();
    if (on & PB_LISTENS_NVTX) pb_nvtx_finish();
}

typedef struct kept {
    struct kept *next;
    char name[];
} kept;

const char *pb_range_name(const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static kept *all;
    (void)pthread_mutex_lock(&lock);
    kept *k = all;
    while (k && strcmp(k->name, name) != 0) k = k->next;
    if (!k) {
        const size_t n = strlen(name) + 1;
        k = malloc(sizeof *k + n);
        if (k) {
            memcpy(k->name, name, n);
            k->next = all;
            all = k;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return k ? k->name : NULL;
}
