/* gguf_test.c - tests of the reader of GGUF files: every block type against the package gguf, elements from any
 * position on, malformed files of every kind, every truncation and every changed bit of a small file. */
#include <sys/mman.h>
#include <unistd.h>

#include "tests/test.h"
#include "trainer/hf/hf_gguf.h"

#define GGUF PB_FIXTURES "/gguf/"

/* ---- converting blocks -------------------------------------------------------------------------------- */

/* The values are those that gguf.quants.dequantize computes, bit for bit. */
static void every_type_has_the_values_of_the_package(void **state)
{
    (void)state;
    pb_gguf *f = NULL;
    CHECK_OK(pb_gguf_open(GGUF "blocks.gguf", &f));
    assert_int_equal(pb_gguf_count(f), 2 * PB_GGUF_NTYPES);
    for (int t = 0; t < PB_GGUF_NTYPES; t++) {
        char name[32];
        float got[3 * 512];
        snprintf(name, sizeof name, "%s.f32", pb_gguf_type_name((pb_gguf_type)t));
        const pb_gguf_tensor *x = pb_gguf_find(f, pb_gguf_type_name((pb_gguf_type)t)), *want = pb_gguf_find(f, name);
        assert_non_null(x);
        assert_non_null(want);
        if ((int)x->type != t || x->n != 3 * 512 || x->dims != 2 || x->shape[0] != 3)
            fail_msg("%s: wrong or missing", name);
        CHECK_OK(pb_gguf_load(f, x, 0, x->n, PB_F32, got));
        for (size_t i = 0; i < x->n; i++) {
            float w;
            memcpy(&w, want->data + 4 * i, sizeof w);
            if (memcmp(&w, &got[i], sizeof w) != 0)
                fail_msg("%s[%zu] = %.9g, want %.9g", name, i, (double)got[i], (double)w);
        }
    }
    pb_gguf_close(f);
}

/* Any range of elements, which may begin and end inside a block, has the values of the whole tensor; bf16 is
 * rounded. */
static void any_range_can_be_loaded(void **state)
{
    (void)state;
    static const size_t ranges[][2] = {{0, 1}, {1, 30}, {31, 2}, {255, 2}, {300, 700}, {1535, 1}, {511, 1025}};
    pb_gguf *f = NULL;
    CHECK_OK(pb_gguf_open(GGUF "blocks.gguf", &f));
    for (int t = 0; t < PB_GGUF_NTYPES; t++) {
        const pb_gguf_tensor *x = pb_gguf_find(f, pb_gguf_type_name((pb_gguf_type)t));
        float all[3 * 512], part[3 * 512];
        uint16_t narrow[3 * 512];
        assert_non_null(x);
        CHECK_OK(pb_gguf_load(f, x, 0, x->n, PB_F32, all));
        for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
            const size_t first = ranges[r][0], n = ranges[r][1];
            CHECK_OK(pb_gguf_load(f, x, first, n, PB_F32, part));
            CHECK_OK(pb_gguf_load(f, x, first, n, PB_BF16, narrow));
            assert_memory_equal(part, all + first, n * sizeof *part);
            for (size_t i = 0; i < n; i++) assert_int_equal(narrow[i], pb_f32_to_bf16(all[first + i]));
        }
    }
    pb_gguf_close(f);
}

/* A file that becomes shorter after it was opened is an error, not a signal. */
static void a_file_that_became_shorter_is_an_error(void **state)
{
    (void)state;
    char path[] = "/tmp/pb_gguf_XXXXXX", bytes[6000];
    pb_gguf *f = NULL;
    float x[64];
    FILE *in = fopen(GGUF "small.gguf", "rb");
    assert_non_null(in);
    const size_t n = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    CHECK_OK(pb_gguf_open(path, &f));
    assert_int_equal(ftruncate(fd, 100), 0);
    CHECK_FAILS(pb_gguf_load(f, pb_gguf_find(f, "blk.0.ffn_up.weight"), 0, 64, PB_F32, x), PB_EIO,
                "blk.0.ffn_up.weight");
    pb_gguf_close(f);
    close(fd);
    unlink(path);
}

