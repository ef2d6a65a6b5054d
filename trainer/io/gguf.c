/* gguf.c - parses and checks the metadata and the tensor descriptions of a GGUF file, which may be malformed or
 * malicious. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/text.h"
#include "trainer/io/gguf_impl.h"

enum { LONGEST_NAME = 1 << 16, LEAST_ENTRY = 13, LEAST_TENSOR = 32, USUAL_ALIGNMENT = 32, MOST_ALIGNMENT = 1 << 20 };

static const struct {
    const char *name;
    uint32_t number;
    pb_gguf_block block;
} types[] = {
#define BLOCK(name, number, elements, bytes) {#name, number, {elements, bytes}},
#define OTHER(name, number)                  {#name, number, {0, 0}},
#include "trainer/io/gguf.def"
};
enum { NTYPES = sizeof types / sizeof *types };

const char *pb_gguf_type_name(pb_gguf_type t) { return types[t].name; }
pb_gguf_block pb_gguf_block_of(pb_gguf_type t) { return types[t].block; }

/* ---- taking values from the file ---------------------------------------------------------------------- */

static pb_status take(pb_gguf *f, size_t n, const unsigned char **out)
{
    if (n > f->size - f->at)
        return pb_fail(PB_EINVAL, "%s: the file ends at byte %zu, but a value there needs %zu bytes more", f->path,
                       f->size, n - (f->size - f->at));
    *out = f->p + f->at;
    f->at += n;
    return PB_OK;
}

static pb_status take_u32(pb_gguf *f, uint32_t *out)
{
    const unsigned char *p = NULL;
    PB_TRY(take(f, 4, &p));
    *out = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return PB_OK;
}

static pb_status take_u64(pb_gguf *f, uint64_t *out)
{
    const unsigned char *p = NULL;
    PB_TRY(take(f, 8, &p));
    *out = pb_gguf_u64(p);
    return PB_OK;
}

/* Copies a key or the name of a tensor, which messages will quote. */
static pb_status take_name(pb_gguf *f, const char *what, char **out)
{
    uint64_t n = 0;
    const unsigned char *p = NULL;
    PB_TRY(take_u64(f, &n));
    if (!n || n > LONGEST_NAME)
        return pb_fail(PB_EINVAL, "%s: %s would have %llu bytes: need 1 to %d", f->path, what, (unsigned long long)n,
                       LONGEST_NAME);
    PB_TRY(take(f, (size_t)n, &p));
    char *name = malloc((size_t)n + 1);
    if (!name) return pb_fail(PB_ENOMEM, "%s: no memory for %s", f->path, what);
    memcpy(name, p, (size_t)n);
    name[n] = 0;
    *out = name;
    if (strlen(name) != n || !pb_is_printable(name))
        return pb_fail(PB_EINVAL, "%s: %s contains control characters", f->path, what);
    return PB_OK;
}

/* ---- metadata ----------------------------------------------------------------------------------------- */

/* Passes over the elements of an array. */
static pb_status take_array(pb_gguf *f, pb_gguf_entry *e)
{
    uint32_t kind;
    uint64_t n;
    const unsigned char *p;
    PB_TRY(take_u32(f, &kind));
    PB_TRY(take_u64(f, &n));
    if (kind >= PB_GGUF_NKINDS)
        return pb_fail(PB_EINVAL, "%s: %.100s: the type of its elements is unknown", f->path, e->key);
    if (kind == PB_GGUF_ARRAY) return pb_fail(PB_EFORMAT, "%s: %.100s is an array of arrays", f->path, e->key);
    const size_t size = pb_gguf_kind_size((pb_gguf_kind)kind), left = f->size - f->at;
    if (n > left / (size ? size : 8))
        return pb_fail(PB_EINVAL, "%s: %.100s: an array of %llu elements does not fit into the %zu bytes left", f->path,
                       e->key, (unsigned long long)n, left);
    e->of = (pb_gguf_kind)kind;
    e->n = (size_t)n;
    e->at = f->p + f->at;
    if (size) return take(f, (size_t)n * size, &p);
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes;
        PB_TRY(take_u64(f, &bytes));
        PB_TRY(take(f, (size_t)bytes, &p));
    }
    return PB_OK;
}

