/* records_test.c - files of records: what is written is read back, and joined as before; files that are cut off,
 * damaged or of another format are refused; train's profile keeps them if wanted. */
#include "trace/records.h"

#include <unistd.h>
#include <zlib.h>

#include "tests/folder_test.h"
#include "trace/nodes.h"

static const int64_t start_ns = 1795455939198887021; /* of the window */

static pb_ring_record of_training[] = {
    {"linear_fwd", 1795455939198887121, 1795455939198887421, PB_RANGE_NO_VALUE, 1000, 30, PB_RANGE_op, 1, true},
    {"train_step", 1795455939198887021, 1795455939198897021, 4, 0, 0, PB_RANGE_step, 0, false},
};
static pb_ring_record of_worker[] = {{"all_reduce",
                                      1795455939198888021,
                                      1795455939198889021,
                                      4096,
                                      0,
                                      0,
                                      PB_RANGE_collective,
                                      0,
                                      true,
                                      {"dp#1", "bf16", 4, 17}}};
static pb_ring_thread threads[] = {{.tid = 11, .records = of_training, .n = 2, .dropped = 3},
                                   {.tid = 12, .n = 0},
                                   {.tid = 13, .records = of_worker, .n = 1}};
static const pb_ring_window ranges = {.begin_ns = 1795455939198887021,
                                      .end_ns = 1795455939198897021,
                                      .threads = threads,
                                      .n = 3,
                                      .dropped = 5,
                                      .tsc = true,
                                      .stepped_ns = -17};
static const pb_trace_about about = {.rank = 2,
                                     .ranks = 4,
                                     .host = "secret",
                                     .topology = "dp=4",
                                     .version = "v 1",
                                     .backend = "cuda",
                                     .device = "cuda:0",
                                     .first_step = 4,
                                     .last_step = 5,
                                     .truncated = true};
static pb_gpu_event events[] = {
    {.kind = PB_GPU_KERNEL,
     .begin_ns = 1795455939198888021,
     .end_ns = 1795455939198888521,
     .name = "_Z3fooPf",
     .device = 1,
     .context = 2,
     .stream = 7,
     .correlation = 99,
     .node = (5ull << 62) + 8,
     .grid = {132, 2, 3},
     .block = {256, 4, 5},
     .registers = 64,
     .shared = 227 << 10},
    {.kind = PB_GPU_CALL,
     .begin_ns = 1795455939198887221,
     .end_ns = 1795455939198887321,
     .name = "cudaLaunchKernel_v7000",
     .stream = UINT32_MAX,
     .correlation = UINT32_MAX,
     .thread = 11},
    {.kind = PB_GPU_COPY,
     .begin_ns = 1795455939198886021, /* before the window */
     .end_ns = 1795455939198889000,
     .name = "Memcpy DtoH",
     .bytes = UINT64_MAX},
    {.kind = PB_GPU_SET, .begin_ns = 1795455939198887021, .end_ns = 1795455939198887022, .name = "Memset", .bytes = 1},
    {.kind = PB_GPU_SYNC, .begin_ns = 1795455939198887021, .end_ns = 1795455939198887022, .name = "Event Sync"},
    {.kind = PB_GPU_OVERHEAD, .begin_ns = 1795455939198887021, .end_ns = 1795455939198887022, .name = NULL},
};
enum { EVENTS = sizeof events / sizeof *events };
static const pb_gpu_window gpu = {.events = events, .n = EVENTS, .dropped = 6, .buffer_bytes = 12345};

static const char *write_records(void)
{
    CHECK_OK(pb_records_write(&pb_disk_posix, in_folder("a.records.gz"), &about, &ranges, &gpu));
    return in_folder("a.records.gz");
}

static void same_range(const pb_ring_record *a, const pb_ring_record *b)
{
    assert_string_equal(a->name, b->name);
    assert_true(a->begin_ns == b->begin_ns && a->end_ns == b->end_ns && a->value == b->value);
    assert_true(a->flops == b->flops && a->bytes == b->bytes);
    assert_true(a->kind == b->kind && a->depth == b->depth && a->complete == b->complete);
    assert_true(!a->of.group == !b->of.group);
    if (!b->of.group) return;
    assert_string_equal(a->of.group, b->of.group);
    assert_string_equal(a->of.dtype, b->of.dtype);
    assert_true(a->of.ranks == b->of.ranks && a->of.number == b->of.number);
}

