/* json.c - reads a JSON file whole. */
#include "bench/json.h"

#include <stdlib.h>

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
