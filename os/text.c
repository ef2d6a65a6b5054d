/* text.c - finds and overwrites control characters. */
#include "os/text.h"

#include <stddef.h>
#include <string.h>

/* Returns the length in bytes (1 or 2) of the control character at the start of `text`; 0: the text starts with another
 * character or is empty. */
static size_t control(const char *text)
{
    const unsigned char first = (unsigned char)text[0], second = first == 0xc2 ? (unsigned char)text[1] : 0;
    if (second >= 0x80 && second < 0xa0) return 2; /* U+0080 to U+009F, encoded as c2 80 to c2 9f */
    return (first && first < 0x20) || first == 0x7f;
}

bool pb_is_printable(const char *text)
{
    while (*text && !control(text)) text++;
    return !*text;
}

void pb_make_printable(char *text, char in_place)
{
    for (; *text; text++) memset(text, in_place, control(text));
}
