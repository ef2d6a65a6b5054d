/* digest.h - XXH3-128 digests of byte streams, as text. They detect damage; they are not cryptographic. */
#ifndef PB_DIGEST_H
#define PB_DIGEST_H
#include <stdint.h>

#include "os/disk.h"

typedef struct pb_digest pb_digest;
typedef struct pb_digest_text {
    char hex[33]; /* 32 lower-case hexadecimal digits: the canonical (big-endian) form of xxhsum -H2 */
} pb_digest_text;

pb_status pb_digest_open(pb_digest **out);
void pb_digest_add(pb_digest *d, const void *bytes, size_t n);
pb_digest_text pb_digest_get(const pb_digest *d); /* of all bytes added so far */
void pb_digest_close(pb_digest *d);               /* NULL is allowed */

pb_digest_text pb_digest_of(const void *bytes, size_t n);
bool pb_digest_equal(const pb_digest_text *a, const pb_digest_text *b);
bool pb_digest_is_text(const char *text); /* true: exactly 32 lower-case hexadecimal digits */

typedef struct pb_file_digest {
    uint64_t bytes; /* size of the whole file */
    pb_digest_text digest;
} pb_file_digest;
/* Computes the digest of a file without its first `skip` bytes. EPATH, EIO: the message names the path. */
pb_status pb_digest_file(const pb_disk *disk, const char *path, uint64_t skip, pb_file_digest *out);
#endif
