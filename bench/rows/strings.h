/* strings.h - interned strings: equal strings are stored once, so comparing pointers compares strings. All are freed
 * together. */
#ifndef PB_STRINGS_H
#define PB_STRINGS_H
#include <stddef.h>

typedef struct pb_strings pb_strings;
pb_strings *pb_strings_new(void); /* NULL: out of memory */
void pb_strings_free(pb_strings *s);
/* Returns the copy of bytes[0..n) that `s` owns, NUL-terminated: equal bytes always give the same pointer. It stays
 * valid until pb_strings_free(). NULL: out of memory. */
const char *pb_intern(pb_strings *s, const char *bytes, size_t n);
size_t pb_strings_count(const pb_strings *s); /* distinct strings so far */
#endif
