/* index.c - writes and reads checkpoint.json. The reader checks every value, because the file may be damaged. */
#include "trainer/checkpoint/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/text.h"
#include "trainer/io/json.h"

static const char format[] = "plumb checkpoint";
enum { VERSION = 1 };
/* checkpoint.json ends with TAIL_HEAD, the 32 hexadecimal digits of its own digest, and TAIL_END. */
#define TAIL_HEAD ", \"digest\": \""
#define TAIL_END  "\"}\n"
enum { TAIL = sizeof TAIL_HEAD - 1 + 32 + sizeof TAIL_END - 1 };

void pb_index_free(pb_index *x)
{
    json_decref(x->settings);
    free(x->file);
    *x = (pb_index){0};
}

/* ---- names of files in the index ------------------------------------------------------------------------ */

/* True for a relative path without empty, "." or ".." components, which cannot lead out of the folder. */
static bool is_inside(const char *name)
{
    for (;;) {
        const size_t n = strcspn(name, "/");
        if (n == 0 || (n == 1 && name[0] == '.') || (n == 2 && name[0] == '.' && name[1] == '.')) return false;
        if (!name[n]) return true;
        name += n + 1;
    }
}

static pb_status check_name(const char *where, const char *name)
{
    const bool fine = strlen(name) <= PB_INDEX_NAME && pb_is_printable(name) && is_inside(name) &&
                      strcmp(name, "checkpoint.json") != 0;
    if (fine) return PB_OK;
    return pb_fail(PB_EINVAL, "%s: \"%.100s\" is not a valid name for a file of a checkpoint", where,
                   pb_is_printable(name) ? name : "?");
}

static pb_index_file *new_file(pb_index *x, const char *name)
{
    pb_index_file *more = realloc(x->file, (x->files + 1) * sizeof *more);
    if (!more) return NULL;
    x->file = more;
    pb_index_file *f = &x->file[x->files++];
    *f = (pb_index_file){0};
    memcpy(f->name, name, strlen(name) + 1);
    return f;
}

pb_status pb_index_add_file(pb_index *x, const char *name, const pb_file_digest *d)
{
    PB_TRY(check_name("checkpoint", name));
    if (x->files == PB_INDEX_FILES)
        return pb_fail(PB_EINVAL, "a checkpoint cannot have more than %d files", PB_INDEX_FILES);
    pb_index_file *f = new_file(x, name);
    if (!f) return pb_fail(PB_ENOMEM, "no memory for the list of a checkpoint's files");
    f->bytes = d->bytes;
    f->digest = d->digest;
    return PB_OK;
}

const pb_index_file *pb_index_find(const pb_index *x, const char *name)
{
    for (size_t i = 0; i < x->files; i++)
        if (strcmp(x->file[i].name, name) == 0) return &x->file[i];
    return NULL;
}

/* ---- writing checkpoint.json ---------------------------------------------------------------------------- */

static pb_status put_number(json_t *o, const char *key, uint64_t v)
{
    if (v > INT64_MAX) return pb_fail(PB_EINVAL, "checkpoint: the counter %s is 2^63 or more", key);
    json_object_set_new(o, key, json_integer((json_int_t)v));
    return PB_OK;
}

static pb_status put_progress(json_t *root, const pb_progress *p)
{
    json_t *data = json_object(), *counters = json_object();
    json_object_set_new(root, "data", data);
    json_object_set_new(root, "counters", counters);
    PB_TRY(put_number(root, "iteration", p->iteration));
    PB_TRY(put_number(data, "epoch", p->data.epoch));
    PB_TRY(put_number(data, "row", p->data.row));
#define X(name, meaning) PB_TRY(put_number(counters, #name, p->name));
    PB_COUNTER_MAP(X)
#undef X
    return PB_OK;
}

static pb_status put_files(json_t *root, const pb_index *x)
{
    json_t *files = json_object();
    json_object_set_new(root, "files", files);
    for (size_t i = 0; i < x->files; i++) {
        json_t *f = json_object();
        if (json_object_set_new(files, x->file[i].name, f) != 0)
            return pb_fail(PB_EINVAL, "checkpoint: the name of a file is not UTF-8");
        PB_TRY(put_number(f, "bytes", x->file[i].bytes));
        json_object_set_new(f, "xxh3_128", json_string(x->file[i].digest.hex));
    }
    return PB_OK;
}

/* Copies `text` and replaces its final "}" by the digest of the preceding bytes and TAIL_END. The caller frees *out. */
static pb_status add_tail(const char *text, char **out, size_t *n)
{
    const size_t body = strlen(text) - 1, room = body + TAIL + 1;
    char *all = malloc(room);
    if (!all) return pb_fail(PB_ENOMEM, "no memory for a checkpoint's index");
    snprintf(all, room, "%.*s" TAIL_HEAD "%s" TAIL_END, (int)body, text, pb_digest_of(text, body).hex);
    *out = all;
    *n = room - 1;
    return PB_OK;
}

static pb_status fill_root(json_t *root, const pb_index *x)
{
    json_object_set_new(root, "format", json_string(format));
    json_object_set_new(root, "version", json_integer(VERSION));
    PB_TRY(put_progress(root, &x->progress));
    json_object_set_new(root, "base", json_string(x->base.hex));
    json_object_set(root, "settings", x->settings);
    return put_files(root, x);
}

