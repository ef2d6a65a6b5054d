/* safetensors_test.c - tests of the reader and the writer of safetensors files: with files of the safetensors package,
 * with each other's files, and with malformed files of every kind. */
#include <errno.h>
#include <glob.h>
#include <dirent.h>
#include <unistd.h>

#include "tests/test.h"
#include "trainer/io/safetensors.h"

/* ---- reading files of the safetensors package -------------------------------------------------------- */

static const pb_st_tensor *tensor(const pb_safetensors *f, const char *name)
{
    const pb_st_tensor *t = pb_st_find(f, name);
    if (!t) fail_msg("no tensor %s", name);
    return t;
}

static void check_floats(const pb_safetensors *f, const char *name, const float *want, size_t n)
{
    float got[8];
    const pb_st_tensor *t = tensor(f, name);
    assert_int_equal(t->n, n);
    CHECK_OK(pb_st_convert(t, 0, n, PB_F32, got));
    assert_memory_equal(got, want, n * sizeof *got);
}

static void check_ints(const pb_safetensors *f, const char *name, const int32_t *want, size_t n)
{
    int32_t got[8];
    const pb_st_tensor *t = tensor(f, name);
    assert_int_equal(t->n, n);
    CHECK_OK(pb_st_convert(t, 0, n, PB_I32, got));
    assert_memory_equal(got, want, n * sizeof *got);
}

static void a_file_of_the_safetensors_package_is_read(void **state)
{
    (void)state;
    pb_safetensors *f = NULL;
    float x[8];
    CHECK_OK(pb_st_open(PB_FIXTURES "/safetensors/package.safetensors", &f));
    assert_int_equal(pb_st_count(f), 11);
    assert_string_equal(pb_st_metadata(f, "made by"), "safetensors");
    assert_null(pb_st_metadata(f, "absent"));
    assert_null(pb_st_find(f, "f3"));
    check_floats(f, "f32", (float[]){1.5f, -2, 3e38f, 1e-45f, -0.0f, INFINITY}, 6);
    check_floats(f, "f16", (float[]){0x1.998p-4f, -65504, 0x1p-24f, 0x1.5p-17f, -INFINITY}, 5);
    check_floats(f, "bf16", (float[]){0x1.9ap-4f, -0x1.c4p127f, 0x1p-133f}, 3);
    check_floats(f, "scalar", (float[]){2.5f}, 1);
    check_floats(f,
                 "gr\xc3\xb6\xc3\x9f"
                 "e.\xe2\x9c\x93",
                 (float[]){4}, 1);
    check_floats(f, "empty", x, 0);
    check_ints(f, "i64", (int32_t[]){INT32_MAX, INT32_MIN, 7}, 3);
    check_ints(f, "i32", (int32_t[]){-5, 6}, 2);
    check_ints(f, "u8", (int32_t[]){0, 255, 3}, 3);
    assert_int_equal(tensor(f, "f32")->dims, 2);
    assert_int_equal(tensor(f, "f32")->shape[1], 3);
    assert_int_equal(tensor(f, "scalar")->dims, 0);
    assert_int_equal(tensor(f, "bool")->dtype, PB_ST_BOOL);
    CHECK_FAILS(pb_st_convert(tensor(f, "i64.far"), 0, 1, PB_I32, x), PB_EINVAL,
                "i64.far: a value does not fit into 32 bits");
    CHECK_FAILS(pb_st_convert(tensor(f, "bool"), 0, 2, PB_F32, x), PB_EFORMAT,
                "bool is BOOL and cannot be read as f32");
    CHECK_FAILS(pb_st_convert(tensor(f, "i64"), 0, 2, PB_BF16, x), PB_EFORMAT, "package.safetensors: tensor i64");
    pb_st_close(f);
}

/* ---- converting elements ------------------------------------------------------------------------------- */

static double half_value(unsigned h)
{
    const int e = h >> 10 & 31;
    const double m = h & 1023, sign = h & 0x8000 ? -1 : 1;
    if (e == 31) return m > 0 ? (double)NAN : sign * (double)INFINITY;
    return sign * (e ? ldexp(1024 + m, e - 25) : ldexp(m, -24));
}