static pb_status take_value(pb_gguf *f, pb_gguf_entry *e)
{
    uint32_t kind;
    uint64_t n;
    PB_TRY(take_u32(f, &kind));
    if (kind >= PB_GGUF_NKINDS)
        return pb_fail(PB_EINVAL, "%s: %.100s: the type of its value is unknown", f->path, e->key);
    e->kind = (pb_gguf_kind)kind;
    if (kind == PB_GGUF_ARRAY) return take_array(f, e);
    if (kind != PB_GGUF_TEXT) return take(f, pb_gguf_kind_size(e->kind), &e->at);
    PB_TRY(take_u64(f, &n));
    e->n = (size_t)n;
    return take(f, e->n, &e->at);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const pb_gguf_entry *)a)->key, ((const pb_gguf_entry *)b)->key);
}

static pb_status take_entries(pb_gguf *f, uint64_t n)
{
    if (n > (f->size - f->at) / LEAST_ENTRY)
        return pb_fail(PB_EINVAL, "%s: %llu metadata entries do not fit into its %zu bytes", f->path,
                       (unsigned long long)n, f->size);
    f->entry = calloc((size_t)n + 1, sizeof *f->entry);
    if (!f->entry) return pb_fail(PB_ENOMEM, "%s: no memory for the metadata", f->path);
    for (; f->entries < n; f->entries++) {
        PB_TRY(take_name(f, "a key of the metadata", &f->entry[f->entries].key));
        PB_TRY(take_value(f, &f->entry[f->entries]));
    }
    if (n) qsort(f->entry, (size_t)n, sizeof *f->entry, by_key);
    for (size_t i = 1; i < n; i++)
        if (strcmp(f->entry[i - 1].key, f->entry[i].key) == 0)
            return pb_fail(PB_EINVAL, "%s: the key %.100s is given twice", f->path, f->entry[i].key);
    return PB_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------ */

static pb_status take_type(pb_gguf *f, pb_gguf_tensor *t)
{
    uint32_t number;
    int i = 0;
    PB_TRY(take_u32(f, &number));
    while (i < NTYPES && types[i].number != number) i++;
    if (i == NTYPES)
        return pb_fail(PB_EFORMAT, "%s: tensor %.100s has the unknown type %lu", f->path, t->name,
                       (unsigned long)number);
    if (i >= PB_GGUF_NTYPES)
        return pb_fail(PB_EFORMAT,
                       "%s: tensor %.100s has type %s: need F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K or Q6_K",
                       f->path, t->name, types[i].name);
    t->type = (pb_gguf_type)i;
    return PB_OK;
}

static pb_status take_shape(pb_gguf *f, pb_gguf_tensor *t)
{
    uint32_t dims;
    PB_TRY(take_u32(f, &dims));
    if (dims < 1 || dims > PB_GGUF_MAX_DIMS)
        return pb_fail(PB_EINVAL, "%s: tensor %.100s has %lu dimensions: need 1 to %d", f->path, t->name,
                       (unsigned long)dims, PB_GGUF_MAX_DIMS);
    t->dims = (int)dims;
    t->n = 1;
    for (int i = t->dims - 1; i >= 0; i--) {
        uint64_t v;
        PB_TRY(take_u64(f, &v));
        if (!v || __builtin_mul_overflow(t->n, (size_t)v, &t->n))
            return pb_fail(PB_EINVAL, "%s: tensor %.100s: a dimension is 0, or their product overflows", f->path,
                           t->name);
        t->shape[i] = (size_t)v;
    }
    return PB_OK;
}

static pb_status take_tensor(pb_gguf *f, pb_gguf_tensor *t, uint64_t *offset)
{
    char *name = NULL;
    t->file = f->path;
    const pb_status s = take_name(f, "the name of a tensor", &name);
    t->name = name;
    PB_TRY(s);
    PB_TRY(take_shape(f, t));
    PB_TRY(take_type(f, t));
    PB_TRY(take_u64(f, offset));
    const pb_gguf_block b = types[t->type].block;
    const size_t columns = t->shape[t->dims - 1];
    if (columns % b.elements)
        return pb_fail(PB_EINVAL, "%s: tensor %.100s: its rows of %zu elements are not whole blocks of %zu (%s)",
                       f->path, t->name, columns, b.elements, types[t->type].name);
    if (__builtin_mul_overflow(t->n / b.elements, b.bytes, &t->bytes))
        return pb_fail(PB_EINVAL, "%s: tensor %.100s: its size overflows", f->path, t->name);
    return PB_OK;
}

/* Sets the place of a tensor. `first`: where the data begins in the file. */
static pb_status place(const pb_gguf *f, size_t first, uint64_t offset, size_t alignment, pb_gguf_tensor *t)
{
    const size_t data = f->size - first;
    if (offset % alignment)
        return pb_fail(PB_EINVAL, "%s: tensor %.100s begins at byte %llu of the data, which is no multiple of %zu",
                       f->path, t->name, (unsigned long long)offset, alignment);
    if (offset > data || t->bytes > data - offset)
        return pb_fail(PB_EINVAL, "%s: tensor %.100s: %zu bytes at %llu are outside the file's %zu bytes of data",
                       f->path, t->name, t->bytes, (unsigned long long)offset, data);
    t->data = f->p + first + offset;
    return PB_OK;
}

static int by_place(const void *a, const void *b)
{
    const pb_gguf_tensor *x = a, *y = b;
    return x->data != y->data ? (x->data < y->data ? -1 : 1) : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pb_gguf_tensor *)a)->name, ((const pb_gguf_tensor *)b)->name);
}

