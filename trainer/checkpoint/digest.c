/* digest.c - computes XXH3-128 digests of bytes and files with libxxhash. */
#include "trainer/checkpoint/digest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct pb_digest {
    XXH3_state_t *state;
};

static pb_digest_text text_of(XXH128_hash_t h)
{
    XXH128_canonical_t bytes;
    pb_digest_text t;
    XXH128_canonicalFromHash(&bytes, h);
    for (size_t i = 0; i < sizeof bytes.digest; i++) snprintf(t.hex + 2 * i, 3, "%02x", bytes.digest[i]);
    return t;
}

pb_status pb_digest_open(pb_digest **out)
{
    pb_digest *d = malloc(sizeof *d);
    XXH3_state_t *state = XXH3_createState();
    if (!d || !state) {
        free(d);
        XXH3_freeState(state);
        return pb_fail(PB_ENOMEM, "no memory for a digest");
    }
    XXH3_128bits_reset(state);
    d->state = state;
    *out = d;
    return PB_OK;
}

void pb_digest_add(pb_digest *d, const void *bytes, size_t n)
{
    if (n) XXH3_128bits_update(d->state, bytes, n);
}

pb_digest_text pb_digest_get(const pb_digest *d) { return text_of(XXH3_128bits_digest(d->state)); }

void pb_digest_close(pb_digest *d)
{
    if (d) XXH3_freeState(d->state);
    free(d);
}

pb_digest_text pb_digest_of(const void *bytes, size_t n) { return text_of(XXH3_128bits(bytes, n)); }

bool pb_digest_equal(const pb_digest_text *a, const pb_digest_text *b) { return strcmp(a->hex, b->hex) == 0; }

bool pb_digest_is_text(const char *text) { return strlen(text) == 32 && strspn(text, "0123456789abcdef") == 32; }

static pb_status read_all(const pb_disk *disk, int fd, const char *path, uint64_t skip, pb_digest *d, uint64_t *bytes)
{
    enum { ROOM = 1 << 20 };
    char *room = malloc(ROOM);
    if (!room) return pb_fail(PB_ENOMEM, "%s: no memory to read it", path);
    size_t n = ROOM;
    pb_status s = PB_OK;
    for (*bytes = 0; n == ROOM;) {
        s = pb_disk_get(disk, fd, path, room, ROOM, &n);
        if (s != PB_OK) break;
        const uint64_t left = skip > *bytes ? skip - *bytes : 0;
        if (left < n) pb_digest_add(d, room + left, (size_t)(n - left));
        *bytes += n;
    }
    free(room);
    return s;
}

pb_status pb_digest_file(const pb_disk *disk, const char *path, uint64_t skip, pb_file_digest *out)
{
    pb_digest *d = NULL;
    pb_file_digest got;
    uint64_t size;
    int fd = -1;
    PB_TRY(pb_disk_open_file(disk, path, &fd, &size));
    pb_status s = pb_digest_open(&d);
    if (s == PB_OK) s = read_all(disk, fd, path, skip, d, &got.bytes);
    if (s == PB_OK) got.digest = pb_digest_get(d);
    pb_digest_close(d);
    s = pb_disk_close(disk, fd, path, s);
    if (s == PB_OK) *out = got;
    return s;
}
