/* capture_test.c - captures a call of every op and runs it again with every implementation; captures with NaN; and
 * files that are damaged, too large, or do not fit their op. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/disk.h"
#include "tests/folder_test.h"
#include "tests/test.h"
#include "trainer/capture/replay.h"
#include "trainer/io/safetensors.h"

enum { LIMIT = 64 << 20 };
static char path[512];
static pb_disk quick; /* without fsync, which takes most of the time */

static int no_fsync(void *self, int fd) { return (void)self, (void)fd, 0; }

static pb_call bind(pb_ctx *ctx, const pb_op *op, const int *dim, pb_dtype t)
{
    pb_call c;
    CHECK_OK(pb_call_bind(ctx, op, dim, t, &c));
    if (op->prepare) CHECK_OK(op->prepare(ctx, c.args));
    for (int k = 0; k < c.b.n; k++) { /* prepare changes inputs, which pb_check_guards compares */
        void *host = malloc(c.b.t[k].rows * c.b.t[k].cols * sizeof(float) + 1);
        CHECK_OK(pb_bound_get(&c.b, k, host));
        CHECK_OK(pb_bound_set(&c.b, k, host));
        free(host);
    }
    return c;
}

/* Runs the call and writes its capture. */
static void capture(pb_call *call)
{
    pb_capture *c;
    CHECK_OK(pb_capture_open(LIMIT, &c));
    CHECK_OK(pb_capture_note(c, PB_NOTE_step, "%d", 17));
    CHECK_OK(pb_capture_run(c, call));
    CHECK_OK(pb_capture_write(c, &quick, path));
    pb_capture_close(c);
}

static int replay(pb_ctx *ctx, const char *impl, pb_replay_row *rows)
{
    pb_captured *r;
    int n;
    CHECK_OK(pb_captured_open(path, &r));
    assert_int_equal(pb_captured_calls(r), 1);
    assert_string_equal(pb_captured_note(r, PB_NOTE_step), "17");
    CHECK_OK(pb_captured_replay(r, 0, ctx, impl, rows, &n));
    pb_captured_close(r);
    return n;
}

/* ---- every op ------------------------------------------------------------------------------------------------- */

/* Replays with every implementation; the one that was captured must give the same bits. */
static void replay_with_all(pb_ctx *ctx, const pb_call *call, const char *captured)
{
    for (const pb_impl *i = call->op->impls[PB_CPU]; i->name; i++) {
        pb_replay_row row[PB_MAX_BOUND];
        if ((i->available && !i->available()) || (i->accepts && !i->accepts(call->args))) continue;
        const int n = replay(ctx, i->name, row);
        for (int k = 0; k < n; k++) {
            if (!row[k].agrees)
                fail_msg("%s %s: %s differs by %g, largest %g, %zu moved", call->op->name, i->name, row[k].tensor,
                         row[k].rel, row[k].max, row[k].moved);
            assert_string_equal(row[k].impl, i->name);
            if (strcmp(i->name, captured) == 0) assert_true(row[k].same_bits);
        }
    }
}

static void test_every_op(void **state)
{
    pb_ctx *ctx = *state;
    for (const pb_op *const *op = pb_ops; *op; op++)
        for (int t = 0; t < ((*op)->f32_only ? 1 : PB_NFLOAT); t++) {
            pb_call call = bind(ctx, *op, (*op)->edge[0], (pb_dtype)t);
            const pb_impl *impl = pb_op_pick(ctx, *op, call.args);
            assert_non_null(impl);
            capture(&call);
            replay_with_all(ctx, &call, impl->name);
            pb_call_unbind(&call);
        }
}

/* A number that no shape determines has the captured value, not that of bind. */
static void test_numbers(void **state)
{
    pb_replay_row row[PB_MAX_BOUND];
    int with = 0;
    for (const pb_op *const *op = pb_ops; *op; op++) {
        const pb_number *n = (*op)->numbers;
        if (!n || !n->name || n->bytes != sizeof(float)) continue;
        pb_call call = bind(*state, *op, (*op)->edge[0], PB_F32);
        float was, set;
        memcpy(&was, (char *)call.args + n->offset, sizeof was);
        set = was * 0.7f;
        memcpy((char *)call.args + n->offset, &set, sizeof set);
        capture(&call);
        for (int k = replay(*state, NULL, row) - 1; k >= 0; k--)
            if (!row[k].same_bits) fail_msg("%s: %s has other bits", (*op)->name, row[k].tensor);
        pb_call_unbind(&call);
        with++;
    }
    assert_in_range(with, 18, 100);
}

