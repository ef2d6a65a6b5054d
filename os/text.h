/* text.h - finds and replaces control characters in text from files or users. A terminal would execute them if they
 * were printed in a message or table. */
#ifndef PB_OS_TEXT_H
#define PB_OS_TEXT_H
#include <stdbool.h>

/* True if the text has no control characters: bytes 0x01 to 0x1f, byte 0x7f, and U+0080 to U+009F in
 * UTF-8. */
bool pb_is_printable(const char *text);
/* Overwrites every byte of every control character with `in_place`. */
void pb_make_printable(char *text, char in_place);
#endif
