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

bool pb_ranges_call_nvtx(bool on)
{
    static bool called;
    if (!pb_nvtx_built || (!called && pb_ranges_on & PB_LISTENS_NVTX)) return false;
    called = on;
    if (on) __atomic_or_fetch(&pb_ranges_on, PB_LISTENS_NVTX, __ATOMIC_RELAXED);
    else __atomic_and_fetch(&pb_ranges_on, ~PB_LISTENS_NVTX, __ATOMIC_RELAXED);
    return true;
}

/* The stack of open ranges of the calling thread, kept while it records a graph. depth also counts ranges beyond
 * PB_RANGE_STACK_DEPTH, which are not stored. */
static _Thread_local bool tracking;
static _Thread_local pb_range_stack place;

static uint64_t counted;

void pb_ranges_count(bool on)
{
    if (on) {
        __atomic_store_n(&counted, 0, __ATOMIC_RELAXED);
        __atomic_or_fetch(&pb_ranges_on, PB_LISTENS_COUNT, __ATOMIC_RELAXED);
    } else __atomic_and_fetch(&pb_ranges_on, ~PB_LISTENS_COUNT, __ATOMIC_RELAXED);
}

uint64_t pb_ranges_counted(void) { return __atomic_load_n(&counted, __ATOMIC_RELAXED); }

static _Thread_local const pb_range_hook *hook;

void pb_ranges_hook(const pb_range_hook *h)
{
    hook = h;
    if (h) __atomic_or_fetch(&pb_ranges_on, PB_LISTENS_HOOK, __ATOMIC_RELAXED);
    else __atomic_and_fetch(&pb_ranges_on, ~PB_LISTENS_HOOK, __ATOMIC_RELAXED);
}

static _Thread_local int64_t layer_now = PB_RANGE_NO_VALUE;

void pb_range_layer_set(int64_t layer) { layer_now = layer; }

int64_t pb_range_layer(void) { return layer_now; }

void pb_range_begin(pb_range_kind kind, const char *name, int64_t value)
{
    const int on = pb_ranges_on;
    if (__builtin_expect(on == PB_LISTENS_RING,
                         1)) { /* in a window, unless a graph is recorded: without the other tests */
        pb_ring_begin(kind, name, value);
        return;
    }
    if (on & PB_LISTENS_NVTX) pb_nvtx_begin(kind, name, value);
    if (on & PB_LISTENS_RING) pb_ring_begin(kind, name, value);
    if (on & PB_LISTENS_HOOK && hook) hook->begin(hook->self, kind, name, value);
    if (on & PB_LISTENS_COUNT) __atomic_add_fetch(&counted, 1, __ATOMIC_RELAXED);
    if (on & PB_LISTENS_STACK && tracking) {
        if (place.depth < PB_RANGE_STACK_DEPTH) {
            place.at[place.depth].kind = kind;
            place.at[place.depth].name = name;
            place.at[place.depth].value = value;
            place.at[place.depth].flops = place.at[place.depth].bytes = 0;
            place.at[place.depth].of.group = NULL;
        }
        place.depth++;
    }
}

void pb_range_finish(void)
{
    const int on = pb_ranges_on;
    if (__builtin_expect(on == PB_LISTENS_RING, 1)) {
        pb_ring_finish();
        return;
    }
    if (on & PB_LISTENS_STACK && tracking && place.depth > 0) place.depth--;
    if (on & PB_LISTENS_HOOK && hook) hook->finish(hook->self);
    if (on & PB_LISTENS_RING) pb_ring_finish();
    if (on & PB_LISTENS_NVTX) pb_nvtx_finish();
}

void pb_range_work(int64_t flops, int64_t bytes)
{
    const int on = pb_ranges_on;
    if (on & PB_LISTENS_RING && !tracking) pb_ring_work(flops, bytes);
    if (on & PB_LISTENS_HOOK && hook) hook->work(hook->self, flops, bytes);
    if (on & PB_LISTENS_STACK && tracking && place.depth > 0 && place.depth <= PB_RANGE_STACK_DEPTH) {
        place.at[place.depth - 1].flops = flops;
        place.at[place.depth - 1].bytes = bytes;
    }
}

void pb_range_note_collective(const pb_range_collective *c)
{
    const int on = pb_ranges_on;
    if (on & PB_LISTENS_RING) pb_ring_collective(c);
    if (on & PB_LISTENS_STACK && tracking && place.depth > 0 && place.depth <= PB_RANGE_STACK_DEPTH)
        place.at[place.depth - 1].of = *c;
}

void pb_range_stack_track(bool on)
{
    tracking = on;
    place.depth = 0;
    if (on) __atomic_or_fetch(&pb_ranges_on, PB_LISTENS_STACK, __ATOMIC_RELAXED);
    else __atomic_and_fetch(&pb_ranges_on, ~PB_LISTENS_STACK, __ATOMIC_RELAXED);
}

pb_range_stack pb_range_stack_now(void)
{
    pb_range_stack p = place;
    if (p.depth > PB_RANGE_STACK_DEPTH) p.depth = PB_RANGE_STACK_DEPTH;
    return p;
}

pb_range_stack pb_range_stack_take(void)
{
    const pb_range_stack p = pb_range_stack_now();
    if (place.depth > 0 && place.depth <= PB_RANGE_STACK_DEPTH)
        place.at[place.depth - 1].flops = place.at[place.depth - 1].bytes = 0;
    return p;
}

void pb_range_stack_move(pb_range_stack *open, const pb_range_stack *want)
{
    int same = 0;
    while (same < open->depth && same < want->depth && open->at[same].name == want->at[same].name &&
           open->at[same].value == want->at[same].value)
        same++;
    for (int i = open->depth; i > same; i--) pb_range_pop();
    for (int i = same; i < want->depth; i++) {
        pb_range_push(want->at[i].kind, want->at[i].name, want->at[i].value);
        if (want->at[i].of.group) pb_range_note_collective(&want->at[i].of);
    }
    *open = *want;
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