/* ---- values that are not finite ---------------------------------------------------------------------------------- */

static const pb_dims norm_shape = {2, 3, 1, 7};

static void set_nan(pb_call *c, const char *name, size_t at, double value)
{
    const int k = (int)(pb_find_bound(&c->b, name) - c->b.t);
    float host[64];
    CHECK_OK(pb_bound_get(&c->b, k, host));
    host[at] = (float)value;
    CHECK_OK(pb_bound_set(&c->b, k, host));
}

static void test_nan_is_reproduced(void **state)
{
    pb_replay_row row[PB_MAX_BOUND];
    pb_call call = bind(*state, pb_op_find("rmsnorm_fwd"), norm_shape, PB_F32);
    set_nan(&call, "x", 15, (double)NAN);
    capture(&call);
    assert_int_equal(replay(*state, "ref", row), 2);
    assert_string_equal(row[0].tensor, "y");
    assert_int_equal(row[0].captured, 7);
    assert_int_equal(row[0].now, 7);
    assert_int_equal(row[0].moved, 0);
    assert_int_equal(row[0].first, 14); /* row 2 */
    assert_true(row[0].agrees);
    assert_true(row[1].agrees);
    pb_call_unbind(&call);
}

/* Captures a call whose output was changed after it ran. */
static void capture_changed(pb_ctx *ctx, size_t at, double value)
{
    pb_capture *c;
    pb_call call = bind(ctx, pb_op_find("rmsnorm_fwd"), norm_shape, PB_F32);
    CHECK_OK(pb_capture_open(LIMIT, &c));
    CHECK_OK(pb_capture_note(c, PB_NOTE_step, "17"));
    CHECK_OK(pb_capture_before(c, &call));
    CHECK_OK(pb_op_run(ctx, call.op, call.args));
    set_nan(&call, "y", at, value);
    CHECK_OK(pb_capture_after(c, &call, pb_op_pick(ctx, call.op, call.args)));
    CHECK_OK(pb_capture_write(c, &quick, path));
    pb_capture_close(c);
    pb_call_unbind(&call);
}

static void test_differences_are_found(void **state)
{
    static const double values[] = {(double)NAN, (double)INFINITY, 3};
    pb_replay_row row[PB_MAX_BOUND];
    for (int i = 0; i < 3; i++) {
        capture_changed(*state, 33, values[i]);
        replay(*state, NULL, row);
        assert_false(row[0].agrees);
        assert_false(row[0].same_bits);
        assert_true(row[1].agrees);
        assert_int_equal(row[0].moved, i < 2);
        if (i < 2) assert_int_equal(row[0].first, 33);
    }
}

static void test_kinds(void **state)
{
    const float inf = INFINITY, a[] = {1, NAN, inf, -inf, NAN}, b[] = {1, NAN, inf, -inf, inf},
                c[] = {1, NAN, -inf, -inf, NAN};
    pb_replay_row row = {.rows = 1, .cols = 5, .bound = 1e-6};
    (void)state;
    pb_replay_compare(a, a, PB_F32, &row);
    assert_true(row.agrees && row.moved == 0 && row.captured == 4 && row.first == 1);
    pb_replay_compare(a, b, PB_F32, &row);
    assert_true(!row.agrees && row.moved == 1 && row.first == 4);
    pb_replay_compare(a, c, PB_F32, &row);
    assert_true(!row.agrees && row.moved == 1 && row.first == 2);
}

/* ---- files that cannot be used
 * ------------------------------------------------------------------------------------ */

static void refused(const char *text)
{
    pb_captured *r;
    CHECK_FAILS(pb_captured_open(path, &r), PB_EINVAL, text);
    assert_non_null(strstr(pb_error(), path));
}

static void test_every_bit_counts(void **state)
{
    char *bytes;
    size_t n;
    pb_captured *r;
    pb_call call = bind(*state, pb_op_find("rmsnorm_fwd"), norm_shape, PB_F32);
    capture(&call);
    pb_call_unbind(&call);
    CHECK_OK(pb_disk_read_file(&pb_disk_posix, path, LIMIT, &bytes, &n));
    for (size_t at = 0; at < n; at++) {
        bytes[at] ^= 1 << at % 8;
        unlink(path);
        CHECK_OK(pb_disk_write_file(&quick, path, bytes, n));
        if (pb_captured_open(path, &r) == PB_OK) fail_msg("byte %zu of %zu was changed: %s", at, n, bytes + 8);
        bytes[at] ^= 1 << at % 8;
    }
    unlink(path);
    CHECK_OK(pb_disk_write_file(&quick, path, bytes, n / 2));
    refused("");
    free(bytes);
}