static void same_event(const pb_gpu_event *a, const pb_gpu_event *b)
{
    assert_string_equal(a->name, b->name ? b->name : "");
    assert_true(a->kind == b->kind && a->begin_ns == b->begin_ns && a->end_ns == b->end_ns);
    assert_true(a->device == b->device && a->context == b->context && a->stream == b->stream);
    assert_true(a->correlation == b->correlation && a->thread == b->thread && a->bytes == b->bytes);
    assert_true(a->node == b->node && a->registers == b->registers && a->shared == b->shared);
    assert_memory_equal(a->grid, b->grid, sizeof a->grid);
    assert_memory_equal(a->block, b->block, sizeof a->block);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    pb_records r;
    CHECK_OK(pb_records_read(write_records(), &r));
    assert_true(r.about.rank == 2 && r.about.ranks == 4 && r.about.first_step == 4 && r.about.last_step == 5);
    assert_true(r.about.truncated && !r.about.limit && !r.about.expected);
    assert_string_equal(r.about.topology, "dp=4");
    assert_string_equal(r.about.version, "v 1");
    assert_string_equal(r.about.backend, "cuda");
    assert_string_equal(r.about.device, "cuda:0");
    assert_string_equal(r.about.host, "recorded");
    assert_true(r.ranges.begin_ns == start_ns && r.ranges.end_ns == ranges.end_ns && r.ranges.tsc);
    assert_int_equal(r.ranges.dropped, 5);
    CHECK_NEAR(r.ranges.stepped_ns, -17, 0);
    assert_int_equal(r.ranges.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r.ranges.threads[i].tid, threads[i].tid);
        assert_int_equal(r.ranges.threads[i].dropped, threads[i].dropped);
        assert_int_equal(r.ranges.threads[i].n, threads[i].n);
        for (size_t k = 0; k < threads[i].n; k++) same_range(&r.ranges.threads[i].records[k], &threads[i].records[k]);
    }
    assert_int_equal(r.gpu.n, EVENTS);
    assert_int_equal(r.gpu.dropped, 6);
    assert_int_equal(r.gpu.buffer_bytes, 12345);
    for (size_t i = 0; i < EVENTS; i++) same_event(&r.gpu.events[i], &events[i]);
    pb_records_free(&r);
}

/* The text of the file; the caller frees it. */
static char *text_of(const char *path, size_t *n)
{
    enum { MOST = 1 << 16 };
    char *text = malloc(MOST);
    assert_non_null(text);
    gzFile f = gzopen(path, "rb");
    assert_non_null(f);
    const int got = gzread(f, text, MOST - 1);
    (void)gzclose(f);
    assert_in_range(got, 1, MOST - 2);
    text[got] = 0;
    *n = (size_t)got;
    return text;
}

/* Notes of nodes come before the copies made of them, and a place is stored once. The notes are this process's, so the
 * file is read by another process. */
static void nodes_are_written_in_their_order(void **state)
{
    (void)state;
    size_t n;
    const pb_range_stack place = {.depth = 2,
                                  .at = {{PB_RANGE_phase, "forward", PB_RANGE_NO_VALUE},
                                         {PB_RANGE_op, "linear_fwd", PB_RANGE_NO_VALUE, 1000, 30}}};
    pb_range_stack other = place;
    other.depth = 1;
    pb_nodes_add(900, &place);
    pb_nodes_add(7, &place);
    pb_nodes_add(5, &other);
    pb_nodes_copy(6, 900);
    pb_nodes_copy(3, 6);
    pb_nodes_copy(4, 12345); /* of a node that is not known */
    char *text = text_of(write_records(), &n);
    const char *at = strstr(text, "place 2 phase ");
    assert_non_null(at);
    assert_non_null(strstr(at, "\nnode 900 0 0\nnode 7 0 0\nplace 1 phase "));
    assert_non_null(strstr(at, "\nnode 5 0 1\nnode 6 900 0\nnode 3 6 0\nname "));
    assert_null(strstr(text, "node 4 "));
    assert_null(strstr(text, "secret"));
    free(text);
}

