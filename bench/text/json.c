/* json.c - reads JSON files, and removes credentials from words that are written to them. */
#include "bench/text/json.h"

#include <stdlib.h>
#include <string.h>

#include "os/disk.h"

enum { MOST = 256 << 20 };

pb_status pb_json_read(const char *path, json_t **out)
{
    char *text;
    size_t n;
    json_error_t e;
    PB_TRY(pb_disk_read_file(&pb_disk_posix, path, MOST, &text, &n));
    *out = json_loadb(text, n, 0, &e);
    free(text);
    return *out ? PB_OK : pb_fail(PB_EINVAL, "%s:%d: %s", path, e.line, e.text);
}

/* Returns the start of the host in the URL whose "://" is at `mark`: after the last "@" before the path, the query or
 * the end of the word. */
static const char *host_of(const char *mark)
{
    const char *from = mark + 3, *host = from;
    const size_t n = strcspn(from, "/?#\\ \t\"'");
    for (size_t i = 0; i < n; i++)
        if (from[i] == '@') host = from + i + 1;
    return host;
}

static void strip_credentials(char *text)
{
    for (char *mark = text; (mark = strstr(mark, "://")); mark += 3) {
        const char *host = host_of(mark);
        memmove(mark + 3, host, strlen(host) + 1);
    }
}

json_t *pb_json_word(const char *text)
{
    char *plain = strdup(text);
    if (!plain) return NULL;
    strip_credentials(plain);
    json_t *word = json_string(plain);
    free(plain);
    return word ? word : json_string("(not UTF-8)");
}