/* ---- malformed files ---------------------------------------------------------------------------------- */

static unsigned char *small_file(size_t *n)
{
    unsigned char *p = malloc(8192);
    FILE *f = fopen(GGUF "small.gguf", "rb");
    assert_non_null(p);
    assert_non_null(f);
    *n = fread(p, 1, 8192, f);
    fclose(f);
    return p;
}

static void check_line(pb_status s)
{
    if (s == PB_OK) return;
    if (s != PB_EINVAL && s != PB_EFORMAT) fail_msg("%s: %s", pb_status_name(s), pb_error());
    if (!*pb_error() || strpbrk(pb_error(), "\n\r") || strncmp(pb_error(), "x.gguf", 6) != 0)
        fail_msg("not one line that names the file: '%s'", pb_error());
}

static void make_text(const pb_gguf *f, pb_status (*make)(const pb_gguf *f, char **out))
{
    char *text = NULL;
    const pb_status s = make(f, &text);
    check_line(s);
    assert_true((s == PB_OK) == (text != NULL));
    free(text);
}

/* Reads everything of an accepted file. */
static void use(const pb_gguf *f)
{
    for (size_t i = 0; i < pb_gguf_count(f); i++) {
        const pb_gguf_tensor *t = pb_gguf_at(f, i);
        float *x = malloc(t->n * sizeof *x);
        assert_non_null(x);
        CHECK_OK(pb_gguf_load(f, t, 0, t->n, PB_F32, x));
        free(x);
    }
    make_text(f, pb_hf_gguf_config);
    make_text(f, pb_hf_gguf_tokenizer);
    make_text(f, pb_hf_gguf_tokenizer_config);
}

/* Returns memory of n bytes that ends where memory begins that cannot be read. */
static unsigned char *guarded(size_t n)
{
    enum { ROOM = 1 << 16 };
    static unsigned char *room;
    if (!room) {
        room = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(room != MAP_FAILED && mprotect(room + ROOM, ROOM, PROT_NONE) == 0);
    }
    return room + ROOM - n;
}

/* Parses a copy after which nothing can be read. */
static pb_status parse_copy(const unsigned char *bytes, size_t n)
{
    unsigned char *copy = guarded(n);
    pb_gguf *f = NULL;
    memcpy(copy, bytes, n);
    const pb_status s = pb_gguf_parse("x.gguf", copy, n, &f);
    check_line(s);
    if (s == PB_OK) use(f);
    pb_gguf_close(f);
    return s;
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = small_file(&n);
    CHECK_OK(parse_copy(bytes, n));
    for (size_t cut = 0; cut < n; cut++)
        if (parse_copy(bytes, cut) == PB_OK) fail_msg("the first %zu of %zu bytes are accepted", cut, n);
    free(bytes);
}

static void every_changed_bit_is_survived(void **state)
{
    (void)state;
    size_t n, accepted = 0;
    unsigned char *bytes = small_file(&n);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        accepted += parse_copy(bytes, n) == PB_OK;
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    /* Weights may have any value, but of what comes before them only few bits are free. */
    assert_true(accepted > 8 * 3000 && accepted < 8 * n - 4000);
    free(bytes);
}

typedef struct file {
    unsigned char p[1024];
    size_t n;
} file;

static void put(file *f, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) f->p[f->n++] = (unsigned char)(v >> 8 * i);
}

static void put_text(file *f, const char *text)
{
    put(f, strlen(text), 8);
    memcpy(f->p + f->n, text, strlen(text));
    f->n += strlen(text);
}