static void every_f16_converts(void **state)
{
    (void)state;
    static unsigned char bytes[2 * 65536 + 1];
    static float wide[65536];
    static uint16_t narrow[65536];
    for (unsigned h = 0; h < 65536; h++)
        bytes[1 + 2 * h] = (unsigned char)h, bytes[2 + 2 * h] = (unsigned char)(h >> 8);
    const pb_st_tensor t = {
        .file = "f", .name = "h", .dtype = PB_ST_F16, .n = 65536, .bytes = 131072, .data = bytes + 1};
    CHECK_OK(pb_st_convert(&t, 0, t.n, PB_F32, wide));
    CHECK_OK(pb_st_convert(&t, 0, t.n, PB_BF16, narrow));
    for (unsigned h = 0; h < 65536; h++) {
        const double want = half_value(h);
        if (isnan(want)) {
            assert_true(isnan(wide[h]) && isnan(pb_bf16_to_f32(narrow[h])));
            continue;
        }
        if (!((double)wide[h] == want) || !signbit(wide[h]) != !(h & 0x8000))
            fail_msg("0x%04x is %g", h, (double)wide[h]);
        assert_int_equal(narrow[h], pb_f32_to_bf16((float)want));
    }
}

static void parts_of_a_tensor_equal_the_whole(void **state)
{
    (void)state;
    enum { N = 40000, FIRST = 1023 };
    static float wide[N], part[N];
    static uint16_t narrow[N];
    static const struct {
        pb_st_dtype t;
        pb_dtype store;
    } kinds[] = {{PB_ST_F32, PB_F32}, {PB_ST_BF16, PB_BF16}};
    for (int k = 0; k < 2; k++) {
        unsigned char *x = test_values(N, kinds[k].store, 5);
        const pb_st_tensor t = {.dtype = kinds[k].t, .n = N, .data = x};
        CHECK_OK(pb_st_convert(&t, 0, N, PB_F32, wide));
        CHECK_OK(pb_st_convert(&t, FIRST, N - FIRST, PB_F32, part));
        assert_memory_equal(part, wide + FIRST, (N - FIRST) * sizeof *part);
        for (size_t i = 0; i < N; i++) assert_true((double)wide[i] == pb_load(x, i, kinds[k].store));
        CHECK_OK(pb_st_convert(&t, 0, N, PB_BF16, narrow));
        for (size_t i = 0; i < N; i++) assert_int_equal(narrow[i], pb_f32_to_bf16(wide[i]));
        free(x);
    }
}

/* ---- writing safetensors files --------------------------------------------------------------------------- */

static char folder[] = "/tmp/pb_safetensors_XXXXXX", out_path[256];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder)) return -1;
    /* set by `scripts/fixtures/safetensors_fixtures.py check`, which reads the written file */
    const char *asked = getenv("SAFETENSORS_OUT");
    if (asked) snprintf(out_path, sizeof out_path, "%s", asked);
    else snprintf(out_path, sizeof out_path, "%s/x.safetensors", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    if (!getenv("SAFETENSORS_OUT")) unlink(out_path);
    return rmdir(folder); /* fails when the folder still contains a file */
}

static const pb_st_entry entries[] = {{"w", PB_ST_F32, 2, {2, 3}},
                                      {"h", PB_ST_BF16, 1, {3}},
                                      {"none", PB_ST_F32, 2, {0, 4}},
                                      {"gr\xc3\xb6\xc3\x9f"
                                       "e",
                                       PB_ST_U8,
                                       0,
                                       {0}}};
static const pb_st_pair meta[] = {{"format", "pt"}, {"what", "a \"quoted\" \xe2\x9c\x93"}};
static const float w[6] = {0, 1, 2, 3, 4, 5};

static void write_it(void)
{
    pb_st_writer *out = NULL;
    const uint16_t h[3] = {0, 0x3f80, 0x4000};
    const unsigned char nine = 9;
    CHECK_OK(pb_st_create(out_path, entries, 4, meta, 2, &out));
    CHECK_OK(pb_st_append(out, w, 7));
    CHECK_OK(pb_st_append(out, (const char *)w + 7, sizeof w - 7));
    CHECK_OK(pb_st_append(out, h, sizeof h));
    CHECK_FAILS(pb_st_append(out, w, 2), PB_EINVAL, "1 bytes more were written than the header states");
    CHECK_OK(pb_st_append(out, &nine, 1));
    CHECK_OK(pb_st_commit(out));
}

static void written_files_are_read_back(void **state)
{
    (void)state;
    pb_safetensors *f = NULL;
    write_it();
    CHECK_OK(pb_st_open(out_path, &f));
    assert_int_equal(pb_st_count(f), 4);
    assert_string_equal(pb_st_metadata(f, "what"), meta[1].value);
    check_floats(f, "w", w, 6);
    check_floats(f, "h", (float[]){0, 1, 2}, 3);
    assert_int_equal(((uintptr_t)tensor(f, "w")->data & 7), 0);
    pb_st_close(f);
}

static int disturbance; /* how pread fails: 1: signals and short reads; 2: an error of the device; 3: end of file */

