/* hint.h - "did you mean ...?": the nearest of several words. */
#ifndef PB_HINT_H
#define PB_HINT_H
#include <stddef.h>

typedef struct pb_hint {
    const char *word;
    char best[64]; /* "": nothing is near enough */
    int distance;
    char text[128];
} pb_hint;

/* Begin with (pb_hint){.word = typed}, then pass every candidate to pb_hint_try. */
void pb_hint_try(pb_hint *h, const char *candidate);
/* "; did you mean 'x'?" or "". */
const char *pb_hint_text(pb_hint *h);
/* Letters to insert, delete, replace or swap. Words beyond 63 letters count as far apart. */
int pb_edit_distance(const char *a, const char *b);
#endif