/* The values of a file with one metadata entry and the tensors "a", F32 [2,8], and "b", Q8_0 [32]. */
typedef struct change {
    uint64_t version, tensors, entries, kind, value, dims, columns, rows, type, offset_a, offset_b, tail;
    const char *second;
} change;

static const change usual = {.version = 3,
                             .tensors = 2,
                             .entries = 1,
                             .kind = 4,
                             .value = 32,
                             .dims = 2,
                             .columns = 8,
                             .rows = 2,
                             .offset_b = 64,
                             .type = 0,
                             .second = "b",
                             .tail = 64};

static void write_file(const change *c, file *f)
{
    f->n = 0;
    memcpy(f->p, "GGUF", 4);
    f->n = 4;
    put(f, c->version, 4), put(f, c->tensors, 8), put(f, c->entries, 8);
    put_text(f, "general.alignment"), put(f, c->kind, 4), put(f, c->value, 4);
    put_text(f, "a"), put(f, c->dims, 4), put(f, c->columns, 8), put(f, c->rows, 8), put(f, c->type, 4);
    put(f, c->offset_a, 8);
    put_text(f, c->second), put(f, 1, 4), put(f, 32, 8), put(f, 8, 4), put(f, c->offset_b, 8);
    while (f->n % 32) put(f, 0, 1);
    for (size_t i = 0; i < 64 + c->tail; i++) put(f, i, 1);
}

static void one_wrong_value_is_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at; /* offset of the uint64_t in struct change */
        uint64_t value;
        pb_status status;
        const char *says;
    } wrong[] = {
#define AT(field) offsetof(change, field)
        {AT(version), 1, PB_EFORMAT, "version 1 of the GGUF format is not supported"},
        {AT(version), 4, PB_EFORMAT, "version 4"},
        {AT(version), 0x03000000, PB_EFORMAT, "big-endian"},
        {AT(tensors), 1, PB_EINVAL, "x.gguf"},
        {AT(tensors), UINT64_MAX, PB_EINVAL, "tensors do not fit"},
        {AT(entries), UINT64_MAX, PB_EINVAL, "metadata entries do not fit"},
        {AT(kind), 13, PB_EINVAL, "general.alignment: the type of its value is unknown"},
        {AT(kind), 6, PB_EINVAL, "general.alignment is not a whole number"},
        {AT(value), 0, PB_EINVAL, "general.alignment 0 is not a power of two"},
        {AT(value), 33, PB_EINVAL, "general.alignment 33 is not a power of two"},
        {AT(dims), 0, PB_EINVAL, "tensor a has 0 dimensions"},
        {AT(dims), 5, PB_EINVAL, "tensor a has 5 dimensions"},
        {AT(columns), 0, PB_EINVAL, "tensor a: a dimension is 0"},
        {AT(columns), (uint64_t)1 << 63, PB_EINVAL, "their product overflows"},
        {AT(rows), (uint64_t)1 << 60, PB_EINVAL, "tensor a: its size overflows"},
        {AT(rows), 4, PB_EINVAL, "tensor b overlaps tensor a"},
        {AT(rows), 1 << 20, PB_EINVAL, "tensor a: 33554432 bytes at 0 are outside"},
        {AT(type), 8, PB_EINVAL, "tensor a: its rows of 8 elements are not whole blocks of 32 (Q8_0)"},
        {AT(type), 11, PB_EFORMAT, "tensor a has type Q3_K: need F32, F16, BF16, Q4_0"},
        {AT(type), 27, PB_EFORMAT, "tensor a has type I64"},
        {AT(type), 4, PB_EFORMAT, "tensor a has the unknown type 4"},
        {AT(offset_a), 8, PB_EINVAL, "tensor a begins at byte 8 of the data, which is no multiple of 32"},
        {AT(rows), 1, PB_EINVAL, "the 32 bytes before tensor b belong to no tensor"},
        {AT(offset_b), UINT64_MAX - 31, PB_EINVAL, "tensor b: 34 bytes at 18446744073709551584 are outside"},
        {AT(tail), 128, PB_EINVAL, "the last 94 bytes belong to no tensor"},
    };
    file f;
    write_file(&usual, &f);
    CHECK_OK(parse_copy(f.p, f.n));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        change c = usual;
        pb_gguf *g = NULL;
        memcpy((char *)&c + wrong[i].at, &wrong[i].value, sizeof wrong[i].value);
        write_file(&c, &f);
        CHECK_FAILS(pb_gguf_parse("x.gguf", f.p, f.n, &g), wrong[i].status, wrong[i].says);
    }
}

