/* json.c - parses JSON objects and writes them to files. */
#include "trainer/io/json.h"

#include <stdlib.h>
#include <string.h>

#include "os/draft.h"
#include "os/file.h"

pb_status pb_json_parse(const char *where, const void *text, size_t n, json_t **out)
{
    json_error_t e;
    json_t *root = n ? json_loadb(text, n, JSON_REJECT_DUPLICATES, &e) : NULL;
    if (!n) return pb_fail(PB_EINVAL, "%s is empty, but must be JSON", where);
    if (!root) {
        /* jansson may quote control characters of the text; the message must be one line. */
        for (char *c = e.text; *c; c++)
            if ((unsigned char)*c < 32 || *c == 127) *c = '?';
        return pb_fail(PB_EINVAL, "%s is not valid JSON: line %d: %s", where, e.line, e.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return pb_fail(PB_EINVAL, "%s is not a JSON object", where);
    }
    *out = root;
    return PB_OK;
}

pb_status pb_json_open(const char *path, json_t **out)
{
    pb_map m = {0};
    PB_TRY(pb_map_open(path, &m));
    const pb_status s = pb_json_parse(path, m.p, m.n, out);
    pb_map_close(&m);
    return s;
}

pb_status pb_json_save(const char *path, const json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_SORT_KEYS);
    if (!text) return pb_fail(PB_ENOMEM, "%s: out of memory", path);
    const pb_status s = pb_file_replace(path, text, strlen(text));
    free(text);
    return s;
}
