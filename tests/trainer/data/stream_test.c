/* stream_test.c - rows of a stream (PB_PACK_STREAM): where it is cut, which windows are rows, batches by number. */
#include "tests/trainer/data/data_fixture.h"

enum { MOST = 8192 };

/* The tokens of one epoch's stream that are in a window of S positions. */
typedef struct stream {
    int32_t ids[MOST];
    bool counted[MOST];
    size_t windows, S;
} stream;

static pb_dataset_config streamed(int length, pb_mask_type mask, double min_counted)
{
    pb_dataset_config c = config();
    c.S = length;
    c.pack = PB_PACK_STREAM;
    c.long_ones = PB_LONG_SPLIT;
    c.mask = mask;
    c.min_counted = min_counted;
    return c;
}

/* Reads the ids of epoch 0 from rows in which every target counts, and checks everything that does not depend on the
 * mask. */
static void read_stream(int length, pb_dataset_counts *c, stream *out)
{
    static room r;
    const pb_rows to = rows_of(&r);
    const size_t n = (size_t)length;
    const pb_dataset_config cfg = streamed(length, PB_MASK_ALL, 1);
    pb_dataset *d = open_samples(&cfg, SAMPLES, c);
    *out = (stream){.windows = pb_dataset_rows(d), .S = n};
    assert_true(c->tokens < MOST && c->counted == c->tokens && c->passed_over == 0);
    assert_int_equal(out->windows, (c->tokens - 1) / n);
    for (size_t w = 0; w < out->windows; w++) {
        pb_dataset_next(d, 1, &to);
        assert_int_equal(r.used[0], length);
        if (w) assert_int_equal(out->ids[w * n], r.ids[0]); /* the last target of the row before */
        for (size_t k = 0; k < n; k++) {
            out->ids[w * n + k] = r.ids[k];
            out->ids[w * n + k + 1] = r.targets[k];
            if (k) assert_int_equal(r.targets[k - 1], r.ids[k]);
            assert_true(r.start[k] == 0 && r.pos[k] == (int)k && r.mask[k] == 1);
        }
    }
    assert_int_equal(pb_dataset_position(d).epoch, 0);
    pb_dataset_next(d, 1, &to);
    assert_int_equal(pb_dataset_position(d).epoch, 1);
    pb_dataset_close(d);
}

/* Finds the loss tokens of the mask "assistant" from the tokens alone. Returns how many conversations begin. */
static int find_counted(stream *x)
{
    const int32_t head[] = {PB_TOKEN_START, 'u', 's', 'e', 'r', '\n', 'q'};
    bool assistant = false, content = false;
    int conversations = 0;
    for (size_t i = 0; i <= x->windows * x->S; i++) {
        const int32_t id = x->ids[i];
        x->counted[i] = assistant && content;
        if (content && id == PB_TOKEN_END) assistant = content = false;
        else if (id == PB_TOKEN_START) assistant = x->ids[i + 1] == 'a';
        else if (id == '\n' && assistant) content = true;
        conversations += i + 7 <= x->windows * x->S && memcmp(x->ids + i, head, sizeof head) == 0;
    }
    return conversations;
}

static size_t counted_in(const stream *x, size_t w)
{
    size_t n = 0;
    for (size_t k = 1; k <= x->S; k++) n += x->counted[w * x->S + k];
    return n;
}

/* Checks that the rows are the windows of x with at least one loss token and at least the share `least` of loss
 * tokens. */
static void check_rows(const stream *x, double least)
{
    static room r;
    const pb_rows to = rows_of(&r);
    pb_dataset_counts c;
    const pb_dataset_config cfg = streamed((int)x->S, PB_MASK_ASSISTANT, least);
    pb_dataset *d = open_samples(&cfg, SAMPLES, &c);
    size_t rows = 0;
    for (size_t w = 0; w < x->windows; w++) {
        const size_t counted = counted_in(x, w);
        if (!counted || (double)counted / (double)x->S < least) continue;
        pb_dataset_next(d, 1, &to);
        rows++;
        assert_memory_equal(r.ids, x->ids + w * x->S, x->S * sizeof *r.ids);
        assert_memory_equal(r.targets, x->ids + w * x->S + 1, x->S * sizeof *r.ids);
        for (size_t k = 0; k < x->S; k++) assert_true(r.mask[k] == (float)x->counted[w * x->S + k + 1]);
    }
    assert_int_equal(pb_dataset_rows(d), rows);
    assert_int_equal(c.passed_over, x->windows - rows);
    assert_int_equal(pb_dataset_position(d).epoch, 0);
    assert_true(rows < x->windows || x->S > 16); /* short windows: some have too few loss tokens and are not rows */
    pb_dataset_close(d);
}

static void a_stream_is_cut_into_windows(void **state)
{
    (void)state;
    static const int lengths[] = {1, 4, 16, 50, S};
    static const double shares[] = {0, 0.25, 0.5};
    static stream x;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pb_dataset_counts c;
        read_stream(lengths[i], &c, &x);
        const int conversations = find_counted(&x);
        assert_true(conversations >= SAMPLES - 3 && conversations <= SAMPLES); /* the last may be cut off */
        for (size_t k = 0; k < sizeof shares / sizeof *shares; k++) check_rows(&x, shares[k]);
    }
}

