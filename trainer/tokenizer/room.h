/* room.h - enlarges an array before elements are appended to it. */
#ifndef PB_TOK_ROOM_H
#define PB_TOK_ROOM_H
#include <stdlib.h>
#include <string.h>

#include "trainer/tokenizer/tokenizer.h"

/* Enlarges an array to at least `need` elements, by doubling. NULL: out of memory; the array is then unchanged. */
static inline void *pb_tok_grow(void *p, size_t *room, size_t need, size_t size)
{
    size_t n = *room ? *room : 64;
    while (n < need) n = n > SIZE_MAX / 2 ? need : 2 * n;
    void *more = n <= SIZE_MAX / size ? realloc(p, n * size) : NULL;
    if (more) *room = n;
    return more;
}

/* Makes room for `need` elements, or returns ENOMEM from the calling function. */
#define PB_TOK_ROOM(p, room, need)                                                                                     \
    do {                                                                                                               \
        if ((need) > (room)) {                                                                                         \
            void *room_ = pb_tok_grow((p), &(room), (need), sizeof *(p));                                              \
            if (!room_) return pb_fail(PB_ENOMEM, "tokenizer: no memory for %zu elements", (size_t)(need));            \
            (p) = room_;                                                                                               \
        }                                                                                                              \
    } while (0)

static inline pb_status pb_tok_append(pb_bytes *b, const char *s, size_t n)
{
    PB_TOK_ROOM(b->p, b->room, b->n + n);
    if (n) memcpy(b->p + b->n, s, n);
    b->n += n;
    return PB_OK;
}
#endif