/* Checks that no byte belongs to two tensors, and that there is nothing but padding between them. Sorts the tensors. */
static pb_status check_tensors(pb_gguf *f, size_t first, size_t alignment)
{
    const unsigned char *at = f->p + first;
    if (f->tensors) qsort(f->tensor, f->tensors, sizeof *f->tensor, by_place);
    for (size_t i = 0; i < f->tensors; i++) {
        const pb_gguf_tensor *t = &f->tensor[i];
        if (t->data < at)
            return pb_fail(PB_EINVAL, "%s: tensor %.100s overlaps tensor %.100s", f->path, t->name, t[-1].name);
        if ((size_t)(t->data - at) >= alignment)
            return pb_fail(PB_EINVAL, "%s: the %zu bytes before tensor %.100s belong to no tensor", f->path,
                           (size_t)(t->data - at), t->name);
        at = t->data + t->bytes;
    }
    if ((size_t)(f->p + f->size - at) >= alignment)
        return pb_fail(PB_EINVAL, "%s: the last %zu bytes belong to no tensor", f->path, (size_t)(f->p + f->size - at));
    if (f->tensors) qsort(f->tensor, f->tensors, sizeof *f->tensor, by_name);
    for (size_t i = 1; i < f->tensors; i++)
        if (strcmp(f->tensor[i - 1].name, f->tensor[i].name) == 0)
            return pb_fail(PB_EINVAL, "%s: tensor %.100s is given twice", f->path, f->tensor[i].name);
    return PB_OK;
}

static pb_status find_alignment(const pb_gguf *f, size_t *out)
{
    uint64_t v = USUAL_ALIGNMENT;
    PB_TRY(pb_gguf_get_whole(f, "general.alignment", &v));
    if (v < 8 || v > MOST_ALIGNMENT || v & (v - 1))
        return pb_fail(PB_EINVAL, "%s: general.alignment %llu is not a power of two from 8 to %d", f->path,
                       (unsigned long long)v, MOST_ALIGNMENT);
    *out = (size_t)v;
    return PB_OK;
}

static pb_status take_tensors(pb_gguf *f, uint64_t n)
{
    size_t alignment = USUAL_ALIGNMENT;
    PB_TRY(find_alignment(f, &alignment));
    if (n > (f->size - f->at) / LEAST_TENSOR)
        return pb_fail(PB_EINVAL, "%s: the descriptions of %llu tensors do not fit into its %zu bytes", f->path,
                       (unsigned long long)n, f->size);
    uint64_t *offset = calloc((size_t)n + 1, sizeof *offset);
    f->tensor = calloc((size_t)n + 1, sizeof *f->tensor);
    pb_status s = offset && f->tensor ? PB_OK : pb_fail(PB_ENOMEM, "%s: no memory for the list of tensors", f->path);
    while (s == PB_OK && f->tensors < n) {
        s = take_tensor(f, &f->tensor[f->tensors], &offset[f->tensors]);
        f->tensors++;
    }
    /* Without tensors the padding after the header may be missing. */
    const size_t first = n ? (f->at + alignment - 1) / alignment * alignment : f->at;
    if (s == PB_OK && first > f->size)
        s = pb_fail(PB_EINVAL, "%s: the file ends at byte %zu, before the tensors' data", f->path, f->size);
    for (size_t i = 0; s == PB_OK && i < n; i++) s = place(f, first, offset[i], alignment, &f->tensor[i]);
    free(offset);
    return s == PB_OK ? check_tensors(f, first, alignment) : s;
}

