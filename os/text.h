/* text.h - texts of files and users in messages and tables: a control character in them would steer the terminal. */
#ifndef PB_OS_TEXT_H
#define PB_OS_TEXT_H
#include <stdbool.h>

/* Whether the text may stand in a message: no control characters, also not those of UTF-8 (U+0080 to U+009F). */
bool pb_is_printable(const char *text);
/* Writes a character over every control character, so that a text from a file cannot steer a terminal. */
void pb_make_printable(char *text, char in_place);
#endif
