/* words.c - splits lists of words. */
#include "cli/words.h"

#include <string.h>

bool pb_has_empty_item(const char *list, char separator)
{
    for (const char *end;; list = end + 1) {
        end = strchr(list, separator);
        if (end == list || !*list) return true;
        if (!end) return false;
    }
}

const char *pb_next_item(const char *list, char separator, char *out, size_t n)
{
    while (list && *list == separator) list++;
    if (!list || !*list) return NULL;
    const char *end = strchr(list, separator);
    size_t len = end ? (size_t)(end - list) : strlen(list);
    if (len >= n) len = n - 1;
    memcpy(out, list, len);
    out[len] = 0;
    return end ? end : list + strlen(list);
}
