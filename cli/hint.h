/* hint.h - "did you mean ...?": finds the candidate that is closest to a mistyped word. */
#ifndef PB_HINT_H
#define PB_HINT_H
#include <stddef.h>

typedef struct pb_hint {
    const char *word;
    char best[64]; /* the closest candidate; "": none is close enough */
    int distance;
    char text[128];
} pb_hint;

/* Start with (pb_hint){.word = typed}, call pb_hint_try for every candidate, then pb_hint_text. */
void pb_hint_try(pb_hint *h, const char *candidate);
/* Returns "; did you mean 'x'?", or "" if no candidate is close enough. The text is stored in *h. */
const char *pb_hint_text(pb_hint *h);
/* Edit distance: insertions, deletions, replacements and swaps of adjacent characters cost 1 each. INT_MAX if a word
 * has more than 63 bytes. */
int pb_edit_distance(const char *a, const char *b);
#endif