/* pb_dataset_batch(i) gives the rows that pb_dataset_next draws as batch i; numbers after the end of the epoch begin
 * again with its first row. */
static void batches_have_numbers(void **state)
{
    (void)state;
    static room x, y;
    const pb_rows to_x = rows_of(&x), to_y = {y.ids, y.targets, y.mask, NULL, NULL, NULL};
    const pb_dataset_config cfg = streamed(S, PB_MASK_ASSISTANT, 0.25);
    pb_dataset_counts c;
    pb_dataset *d = open_samples(&cfg, SAMPLES, &c);
    const size_t rows = pb_dataset_rows(d);
    assert_true(rows > B && rows % B != 0); /* some batch then has the epoch's last row and again its first */
    for (size_t i = 0; i < 3 * rows; i++) {
        const pb_data_position before = pb_dataset_position(d);
        pb_dataset_batch(d, B, i, &to_y);
        assert_int_equal(pb_dataset_position(d).row, before.row);
        for (size_t b = 0; b < B; b++) {
            CHECK_OK(pb_dataset_seek(d, (pb_data_position){0, (i * B + b) % rows}));
            pb_dataset_next(d, 1, &to_x);
            assert_memory_equal(x.ids, y.ids + b * S, S * sizeof *x.ids);
            assert_memory_equal(x.targets, y.targets + b * S, S * sizeof *x.targets);
            assert_memory_equal(x.mask, y.mask + b * S, S * sizeof *x.mask);
        }
    }
    pb_dataset_close(d);
}

/* The stream has two conversations, one of which begins with text that does not count, and only one window. In one
 * order of the two the window has a loss token, in the other none. Epochs of the other order use the order of epoch 0;
 * a seed whose epoch 0 has the other order is refused. */
static void an_epoch_without_rows_has_the_first_order(void **state)
{
    (void)state;
    static room r;
    const pb_rows to = rows_of(&r);
    char path[] = "/tmp/pb_stream_testXXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    pb_tokenizer *t = NULL;
    pb_dataset *d = NULL;
    pb_dataset_counts c;
    pb_dataset_config cfg = streamed(60, PB_MASK_ASSISTANT, 0);
    int refused = 0, opened = 0;
    assert_non_null(f);
    fprintf(f, "{\"instruction\":\"%060d\",\"response\":\"y\"}\n{\"instruction\":\"x\",\"response\":\"y\"}\n", 0);
    fclose(f);
    CHECK_OK(pb_tokenizer_open(NULL, &t));
    for (cfg.seed = 0; cfg.seed < 20; cfg.seed++) {
        const pb_status s = pb_dataset_open(path, t, &cfg, &c, &d);
        if (s != PB_OK) {
            CHECK_FAILS(s, PB_EINVAL, "105 tokens have no row of 60 with enough loss tokens");
            refused++;
            continue;
        }
        for (uint64_t epoch = 0; epoch < 8; epoch++) {
            pb_dataset_next(d, 1, &to);
            assert_true(pb_dataset_position(d).epoch == epoch && pb_dataset_rows(d) == 1);
            assert_true(r.ids[0] == PB_TOKEN_START && r.ids[6] == 'x');
        }
        opened++;
        pb_dataset_close(d);
    }
    assert_true(refused > 2 && opened > 2);
    cfg.S = 200;
    CHECK_FAILS(pb_dataset_open(path, t, &cfg, &c, &d), PB_EINVAL, "105 tokens have no row of 200");
    pb_tokenizer_close(t);
    remove(path);
}

static void a_stream_has_its_own_settings(void **state)
{
    (void)state;
    pb_tokenizer *t = NULL;
    pb_dataset *d = NULL;
    pb_dataset_counts c;
    CHECK_OK(pb_tokenizer_open(NULL, &t));
#define REFUSED(change, text)                                                                                          \
    do {                                                                                                               \
        pb_dataset_config cfg = streamed(S, PB_MASK_ASSISTANT, 0.25);                                                  \
        change;                                                                                                        \
        CHECK_FAILS(pb_dataset_open("/dev/null", t, &cfg, &c, &d), PB_EINVAL, text);                                   \
    } while (0)
    REFUSED(cfg.min_counted = 1.01, "least share of loss tokens of 1.01");
    REFUSED(cfg.min_counted = -0.1, "least share of loss tokens of -0.1");
    REFUSED(cfg.min_counted = (double)NAN, "least share of loss tokens of");
    REFUSED(cfg.pack = PB_PACK_ON, "only rows of a stream");
    REFUSED(cfg.long_ones = PB_LONG_CUT, "no conversation is too long");
    REFUSED(cfg.align = 2, "cannot be aligned");
#undef REFUSED
    pb_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_cut_into_windows),
        cmocka_unit_test(batches_have_numbers),
        cmocka_unit_test(an_epoch_without_rows_has_the_first_order),
        cmocka_unit_test(a_stream_has_its_own_settings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
