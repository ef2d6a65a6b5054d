/* strings.c - interned strings: text in chunks that never move, found by a hash table with open addressing. */
#include "bench/rows/strings.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 256 << 10, FIRST_SLOTS = 1 << 10 };

typedef struct chunk {
    struct chunk *next;
    size_t used, size;
    char text[];
} chunk;

typedef struct slot {
    const char *text; /* NULL: the slot is free */
    uint32_t hash, len;
} slot;

struct pb_strings {
    chunk *chunks;
    slot *slots;
    size_t nslots, n; /* nslots is a power of two */
};

pb_strings *pb_strings_new(void)
{
    pb_strings *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->nslots = FIRST_SLOTS;
    s->slots = calloc(s->nslots, sizeof *s->slots);
    if (s->slots) return s;
    free(s);
    return NULL;
}

void pb_strings_free(pb_strings *s)
{
    if (!s) return;
    for (chunk *c = s->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(s->slots);
    free(s);
}

/* A fast hash in the manner of FNV-1a that takes 8 bytes at a time. It does not resist deliberate collisions. */
static uint32_t hash_of(const char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u ^ n, w;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&w, p, 8);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    w = 0;
    memcpy(&w, p, n);
    h = (h ^ w) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

/* Returns the slot that holds the string p[0..n), or the free slot where it must be stored. */
static slot *place(const pb_strings *s, const char *p, size_t n, uint32_t hash)
{
    for (size_t i = hash & (s->nslots - 1);; i = (i + 1) & (s->nslots - 1)) {
        slot *at = &s->slots[i];
        if (!at->text || (at->hash == hash && at->len == n && !memcmp(at->text, p, n))) return at;
    }
}

/* Doubles the hash table. 0: out of memory, and the old table is kept. */
static int grow(pb_strings *s)
{
    slot *old = s->slots;
    size_t nold = s->nslots;
    slot *slots = calloc(nold * 2, sizeof *slots);
    if (!slots) return 0;
    s->slots = slots;
    s->nslots = nold * 2;
    for (size_t i = 0; i < nold; i++)
        if (old[i].text) *place(s, old[i].text, old[i].len, old[i].hash) = old[i];
    free(old);
    return 1;
}

/* Takes `bytes` bytes from the current chunk, or from a new one. NULL: out of memory. */
static char *carve(pb_strings *s, size_t bytes)
{
    chunk *c = s->chunks;
    if (!c || c->size - c->used < bytes) {
        size_t size = bytes > CHUNK ? bytes : CHUNK;
        if (!(c = malloc(sizeof *c + size))) return NULL;
        *c = (chunk){.next = s->chunks, .size = size};
        s->chunks = c;
    }
    char *at = c->text + c->used;
    c->used += bytes;
    return at;
}

const char *pb_intern(pb_strings *s, const char *bytes, size_t n)
{
    uint32_t hash = hash_of(bytes, n);
    slot *at = place(s, bytes, n, hash);
    if (at->text) return at->text;
    if (s->n * 2 >= s->nslots) {
        if (!grow(s)) return NULL;
        at = place(s, bytes, n, hash);
    }
    char *copy = carve(s, n + 1);
    if (!copy) return NULL;
    if (n) memcpy(copy, bytes, n);
    copy[n] = 0;
    *at = (slot){copy, hash, (uint32_t)n};
    s->n++;
    return copy;
}

size_t pb_strings_count(const pb_strings *s) { return s->n; }