/* Writes a file without fsync, because these tests write thousands. Returns its path. */
static const char *put(const char *name, const char *bytes, size_t n)
{
    const char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void files_that_are_cut_off_are_refused(void **state)
{
    (void)state;
    pb_records r;
    char *packed;
    size_t n, bytes;
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, write_records(), 1 << 20, &packed, &bytes));
    for (size_t kept = 0; kept < bytes; kept++) {
        CHECK_FAILS(pb_records_read(put("cut.gz", packed, kept), &r), PB_EINVAL, "cut.gz: ");
    }
    free(packed);
    char *text = text_of(in_folder("a.records.gz"), &n);
    for (size_t kept = 0; kept < n; kept++) { /* not compressed, so that only the lines themselves tell */
        CHECK_FAILS(pb_records_read(put("cut", text, kept), &r), PB_EINVAL, "cut: ");
    }
    free(text);
}

static void other_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *why;
    } bad[] = {
        {"plumb-records 1", "plumb-records 2", "records of format 2, this program reads 1"},
        {"plumb-records 1", "plumb records", "not a file of records"},
        {"kernel ", "kernels ", "is not one of"},
        {"kernel ", "kernel  ", "is not one of"},
        {"kernel ", "kernel x", "is not one of"},
        {"range op ", "range opera ", "is not one of"},
        {"range op ", "range ", "is not one of"},
        {"about 2 4", "about 4 4", "is not one of"},
        {"about 2 4", "about -1 4", "is not one of"},
        {"about ", "abort ", "is not one of"},
        {"\nwindow ", "\nwindow 1", "is not one of"},
        {"\nthread 11 3\n", "\nthread 11 3 3\n", "is not one of"},
        {"\nthread 11 3\n", "\n", "is not one of"},
        {" 1000 30 1 1\n", " 1000 30 1 2\n", "is not one of"}, /* a truth value that is 2 */
        {"\nend ", "\nset 1 2 0 4294967296 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend ", "is not one of"}, /* device: 2^32 */
        {"\nend ", "\nset 1 2 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\nend ", "is not one of"},         /* no such name */
        {"\nend ", "\nnode 1 0 99\nend ", "is not one of"},
        {"\ncollective ", "\ncollective 99", "is not one of"},
        {"\nrange op ", "\ncollective 0 0 4 1\nrange op ", "is not one of"}, /* of no range */
        {"\nend ", "\nplace 0\ncollective_of 0 0 0 4 1\nend ", "is not one of"},
        {"\nend ", "\nname more\nend ", "is not one of"}, /* the number of lines differs */
        {"\nend ", "\nend 1\nend ", "is not one of"},
    };
    pb_records r;
    size_t n;
    char *text = text_of(write_records(), &n);
    static char other[1 << 16];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *at = strstr(text, bad[i].from);
        if (!at) fail_msg("the file has no '%s':\n%s", bad[i].from, text);
        snprintf(other, sizeof other, "%.*s%s%s", (int)(at - text), text, bad[i].to, at + strlen(bad[i].from));
        CHECK_FAILS(pb_records_read(put("other", other, strlen(other)), &r), PB_EINVAL, bad[i].why);
        if (strchr(pb_error(), '\n')) fail_msg("more than one line: %s", pb_error());
    }
    free(text);
    CHECK_FAILS(pb_records_read("/proc/nowhere", &r), PB_EPATH, "/proc/nowhere");
}

static void names_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static char name[PB_GZIP_NAME + 2];
    pb_records r;
    pb_gpu_event e = {.name = name};
    const pb_gpu_window one = {.events = &e, .n = 1};
    memset(name, 'x', PB_GZIP_NAME);
    CHECK_OK(pb_records_write(&pb_disk_posix, in_folder("long"), &about, &ranges, &one));
    CHECK_OK(pb_records_read(in_folder("long"), &r));
    assert_string_equal(r.gpu.events[0].name, name);
    pb_records_free(&r);
    name[PB_GZIP_NAME] = 'x';
    (void)unlink(in_folder("long"));
    CHECK_FAILS(pb_records_write(&pb_disk_posix, in_folder("long"), &about, &ranges, &one), PB_EINVAL,
                "bytes or a newline");
    e.name = "a\nb";
    CHECK_FAILS(pb_records_write(&pb_disk_posix, in_folder("long"), &about, &ranges, &one), PB_EINVAL,
                "bytes or a newline");
    assert_int_not_equal(access(in_folder("long"), F_OK), 0);
    CHECK_FAILS(pb_records_write(&pb_disk_posix, "/proc/nowhere/x", &about, &ranges, &gpu), PB_EPATH, "/proc/nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(nodes_are_written_in_their_order),
        cmocka_unit_test(files_that_are_cut_off_are_refused),
        cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(names_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, test_open_folder, test_close_folder);
}
