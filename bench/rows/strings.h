/* strings.h - interned text: equal strings are one pointer, and all of them are freed together. */
#ifndef PB_STRINGS_H
#define PB_STRINGS_H
#include <stddef.h>

typedef struct pb_strings pb_strings;
pb_strings *pb_strings_new(void); /* NULL: out of memory */
void pb_strings_free(pb_strings *s);
/* The one copy of bytes[0..n), NUL-terminated; NULL: out of memory. It never moves. */
const char *pb_intern(pb_strings *s, const char *bytes, size_t n);
size_t pb_strings_count(const pb_strings *s); /* different ones so far */
#endif