/* ---- the whole file ----------------------------------------------------------------------------------- */

static pb_status parse(pb_gguf *f)
{
    const unsigned char *magic;
    uint32_t version;
    uint64_t tensors, entries;
    if (f->size < 4 || memcmp(f->p, "GGUF", 4) != 0)
        return pb_fail(PB_EINVAL, "%s is not a GGUF file: it does not begin with \"GGUF\"", f->path);
    PB_TRY(take(f, 4, &magic));
    PB_TRY(take_u32(f, &version));
    if (version && !(version & 0xffff))
        return pb_fail(PB_EFORMAT, "%s: the file is big-endian, which is not supported", f->path);
    if (version < 2 || version > 3)
        return pb_fail(PB_EFORMAT, "%s: version %lu of the GGUF format is not supported: need 2 or 3", f->path,
                       (unsigned long)version);
    PB_TRY(take_u64(f, &tensors));
    PB_TRY(take_u64(f, &entries));
    PB_TRY(take_entries(f, entries));
    return take_tensors(f, tensors);
}

static pb_status make(const char *path, pb_gguf **out)
{
    pb_gguf *f = calloc(1, sizeof *f);
    if (f) f->path = strdup(path);
    if (f && f->path) {
        *out = f;
        return PB_OK;
    }
    free(f);
    return pb_fail(PB_ENOMEM, "%s: out of memory", path);
}

static pb_status finish(pb_gguf *f, const void *bytes, size_t n, pb_gguf **out)
{
    f->p = bytes;
    f->size = n;
    const pb_status s = parse(f);
    if (s == PB_OK) *out = f;
    else pb_gguf_close(f);
    return s;
}

pb_status pb_gguf_parse(const char *name, const void *bytes, size_t n, pb_gguf **out)
{
    pb_gguf *f = NULL;
    PB_TRY(make(name, &f));
    return finish(f, bytes, n, out);
}

pb_status pb_gguf_open(const char *path, pb_gguf **out)
{
    pb_gguf *f = NULL;
    PB_TRY(make(path, &f));
    const pb_status s = pb_map_open(path, &f->map);
    if (s == PB_OK) return finish(f, f->map.p, f->map.n, out);
    pb_gguf_close(f);
    return s;
}

void pb_gguf_close(pb_gguf *f)
{
    if (!f) return;
    for (size_t i = 0; f->tensor && i < f->tensors; i++) free((char *)f->tensor[i].name);
    /* An entry whose value could not be read is not counted yet, but has its key. */
    for (size_t i = 0; f->entry && (i < f->entries || f->entry[i].key); i++) free(f->entry[i].key);
    free(f->tensor);
    free(f->entry);
    pb_map_close(&f->map);
    free(f->path);
    free(f);
}

bool pb_gguf_is(const char *path)
{
    struct stat st;
    char magic[4] = "";
    const size_t n = strlen(path);
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) return true;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is = fd >= 0 && read(fd, magic, sizeof magic) == sizeof magic && memcmp(magic, "GGUF", 4) == 0;
    if (fd >= 0) close(fd);
    return is;
}

const char *pb_gguf_path(const pb_gguf *f) { return f->path; }
size_t pb_gguf_count(const pb_gguf *f) { return f->tensors; }
const pb_gguf_tensor *pb_gguf_at(const pb_gguf *f, size_t i) { return &f->tensor[i]; }

const pb_gguf_tensor *pb_gguf_find(const pb_gguf *f, const char *name)
{
    const pb_gguf_tensor key = {.name = name};
    return f->tensors ? bsearch(&key, f->tensor, f->tensors, sizeof *f->tensor, by_name) : NULL;
}