/* Writes a capture of a call whose description was changed, so that its checksum is right. */
static void write_changed(pb_call *call)
{
    pb_capture *c;
    CHECK_OK(pb_capture_open(LIMIT, &c));
    CHECK_OK(pb_capture_before(c, call));
    CHECK_OK(pb_capture_after(c, call, &(pb_impl){.name = "ref"}));
    CHECK_OK(pb_capture_write(c, &quick, path));
    pb_capture_close(c);
}

static void test_other_calls(void **state)
{
    const pb_op *op = pb_op_find("rmsnorm_fwd");
    pb_op unknown = *op;
    unknown.name = "rmsnorm_sideways";
    pb_call call = bind(*state, op, norm_shape, PB_F32);
    call.op = &unknown;
    write_changed(&call);
    refused("there is no op 'rmsnorm_sideways'");
    call.op = op;
    call.dim[3] = 8;
    write_changed(&call);
    refused("tensor 0/before/x is F32 [6,7], but rmsnorm_fwd f32 B2.S3.G1.D8.p0.a0.f0");
    call.dim[3] = 0;
    write_changed(&call);
    refused("axis D of its shape is 0");
    call.dim[3] = 7, call.dim[6] = 9;
    write_changed(&call);
    refused("axis f of its shape is 9, need 0 to 2");
    call.dim[6] = 0, call.b.n--;
    write_changed(&call);
    refused("tensor 0/after/rstd is missing");
    call.b.n++, call.dim[6] = 2;
    write_changed(&call);
    refused("1 of its tensors belong to no call");
    call.dim[6] = 0;
    const float negative = -1;
    memcpy((char *)call.args + op->numbers->offset, &negative, sizeof negative);
    write_changed(&call);
    refused("eps=-1, need > 0");
    unknown.name = op->name, unknown.numbers = NULL, call.op = &unknown;
    write_changed(&call);
    refused("its numbers are '', need such as 'eps=");
    call.op = op;
    pb_call_unbind(&call);
}

static void test_other_files(void **state)
{
    pb_st_writer *w;
    pb_captured *r;
    (void)state;
    CHECK_OK(pb_st_create(path, NULL, 0, NULL, 0, &w));
    CHECK_OK(pb_st_commit(w));
    refused("not a capture");
    CHECK_OK(pb_st_create(path, NULL, 0, (pb_st_pair[]){{"format", PB_CAPTURE_FORMAT}, {"calls", "17"}}, 2, &w));
    CHECK_OK(pb_st_commit(w));
    refused("number of calls is '17', need 0 to 16");
    unlink(path);
    CHECK_FAILS(pb_captured_open(path, &r), PB_EPATH, path);
}

static ssize_t no_room(void *self, int fd, const void *from, size_t n)
{
    (void)self, (void)fd, (void)from, (void)n;
    errno = ENOSPC;
    return -1;
}

static void test_limits(void **state)
{
    pb_disk full = pb_disk_posix;
    pb_capture *c;
    struct stat st;
    pb_call call = bind(*state, pb_op_find("rmsnorm_fwd"), norm_shape, PB_F32);
    CHECK_OK(pb_capture_open(6 * 7 * 4 + 7 * 4 - 1, &c)); /* x and w need one byte more */
    CHECK_FAILS(pb_capture_before(c, &call), PB_EINVAL,
                "with tensor 0/before/w it would have 196 bytes, more than its limit of 195");
    pb_capture_close(c);
    CHECK_OK(pb_capture_open(LIMIT, &c));
    CHECK_OK(pb_capture_run(c, &call));
    full.write = no_room;
    unlink(path);
    CHECK_FAILS(pb_capture_write(c, &full, path), PB_EIO, "No space left");
    assert_int_equal(stat(path, &st), -1);
    for (int i = 1; i < PB_CAPTURE_CALLS; i++) CHECK_OK(pb_capture_run(c, &call));
    CHECK_FAILS(pb_capture_run(c, &call), PB_EINVAL, "more than 16 calls");
    pb_capture_close(c);
    pb_call_unbind(&call);
}

static int open_all(void **state)
{
    if (test_open_folder(state) != 0) return -1;
    quick = pb_disk_posix;
    quick.fsync = no_fsync;
    snprintf(path, sizeof path, "%s", in_folder("call.safetensors"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_nan_is_reproduced),
        cmocka_unit_test(test_differences_are_found),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_every_bit_counts),
        cmocka_unit_test(test_other_calls),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, open_all, test_close_folder);
}