pb_status pb_index_format(const pb_index *x, char **out, size_t *n)
{
    json_t *root = json_object();
    pb_status s = root ? fill_root(root, x) : pb_fail(PB_ENOMEM, "no memory for a checkpoint's index");
    char *text = s == PB_OK ? json_dumps(root, JSON_PRESERVE_ORDER) : NULL;
    if (s == PB_OK && !text) s = pb_fail(PB_ENOMEM, "no memory for a checkpoint's index");
    if (s == PB_OK && strlen(text) + TAIL > PB_INDEX_MOST)
        s = pb_fail(PB_EINVAL, "checkpoint: the index has more than %d bytes", PB_INDEX_MOST);
    if (s == PB_OK) s = add_tail(text, out, n);
    free(text);
    json_decref(root);
    return s;
}

/* ---- reading checkpoint.json ---------------------------------------------------------------------------- */

static pb_status check_tail(const char *where, const char *text, size_t n)
{
    if (n < TAIL) return pb_fail(PB_EINVAL, "%s is damaged: it has only %zu bytes", where, n);
    const char *tail = text + n - TAIL, *digits = tail + sizeof TAIL_HEAD - 1;
    const pb_digest_text want = pb_digest_of(text, n - TAIL);
    if (memcmp(tail, TAIL_HEAD, sizeof TAIL_HEAD - 1) != 0 || memcmp(digits + 32, TAIL_END, sizeof TAIL_END - 1) != 0)
        return pb_fail(PB_EINVAL, "%s is damaged: it does not end with a digest", where);
    if (memcmp(digits, want.hex, 32) != 0)
        return pb_fail(PB_EINVAL, "%s is damaged: its contents have digest %s, but it states another digest", where,
                       want.hex);
    return PB_OK;
}

static pb_status get_number(const char *where, json_t *o, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return pb_fail(PB_EINVAL, "%s: \"%s\" is not a whole number", where, key);
    *out = (uint64_t)json_integer_value(v);
    return PB_OK;
}

static pb_status get_object(const char *where, json_t *o, const char *key, json_t **out)
{
    *out = json_object_get(o, key);
    return json_is_object(*out) ? PB_OK : pb_fail(PB_EINVAL, "%s: \"%s\" is not an object", where, key);
}

static pb_status get_digest(const char *where, json_t *o, const char *key, pb_digest_text *out)
{
    const char *text = json_string_value(json_object_get(o, key));
    if (!text || !pb_digest_is_text(text)) return pb_fail(PB_EINVAL, "%s: \"%s\" is not a digest", where, key);
    memcpy(out->hex, text, sizeof out->hex);
    return PB_OK;
}

static pb_status get_version(const char *where, json_t *root)
{
    const char *text = json_string_value(json_object_get(root, "format"));
    uint64_t version;
    if (!text || strcmp(text, format) != 0) return pb_fail(PB_EINVAL, "%s: \"format\" is not \"%s\"", where, format);
    PB_TRY(get_number(where, root, "version", &version));
    if (version == VERSION) return PB_OK;
    return pb_fail(PB_EFORMAT, "%s has version %llu of the checkpoint format, but this program reads version %d only",
                   where, (unsigned long long)version, VERSION);
}

static pb_status get_progress(const char *where, json_t *root, pb_progress *p)
{
    json_t *data, *counters;
    PB_TRY(get_number(where, root, "iteration", &p->iteration));
    if (!p->iteration) return pb_fail(PB_EINVAL, "%s: \"iteration\" is 0, but must be at least 1", where);
    PB_TRY(get_object(where, root, "data", &data));
    PB_TRY(get_number(where, data, "epoch", &p->data.epoch));
    PB_TRY(get_number(where, data, "row", &p->data.row));
    PB_TRY(get_object(where, root, "counters", &counters));
#define X(name, meaning) PB_TRY(get_number(where, counters, #name, &p->name));
    PB_COUNTER_MAP(X)
#undef X
    return PB_OK;
}

static pb_status get_settings(const char *where, json_t *root, pb_index *x)
{
    const char *key;
    json_t *settings, *v;
    PB_TRY(get_object(where, root, "settings", &settings));
    json_object_foreach(settings, key, v)
    {
        if (!json_is_string(v) || !pb_is_printable(key) || !pb_is_printable(json_string_value(v)))
            return pb_fail(PB_EINVAL, "%s: a setting is not one line of text", where);
    }
    x->settings = json_incref(settings);
    return PB_OK;
}

static pb_status get_files(const char *where, json_t *root, pb_index *x)
{
    const char *name;
    json_t *files, *v;
    PB_TRY(get_object(where, root, "files", &files));
    if (json_object_size(files) > PB_INDEX_FILES)
        return pb_fail(PB_EINVAL, "%s lists more than %d files", where, PB_INDEX_FILES);
    json_object_foreach(files, name, v)
    {
        PB_TRY(check_name(where, name));
        if (!json_is_object(v)) return pb_fail(PB_EINVAL, "%s: \"%.100s\" is not an object", where, name);
        pb_index_file *f = new_file(x, name);
        if (!f) return pb_fail(PB_ENOMEM, "%s: no memory for the list of files", where);
        PB_TRY(get_number(where, v, "bytes", &f->bytes));
        PB_TRY(get_digest(where, v, "xxh3_128", &f->digest));
    }
    return PB_OK;
}

static pb_status get_all(const char *where, json_t *root, pb_index *x)
{
    PB_TRY(get_version(where, root));
    PB_TRY(get_progress(where, root, &x->progress));
    PB_TRY(get_digest(where, root, "base", &x->base));
    PB_TRY(get_settings(where, root, x));
    return get_files(where, root, x);
}

pb_status pb_index_parse(const char *where, const void *text, size_t n, pb_index *out)
{
    pb_index x = {0};
    json_t *root = NULL;
    PB_TRY(check_tail(where, text, n));
    PB_TRY(pb_json_parse(where, text, n, &root));
    const pb_status s = get_all(where, root, &x);
    json_decref(root);
    if (s == PB_OK) *out = x;
    else pb_index_free(&x);
    return s;
}
