/* nodes.c - implements nodes.h with open addressing. Equal places are stored once: a graph has thousands of nodes, but
 * few ops. */
#include "trace/nodes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct known {
    pb_node_note note; /* id 0: free */
    uint64_t order;    /* 1: noted first */
} known;

typedef struct kept_place {
    struct kept_place *next;
    pb_range_stack place;
} kept_place;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known *table; /* [room], at most half full */
static size_t room, used;
static uint64_t noted;
static kept_place *places;

static bool same_collective(const pb_range_collective *a, const pb_range_collective *b)
{
    if (!a->group || !b->group) return a->group == b->group;
    return a->group == b->group && a->dtype == b->dtype && a->ranks == b->ranks && a->number == b->number;
}

static bool same_place(const pb_range_stack *a, const pb_range_stack *b)
{
    if (a->depth != b->depth) return false;
    for (int i = 0; i < a->depth; i++)
        if (a->at[i].name != b->at[i].name || a->at[i].value != b->at[i].value || a->at[i].kind != b->at[i].kind ||
            a->at[i].flops != b->at[i].flops || a->at[i].bytes != b->at[i].bytes ||
            !same_collective(&a->at[i].of, &b->at[i].of))
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
    while (in[at].note.id && in[at].note.id != id) at = (at + 1) & (n - 1);
    return &in[at];
}

static bool make_room(void)
{
    if (2 * (used + 1) <= room) return true;
    const size_t more = room ? 2 * room : 4096;
    known *bigger = calloc(more, sizeof *bigger);
    if (!bigger) return false;
    for (size_t i = 0; i < room; i++)
        if (table[i].note.id) *slot_of(bigger, more, table[i].note.id) = table[i];
    free(table);
    table = bigger;
    room = more;
    return true;
}

static void put(uint64_t id, uint64_t original, const pb_range_stack *place)
{
    if (!id || !place || !make_room()) return;
    known *k = slot_of(table, room, id);
    used += !k->note.id;
    const bool again = k->note.id && k->note.original == original && k->note.place == place;
    *k = (known){{id, original, place}, again ? k->order : ++noted};
}

static const pb_range_stack *get(uint64_t id) { return id && room ? slot_of(table, room, id)->note.place : NULL; }

void pb_nodes_add(uint64_t id, const pb_range_stack *place)
{
    (void)pthread_mutex_lock(&lock);
    put(id, 0, keep(place));
    (void)pthread_mutex_unlock(&lock);
}

void pb_nodes_copy(uint64_t copy, uint64_t original)
{
    (void)pthread_mutex_lock(&lock);
    put(copy, original, get(original));
    (void)pthread_mutex_unlock(&lock);
}

const pb_range_stack *pb_nodes_find(uint64_t id)
{
    (void)pthread_mutex_lock(&lock);
    const pb_range_stack *p = get(id);
    (void)pthread_mutex_unlock(&lock);
    return p;
}

static int by_order(const void *x, const void *y)
{
    const known *a = x, *b = y;
    return a->order < b->order ? -1 : a->order > b->order;
}

pb_status pb_nodes_list(pb_node_note **out, size_t *n)
{
    *n = 0;
    (void)pthread_mutex_lock(&lock);
    *out = malloc((used + 1) * sizeof **out);
    known *all = malloc((used + 1) * sizeof *all);
    if (*out && all) {
        for (size_t i = 0; i < room; i++)
            if (table[i].note.id) all[(*n)++] = table[i];
        qsort(all, *n, sizeof *all, by_order);
        for (size_t i = 0; i < *n; i++) (*out)[i] = all[i].note;
    }
    (void)pthread_mutex_unlock(&lock);
    const bool failed = !*out || !all;
    free(all);
    if (!failed) return PB_OK;
    free(*out);
    *out = NULL;
    return pb_fail(PB_ENOMEM, "profile: no memory to list the nodes of graphs");
}
