/* nodes.c - implements nodes.h with open addressing. Equal places are stored once: a graph has thousands of nodes, but
 * few ops. */
#include "trace/nodes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct known {
    uint64_t id; /* 0: free */
    const pb_range_stack *place;
} known;

typedef struct kept_place {
    struct kept_place *next;
    pb_range_stack place;
} kept_place;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known *table; /* [room], at most half full */
static size_t room, used;
static kept_place *places;

static bool same_place(const pb_range_stack *a, const pb_range_stack *b)
{
    if (a->depth != b->depth) return false;
    for (int i = 0; i < a->depth; i++)
        if (a->at[i].name != b->at[i].name || a->at[i].value != b->at[i].value || a->at[i].kind != b->at[i].kind ||
            a->at[i].flops != b->at[i].flops || a->at[i].bytes != b->at[i].bytes)
            return false;
    return true;
}

static const pb_range_stack *keep(const pb_range_stack *place)
{
    kept_place *k = places;
    while (k && !same_place(&k->place, place)) k = k->next;
    if (k) return &k->place;
    k = malloc(sizeof *k);
    if (!k) return NULL;
    k->next = places;
    k->place = *place;
    places = k;
    return &k->place;
}

static known *slot_of(known *in, size_t n, uint64_t id)
{
    size_t at = (size_t)(id * 0x9e3779b97f4a7c15ull >> 20) & (n - 1);
    while (in[at].id && in[at].id != id) at = (at + 1) & (n - 1);
    return &in[at];
}

static bool make_room(void)
{
    if (2 * (used + 1) <= room) return true;
    const size_t more = room ? 2 * room : 4096;
    known *bigger = calloc(more, sizeof *bigger);
    if (!bigger) return false;
    for (size_t i = 0; i < room; i++)
        if (table[i].id) *slot_of(bigger, more, table[i].id) = table[i];
    free(table);
    table = bigger;
    room = more;
    return true;
}

static void put(uint64_t id, const pb_range_stack *place)
{
    if (!id || !place || !make_room()) return;
    known *k = slot_of(table, room, id);
    used += !k->id;
    *k = (known){id, place};
}

static const pb_range_stack *get(uint64_t id) { return id && room ? slot_of(table, room, id)->place : NULL; }

void pb_nodes_add(uint64_t id, const pb_range_stack *place)
{
    (void)pthread_mutex_lock(&lock);
    put(id, keep(place));
    (void)pthread_mutex_unlock(&lock);
}

void pb_nodes_copy(uint64_t copy, uint64_t original)
{
    (void)pthread_mutex_lock(&lock);
    put(copy, get(original));
    (void)pthread_mutex_unlock(&lock);
}

const pb_range_stack *pb_nodes_find(uint64_t id)
{
    (void)pthread_mutex_lock(&lock);
    const pb_range_stack *p = get(id);
    (void)pthread_mutex_unlock(&lock);
    return p;
}
