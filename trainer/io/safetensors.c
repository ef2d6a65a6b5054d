/* safetensors.c - parses and checks the header of a safetensors file, which may be malformed or malicious. */
#include "trainer/io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/file.h"
#include "os/text.h"
#include "trainer/io/json.h"

struct pb_safetensors {
    char *path;
    pb_map map; /* {0} when the caller holds the bytes in memory */
    json_t *header;
    const unsigned char *data;
    size_t data_n;
    pb_st_tensor *tensor; /* [n] sorted by name */
    size_t n;
};

static const struct {
    const char *name;
    size_t bytes;
} dtypes[PB_ST_NDTYPES] = {
#define X(id, bytes) {#id, bytes},
    PB_ST_DTYPE_MAP(X)
#undef X
};

size_t pb_st_dtype_size(pb_st_dtype t) { return dtypes[t].bytes; }
const char *pb_st_dtype_name(pb_st_dtype t) { return dtypes[t].name; }

const char *pb_st_shape_text(const size_t *shape, int dims, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "[");
    for (int i = 0; i < dims && at < room; i++)
        at += (size_t)snprintf(out + at, room - at, "%s%zu", i ? "," : "", shape[i]);
    if (at < room) snprintf(out + at, room - at, "]");
    return out;
}

/* ---- checking the entry of one tensor --------------------------------------------------------------- */

/* Stores a JSON integer in *out. Returns false if v is not an integer of at least 0. */
static bool whole(const json_t *v, size_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0) return false;
    *out = (size_t)json_integer_value(v);
    return true;
}

static pb_status parse_dtype(const char *path, const char *name, const json_t *v, pb_st_dtype *out)
{
    const char *text = json_string_value(v);
    if (!text) return pb_fail(PB_EINVAL, "%s: tensor %.150s: \"dtype\" is not a string", path, name);
    for (int i = 0; i < PB_ST_NDTYPES; i++)
        if (strcmp(dtypes[i].name, text) == 0) {
            *out = (pb_st_dtype)i;
            return PB_OK;
        }
    return pb_fail(PB_EINVAL, "%s: tensor %.150s: dtype \"%.20s\" is unknown", path, name,
                   pb_is_printable(text) ? text : "?");
}

static pb_status parse_shape(const char *path, const char *name, const json_t *v, pb_st_tensor *t)
{
    if (!json_is_array(v)) return pb_fail(PB_EINVAL, "%s: tensor %.150s: \"shape\" is not a list", path, name);
    if (json_array_size(v) > PB_ST_MAX_DIMS)
        return pb_fail(PB_EINVAL, "%s: tensor %.150s has %zu dimensions, but at most %d are supported", path, name,
                       json_array_size(v), PB_ST_MAX_DIMS);
    t->dims = (int)json_array_size(v);
    t->n = 1;
    for (int i = 0; i < t->dims; i++) {
        if (!whole(json_array_get(v, (size_t)i), &t->shape[i]))
            return pb_fail(PB_EINVAL, "%s: tensor %.150s: \"shape\" contains a value that is not a whole number", path,
                           name);
        if (__builtin_mul_overflow(t->n, t->shape[i], &t->n))
            return pb_fail(PB_EINVAL, "%s: tensor %.150s: the product of the shape overflows", path, name);
    }
    if (__builtin_mul_overflow(t->n, pb_st_dtype_size(t->dtype), &t->bytes))
        return pb_fail(PB_EINVAL, "%s: tensor %.150s: the product of the shape overflows", path, name);
    return PB_OK;
}

static pb_status parse_offsets(const pb_safetensors *f, const char *name, const json_t *v, pb_st_tensor *t)
{
    size_t begin, end;
    char shape[120];
    if (!json_is_array(v) || json_array_size(v) != 2 || !whole(json_array_get(v, 0), &begin) ||
        !whole(json_array_get(v, 1), &end))
        return pb_fail(PB_EINVAL, "%s: tensor %.150s: \"data_offsets\" is not a pair of whole numbers", f->path, name);
    if (begin > end || end > f->data_n)
        return pb_fail(PB_EINVAL, "%s: tensor %.150s: bytes %zu to %zu are outside the file's %zu bytes of data",
                       f->path, name, begin, end, f->data_n);
    if (end - begin != t->bytes)
        return pb_fail(PB_EINVAL, "%s: tensor %.150s: %s %s is %zu bytes, but \"data_offsets\" span %zu", f->path, name,
                       pb_st_dtype_name(t->dtype), pb_st_shape_text(t->shape, t->dims, shape, sizeof shape), t->bytes,
                       end - begin);
    t->data = f->data + begin;
    return PB_OK;
}

static pb_status parse_tensor(const pb_safetensors *f, const char *name, const json_t *o, pb_st_tensor *t)
{
    if (!pb_is_printable(name))
        return pb_fail(PB_EINVAL, "%s: the name of a tensor contains control characters", f->path);
    if (!json_is_object(o)) return pb_fail(PB_EINVAL, "%s: tensor %.150s is not an object", f->path, name);
    *t = (pb_st_tensor){.file = f->path, .name = name};
    PB_TRY(parse_dtype(f->path, name, json_object_get(o, "dtype"), &t->dtype));
    PB_TRY(parse_shape(f->path, name, json_object_get(o, "shape"), t));
    return parse_offsets(f, name, json_object_get(o, "data_offsets"), t);
}

/* ---- checking all tensors and the header ------------------------------------------------------------ */

static int by_place(const void *a, const void *b)
{
    const pb_st_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pb_st_tensor *)a)->name, ((const pb_st_tensor *)b)->name);
}