ssize_t __real_pread(int fd, void *to, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t offset)
{
    static int calls;
    if (disturbance == 3) return 0;
    errno = disturbance == 1 ? EINTR : EIO;
    if (disturbance == 2 || (disturbance == 1 && calls++ % 2 == 0)) return -1;
    return __real_pread(fd, to, disturbance && n > 5 ? 5 : n, offset);
}

static void a_signal_does_not_end_a_read(void **state)
{
    (void)state;
    pb_safetensors *f = NULL;
    float got[6] = {0};
    write_it();
    CHECK_OK(pb_st_open(out_path, &f));
    const pb_st_tensor *t = tensor(f, "w");
    disturbance = 1;
    const pb_status s = pb_st_load(f, t, 0, 6, PB_F32, got);
    disturbance = 2;
    CHECK_FAILS(pb_st_load(f, t, 0, 6, PB_F32, got), PB_EIO, "cannot be read: Input/output error (tensor w)");
    disturbance = 3;
    CHECK_FAILS(pb_st_load(f, t, 0, 6, PB_F32, got), PB_EIO, "but must hold 24 more bytes (tensor w)");
    disturbance = 0;
    CHECK_OK(s);
    assert_memory_equal(got, w, sizeof w);
    pb_st_close(f);
}

/* Returns the number of temporary files of `out_path`. */
static size_t drafts(void)
{
    char pattern[300];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.*.partial", out_path);
    const size_t n = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    if (n) globfree(&found);
    return n;
}

static void failures_leave_the_old_file(void **state)
{
    (void)state;
    pb_st_writer *out = NULL;
    pb_safetensors *f = NULL;
    write_it();
    CHECK_OK(pb_st_create(out_path, entries, 1, NULL, 0, &out));
    assert_int_equal(drafts(), 1);
    CHECK_OK(pb_st_append(out, w, 8));
    CHECK_FAILS(pb_st_commit(out), PB_EINVAL, "16 bytes that the header states were not written");
    assert_int_equal(drafts(), 0);
    CHECK_OK(pb_st_create(out_path, entries, 1, NULL, 0, &out));
    pb_st_abandon(out);
    assert_int_equal(drafts(), 0);
    const pb_st_entry twice[] = {entries[0], entries[0]}, huge = {"big", PB_ST_F64, 2, {1ul << 32, 1ul << 32}};
    const pb_st_entry bad = {"\xff", PB_ST_F32, 0, {0}};
    CHECK_FAILS(pb_st_create(out_path, twice, 2, NULL, 0, &out), PB_EINVAL, "tensor w is given twice");
    CHECK_FAILS(pb_st_create(out_path, &huge, 1, NULL, 0, &out), PB_EINVAL,
                "tensor big: the product of the shape overflows");
    CHECK_FAILS(pb_st_create(out_path, &bad, 1, NULL, 0, &out), PB_EINVAL, "not UTF-8");
    CHECK_FAILS(pb_st_create("/nowhere/x", entries, 1, NULL, 0, &out), PB_EPATH, "/nowhere/x: No such file");
    CHECK_OK(pb_st_open(out_path, &f));
    assert_int_equal(pb_st_count(f), 4);
    pb_st_close(f);
}

/* ---- malformed safetensors files are refused --------------------------------------------------------------- */

static pb_status parse(const char *header, size_t data, pb_safetensors **f)
{
    static unsigned char bytes[16384];
    const size_t n = strlen(header);
    memset(bytes, 0, sizeof bytes);
    bytes[0] = (unsigned char)n, bytes[1] = (unsigned char)(n >> 8);
    memcpy(bytes + 8, header, n + 1);
    return pb_st_parse("x.st", bytes, 8 + n + data, f);
}

