/* words.h - lists of words, for code that takes lists from a command line but does not parse command lines. */
#ifndef PB_WORDS_H
#define PB_WORDS_H
#include <stdbool.h>
#include <stddef.h>

enum { PB_OPTION_LIST = 256 }; /* most words of a list */
typedef struct pb_words {
    const char *v[PB_OPTION_LIST]; /* [n], borrowed */
    int n;
} pb_words;

/* Copies the next item of a list such as "batch=1 clip=fused" or "1,4" to out[n], and returns a pointer to the rest, or
 * NULL at the end of the list. Empty items are skipped. An item longer than n-1 bytes is truncated. */
const char *pb_next_item(const char *list, char separator, char *out, size_t n);
/* True if the list is empty or has an empty item: "1,,4", ",1" or "1,". */
bool pb_has_empty_item(const char *list, char separator);
#endif