/* Checks that every byte of the data belongs to exactly one tensor. Sorts the tensors by their position in the data. */
static pb_status check_places(pb_safetensors *f)
{
    const unsigned char *at = f->data;
    if (f->n) qsort(f->tensor, f->n, sizeof *f->tensor, by_place);
    for (size_t i = 0; i < f->n; i++) {
        const pb_st_tensor *t = &f->tensor[i];
        if (t->data < at)
            return pb_fail(PB_EINVAL, "%s: tensor %.150s overlaps tensor %.150s", f->path, t->name, t[-1].name);
        if (t->data > at)
            return pb_fail(PB_EINVAL, "%s: the %zu bytes before tensor %.150s belong to no tensor", f->path,
                           (size_t)(t->data - at), t->name);
        at += t->bytes;
    }
    if (at != f->data + f->data_n)
        return pb_fail(PB_EINVAL, "%s: the last %zu bytes belong to no tensor", f->path,
                       f->data_n - (size_t)(at - f->data));
    return PB_OK;
}

static pb_status check_metadata(const pb_safetensors *f, json_t *o)
{
    const char *key;
    json_t *v;
    if (json_is_null(o)) return PB_OK;
    if (!json_is_object(o)) return pb_fail(PB_EINVAL, "%s: \"__metadata__\" is not an object", f->path);
    json_object_foreach(o, key, v)
    {
        if (!json_is_string(v))
            return pb_fail(PB_EINVAL, "%s: \"__metadata__\": the value of \"%.60s\" is not a string", f->path,
                           pb_is_printable(key) ? key : "?");
    }
    return PB_OK;
}

static pb_status parse_header(pb_safetensors *f, const unsigned char *p, size_t n)
{
    uint64_t length = 0;
    const char *name;
    json_t *o;
    if (n < 8) return pb_fail(PB_EINVAL, "%s has %zu bytes, which is too short for a safetensors file", f->path, n);
    for (int i = 0; i < 8; i++) length |= (uint64_t)p[i] << 8 * i;
    if (length > PB_ST_MAX_HEADER)
        return pb_fail(PB_EINVAL, "%s is not a safetensors file: its header would have %llu bytes", f->path,
                       (unsigned long long)length);
    if (length > n - 8)
        return pb_fail(PB_EINVAL, "%s: the header has %llu bytes, but the file only %zu", f->path,
                       (unsigned long long)length, n);
    if (!length || p[8] != '{') return pb_fail(PB_EINVAL, "%s: the header does not begin with '{'", f->path);
    PB_TRY(pb_json_parse(f->path, p + 8, (size_t)length, &f->header));
    f->data = p + 8 + length;
    f->data_n = n - 8 - (size_t)length;
    f->tensor = calloc(json_object_size(f->header) + 1, sizeof *f->tensor);
    if (!f->tensor) return pb_fail(PB_ENOMEM, "%s: no memory for the list of tensors", f->path);
    json_object_foreach(f->header, name, o)
    {
        if (strcmp(name, "__metadata__") == 0) PB_TRY(check_metadata(f, o));
        else PB_TRY(parse_tensor(f, name, o, &f->tensor[f->n++]));
    }
    PB_TRY(check_places(f));
    if (f->n) qsort(f->tensor, f->n, sizeof *f->tensor, by_name);
    return PB_OK;
}

static pb_status make(const char *path, pb_safetensors **out)
{
    pb_safetensors *f = calloc(1, sizeof *f);
    if (f) f->path = strdup(path);
    if (f && f->path) {
        *out = f;
        return PB_OK;
    }
    free(f);
    return pb_fail(PB_ENOMEM, "%s: out of memory", path);
}

/* If s is PB_OK, stores f in *out; otherwise closes f. Returns s. */
static pb_status finish(pb_status s, pb_safetensors *f, pb_safetensors **out)
{
    if (s == PB_OK) *out = f;
    else pb_st_close(f);
    return s;
}

pb_status pb_st_parse(const char *name, const void *bytes, size_t n, pb_safetensors **out)
{
    pb_safetensors *f = NULL;
    PB_TRY(make(name, &f));
    return finish(parse_header(f, bytes, n), f, out);
}

pb_status pb_st_open(const char *path, pb_safetensors **out)
{
    pb_safetensors *f = NULL;
    PB_TRY(make(path, &f));
    pb_status s = pb_map_open(path, &f->map);
    if (s == PB_OK) s = parse_header(f, f->map.p, f->map.n);
    return finish(s, f, out);
}

void pb_st_close(pb_safetensors *f)
{
    if (!f) return;
    json_decref(f->header);
    pb_map_close(&f->map);
    free(f->tensor);
    free(f->path);
    free(f);
}

size_t pb_st_count(const pb_safetensors *f) { return f->n; }
const pb_st_tensor *pb_st_at(const pb_safetensors *f, size_t i) { return &f->tensor[i]; }

const pb_st_tensor *pb_st_find(const pb_safetensors *f, const char *name)
{
    const pb_st_tensor key = {.name = name};
    return f->n ? bsearch(&key, f->tensor, f->n, sizeof *f->tensor, by_name) : NULL;
}

const char *pb_st_metadata(const pb_safetensors *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}

bool pb_st_file(const pb_safetensors *f, const pb_st_tensor *t, int *fd, size_t *offset)
{
    if (!f->map.p) return false;
    *fd = f->map.fd;
    *offset = (size_t)(t->data - f->map.p);
    return true;
}