#define A(dtype, shape, offsets) "\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"
static const struct {
    const char *header;
    size_t data;
    const char *says;
} faults[] = {
    {"", 0, "x.st: the header does not begin with '{'"},
    {" {}", 0, "x.st: the header does not begin with '{'"},
    {"{", 0, "x.st is not valid JSON: line 1"},
    {"{} x", 0, "x.st is not valid JSON: line 1: end of file expected"},
    {"{\"a\":\n\"\n\"}", 0, "is not valid JSON: line 2: unexpected newline"},
    {"{\"\xff\":1}", 0, "is not valid JSON: line 1: unable to decode byte 0xff"},
    {"{\"a\\u0000\":1}", 0, "is not valid JSON: line 1: NUL byte in object key"},
    {"{" A("\"U8\"", "[1]", "[0,1]") "," A("\"U8\"", "[1]", "[0,1]") "}", 1, "duplicate object key"},
    {"{\"__metadata__\":3}", 0, "\"__metadata__\" is not an object"},
    {"{\"__metadata__\":{\"k\":3}}", 0, "\"__metadata__\": the value of \"k\" is not a string"},
    {"{\"a\":[]}", 0, "x.st: tensor a is not an object"},
    {"{\"a\\n\":[]}", 0, "x.st: the name of a tensor contains control characters"},
    {"{\"a\":{}}", 0, "tensor a: \"dtype\" is not a string"},
    {"{" A("\"F33\"", "[1]", "[0,1]") "}", 1, "x.st: tensor a: dtype \"F33\" is unknown"},
    {"{" A("\"U8\"", "3", "[0,1]") "}", 1, "tensor a: \"shape\" is not a list"},
    {"{" A("\"U8\"", "[-1]", "[0,1]") "}", 1, "tensor a: \"shape\" contains a value that is not a whole number"},
    {"{" A("\"U8\"", "[1.0]", "[0,1]") "}", 1, "tensor a: \"shape\" contains a value that is not a whole number"},
    {"{" A("\"U8\"", "[99999999999999999999]", "[0,1]") "}", 1, "is not valid JSON: line 1: too big integer"},
    {"{" A("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1, "tensor a has 9 dimensions, but at most 8"},
    {"{" A("\"U8\"", "[4294967296,4294967296]", "[0,0]") "}", 0, "tensor a: the product of the shape overflows"},
    {"{" A("\"F64\"", "[4611686018427387904]", "[0,0]") "}", 0, "tensor a: the product of the shape overflows"},
    {"{" A("\"U8\"", "[1]", "[0]") "}", 1, "tensor a: \"data_offsets\" is not a pair of whole numbers"},
    {"{" A("\"U8\"", "[1]", "[-1,0]") "}", 1, "tensor a: \"data_offsets\" is not a pair of whole numbers"},
    {"{" A("\"U8\"", "[1]", "[1,0]") "}", 1, "tensor a: bytes 1 to 0 are outside"},
    {"{" A("\"U8\"", "[2]", "[0,2]") "}", 1, "tensor a: bytes 0 to 2 are outside the file's 1 bytes"},
    {"{" A("\"F16\"", "[2,3]", "[0,8]") "}", 8, "tensor a: F16 [2,3] is 12 bytes, but \"data_offsets\" span 8"},
    {"{" A("\"U8\"", "[1]", "[1,2]") "}", 2, "the 1 bytes before tensor a belong to no tensor"},
    {"{" A("\"U8\"", "[1]", "[0,1]") "}", 4, "the last 3 bytes belong to no tensor"},
    {"{" A("\"U8\"", "[4]", "[0,4]") ",\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}", 5,
     "tensor b overlaps tensor a"},
};

static void every_malformed_file_is_refused(void **state)
{
    (void)state;
    pb_safetensors *f = NULL;
    static char deep[9000] = "{\"a\":";
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        CHECK_FAILS(parse(faults[i].header, faults[i].data, &f), PB_EINVAL, faults[i].says);
    memset(deep + strlen(deep), '[', 8000);
    CHECK_FAILS(parse(deep, 0, &f), PB_EINVAL, "maximum parsing depth");
    assert_null(f);
    CHECK_FAILS(pb_st_parse("x", "1234567", 7, &f), PB_EINVAL, "x has 7 bytes, which is too short");
    CHECK_FAILS(pb_st_parse("x", "\3\0\0\0\0\0\0\0{}", 10, &f), PB_EINVAL,
                "the header has 3 bytes, but the file only 10");
    CHECK_FAILS(pb_st_parse("x", "\377\377\377\377\377\377\377\377{}", 10, &f), PB_EINVAL, "not a safetensors file");
    CHECK_FAILS(pb_st_open("/nowhere", &f), PB_EPATH, "/nowhere: No such file");
    CHECK_FAILS(pb_st_open("/", &f), PB_EPATH, "/ is a folder, but must be a regular file");
    CHECK_FAILS(pb_st_open("/dev/null", &f), PB_EPATH, "/dev/null is a device, but");
    CHECK_OK(parse("{\"__metadata__\":null}  ", 0, &f));
    pb_st_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_of_the_safetensors_package_is_read),
        cmocka_unit_test(every_f16_converts),
        cmocka_unit_test(parts_of_a_tensor_equal_the_whole),
        cmocka_unit_test(written_files_are_read_back),
        cmocka_unit_test(a_signal_does_not_end_a_read),
        cmocka_unit_test(failures_leave_the_old_file),
        cmocka_unit_test(every_malformed_file_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