static void names_are_checked(void **state)
{
    (void)state;
    file f;
    pb_gguf *g = NULL;
    change c = usual;
    c.second = "a";
    write_file(&c, &f);
    CHECK_FAILS(pb_gguf_parse("x.gguf", f.p, f.n, &g), PB_EINVAL, "tensor a is given twice");
    c.second = "b\033[31m";
    write_file(&c, &f);
    CHECK_FAILS(pb_gguf_parse("x.gguf", f.p, f.n, &g), PB_EINVAL, "the name of a tensor contains control characters");
    c.second = "";
    write_file(&c, &f);
    CHECK_FAILS(pb_gguf_parse("x.gguf", f.p, f.n, &g), PB_EINVAL, "the name of a tensor would have 0 bytes");
    CHECK_FAILS(pb_gguf_parse("x.gguf", "GGML", 4, &g), PB_EINVAL, "x.gguf is not a GGUF file");
}

/* Texts and arrays whose length is larger than the file, also by so much that sums overflow. */
static void lengths_are_checked(void **state)
{
    (void)state;
    static const struct {
        uint64_t kind, of, n;
        const char *says;
    } wrong[] = {
        {8, 0, UINT64_MAX, "the file ends at byte"},          {8, 0, 100, "the file ends at byte"},
        {9, 8, UINT64_MAX / 8 + 2, "does not fit into the"},  {9, 10, UINT64_MAX / 8 + 2, "does not fit into the"},
        {9, 13, 1, "k: the type of its elements is unknown"}, {9, 9, 1, "k is an array of arrays"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        file f = {.n = 4};
        pb_gguf *g = NULL;
        memcpy(f.p, "GGUF", 4);
        put(&f, 3, 4), put(&f, 0, 8), put(&f, 1, 8);
        put_text(&f, "k"), put(&f, wrong[i].kind, 4);
        if (wrong[i].kind == 9) put(&f, wrong[i].of, 4);
        put(&f, wrong[i].n, 8), put(&f, 7, 8);
        CHECK_FAILS(pb_gguf_parse("x.gguf", f.p, f.n, &g), wrong[i].of == 9 ? PB_EFORMAT : PB_EINVAL, wrong[i].says);
    }
}

/* ---- which files are GGUF files ----------------------------------------------------------------------- */

static void gguf_files_are_recognised(void **state)
{
    (void)state;
    char path[] = "/tmp/pb_gguf_XXXXXX";
    assert_true(pb_gguf_is(GGUF "small.gguf"));
    assert_false(pb_gguf_is(PB_FIXTURES "/gguf"));
    assert_false(pb_gguf_is(PB_FIXTURES "/hf/qwen2/config.json"));
    assert_false(pb_gguf_is("/nowhere.gguf"));
    assert_false(pb_gguf_is("/dev/null"));
    const int fd = mkstemp(path);
    assert_int_equal(write(fd, "GGUF", 4), 4);
    assert_true(pb_gguf_is(path));
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_the_values_of_the_package),
        cmocka_unit_test(any_range_can_be_loaded),
        cmocka_unit_test(a_file_that_became_shorter_is_an_error),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_changed_bit_is_survived),
        cmocka_unit_test(one_wrong_value_is_refused),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(lengths_are_checked),
        cmocka_unit_test(gguf_files_are_recognised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
